"""Checks of Vertex AI on a task of a pipeline."""

from collections.abc import Mapping
from typing import Any

from components.artifact_metadata import TASK_BYTES, size


def check_size(outputs: Mapping[str, Any]) -> str:
    """Return why the outputs of a task are refused; empty where they are not.

    "Maximum size of JSON payload containing output parameters and artifacts per pipeline task" in
    machine-learning/quotas.

    Args:
        outputs: kfp artifacts and plain values, by name.
    """
    found = size([vars(one) if hasattr(one, "metadata") else one for one in outputs.values()])
    if found <= TASK_BYTES:
        return ""
    return (
        f"its output parameters and the metadata of its artifacts take {found:,} bytes as JSON, of "
        f"which Vertex AI takes {TASK_BYTES:,}; write them to a file of an artifact"
    )
