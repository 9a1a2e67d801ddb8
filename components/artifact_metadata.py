"""Output parameters and artifacts' metadata: the values that a task hands on beside its files.

Vertex AI takes 131,072 bytes of a task, as JSON: "Maximum size of JSON payload containing output
parameters and artifacts per pipeline task" in machine-learning/quotas. And all that a task
takes in, its input artifacts' metadata included, is one argument of a command line, of which
Linux takes as much.
"""

import json
from collections.abc import Sequence
from typing import Any

TASK_BYTES = 131_072
CLASSES_BYTES = TASK_BYTES // 4
"""The most that the class list of records may take: every later task has it among its inputs."""
_RESERVE_BYTES = TASK_BYTES // 4
"""Left for what the service adds: names of resources, types, times."""


def size(value: Any) -> int:
    """Return the bytes of a value as JSON, in the longest of its spellings."""
    return len(json.dumps(value).encode())


def fit(artifacts: Sequence[Any], parameters: Sequence[Any], artifact: Any, key: str) -> bool:
    """Drop a key of an artifact's metadata where a task's outputs do not fit with it; return so."""
    content = [{"name": one.name, "uri": one.uri, "metadata": one.metadata} for one in artifacts]
    if size([content, list(parameters)]) <= TASK_BYTES - _RESERVE_BYTES:
        return False
    return artifact.metadata.pop(key, None) is not None
