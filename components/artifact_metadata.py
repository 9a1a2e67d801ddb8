"""Output parameters and artifact metadata: the values that a task returns in addition to files.

Vertex AI limits the size of a task's outputs. A task's inputs, with the metadata of input
artifacts, are one command-line argument, for which Linux has the same limit.
"""

import json
from collections.abc import Sequence
from typing import Any

from vertex.client.cloud_errors import as_input_error
from vertex.facts.jobs import TASK_BYTES

CLASSES_BYTES = TASK_BYTES // 4
"""Largest size of the records' list of classes, which is an input of every later task."""
_RESERVE_BYTES = TASK_BYTES // 4
"""Reserved for what the service adds: names of resources, types, times."""


def size(value: Any) -> int:
    """Return the size of a value as ASCII JSON, its longest encoding, in bytes."""
    return len(json.dumps(value).encode())


def drop_if_too_large(
    artifacts: Sequence[Any], parameters: Sequence[Any], artifact: Any, key: str
) -> bool:
    """Drop `key` from the metadata of `artifact` if the outputs are too large; return if it did."""
    content = [
        {"name": output.name, "uri": output.uri, "metadata": output.metadata}
        for output in artifacts
    ]
    if size([content, list(parameters)]) <= TASK_BYTES - _RESERVE_BYTES:
        return False
    return artifact.metadata.pop(key, None) is not None


def mark_as_html(uri: str) -> None:
    """Set the content type of an object, so that a browser shows it instead of saving it.

    Does nothing outside Cloud Storage; STORAGE_EMULATOR_HOST is respected.
    """
    if not uri.startswith("gs://"):
        return
    from google.cloud import storage
    from google.cloud.storage.retry import DEFAULT_RETRY

    with as_input_error(f"setting the content type of {uri}", role="roles/storage.objectUser"):
        blob = storage.Blob.from_uri(uri, storage.Client(project=None))
        blob.content_type = "text/html"
        # The client does not retry a patch by default; this one is idempotent.
        blob.patch(retry=DEFAULT_RETRY)
