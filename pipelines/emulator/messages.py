"""Google's message types, imported when the first of them is used: that takes a second.

from pipelines.emulator import messages

endpoint = messages.Endpoint(display_name="digits")
"""

import re
from typing import Any


def __getattr__(name: str) -> Any:
    from google.cloud.aiplatform_v1 import types

    return getattr(types, name)


def snake(name: str) -> str:
    """Return the name of a method or kind of the API as Python has it: ListModels, list_models."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def id_of(name: str) -> str:
    """Return the last part of a resource's name."""
    return name.rpartition("/")[2]


def parent_of(name: str) -> str:
    """Return the beginning of a resource's name, projects/P/locations/L."""
    return "/".join(name.split("/")[:4])
