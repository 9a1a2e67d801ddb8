"""Access to the files of a run, in a folder or under a gs:// URI, without TensorFlow.

Importing TensorFlow would take seconds, so Cloud Storage is accessed with Google's client, which
STORAGE_EMULATOR_HOST redirects.
"""

import logging
import pathlib
from typing import Any

from components.vertex.cloud_errors import as_input_error
from trainer.data import storage
from trainer.data.storage import is_object
from trainer.errors import InputError
from vertex_emulator.engine.output_cache import Journal


def write_first(uri: str, content: bytes) -> bool:
    """Write a run's first object; return False if it exists.

    Raises InputError if the bucket can't be written.
    """
    from google.api_core.exceptions import PreconditionFailed

    with as_input_error(f"writing {uri}, of --pipeline-root", role="roles/storage.objectUser"):
        try:
            _open_blob(uri).upload_from_string(content, if_generation_match=0)
        except PreconditionFailed:
            return False
    return True


def read(uri: str, client: Any = None) -> bytes | None:
    """Return a file's content; None if it does not exist or, with a warning, can't be read."""
    if not is_object(uri):
        path = pathlib.Path(uri)
        return path.read_bytes() if path.is_file() else None
    from google.api_core.exceptions import NotFound

    try:
        return _open_blob(uri, client).download_as_bytes()
    except NotFound:
        return None
    except Exception as error:
        logging.getLogger(__name__).warning("%s can't be read: %s", uri, error)
        return None


def check(folder: str, uri: str) -> None:
    """Raise InputError if a file has changed since a task of the run in `folder` wrote it.

    Objects are not checked: Cloud Storage does that itself.
    """
    recorded = "" if is_object(uri) else Journal(pathlib.Path(folder)).checksum_of(uri)
    if not recorded:
        return
    try:
        if storage.sha256(uri) == recorded:
            return
        problem = "is damaged: its SHA-256 has changed"
    except FileNotFoundError:
        problem = "is missing"
    raise InputError(
        f"{uri} {problem} since its run wrote it; restore the file, or run the recipe again"
    )


def _open_blob(uri: str, client: Any = None) -> Any:
    from google.cloud.storage import Blob, Client

    # Access to objects needs no project.
    return Blob.from_uri(uri, client or Client(project=None))
