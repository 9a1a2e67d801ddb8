"""Fixtures: a server of images and one of rows."""

import pytest

from tests.trainer.serving.servers import serve


@pytest.fixture(scope="session")
def image_model(trained):
    return str(trained / "model")


@pytest.fixture(scope="package")
def image_server(image_model):
    with serve(image_model) as server:
        yield server


@pytest.fixture(scope="package")
def row_server(row_model):
    with serve(row_model) as server:
        yield server
