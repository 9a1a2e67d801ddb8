import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def vertex_pages() -> Path:
    """The folder of Vertex AI's documentation as text, or a skip where VERTEX_PAGES is unset."""
    if not os.environ.get("VERTEX_PAGES"):
        pytest.skip("VERTEX_PAGES is not set")
    return Path(os.environ["VERTEX_PAGES"])
