"""Google's message types, imported at first use, since the import takes a second.

from vertex.emulator import messages

endpoint = messages.Endpoint(display_name="digits")
"""

import re
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # Imports ask for __path__.
        raise AttributeError(name)
    from google.cloud.aiplatform_v1 import types

    return getattr(types, name)


def to_snake_case(name: str) -> str:
    """Convert the name of an API method or kind to snake case: ListModels to list_models."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def id_of(name: str) -> str:
    """Return the last part of a resource's name."""
    return name.rpartition("/")[2]


def state_of(job: Any) -> str:
    """Return the state of a job of any kind without its prefix, such as RUNNING."""
    return str(job.state.name.partition("_STATE_")[2])


def parent_of(name: str) -> str:
    """Return a resource's parent, projects/P/locations/L."""
    return "/".join(name.split("/")[:4])
