"""Access to the files of a run, in a folder or under a gs:// URI, without TensorFlow.

Importing TensorFlow would take seconds, so Cloud Storage is accessed with Google's client, which
STORAGE_EMULATOR_HOST redirects.
"""

import logging
import pathlib
from typing import Any

from trainer.data import storage
from trainer.data.storage import is_object
from vertex.client.cloud_errors import as_input_error
from vertex.emulator.engine.output_cache import Journal
from vertex.errors import InputError


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

    Raise it, too, for what is not a regular file, such as a named pipe, whose end may never come.
    Objects are not checked: Cloud Storage does that itself.
    """
    if is_object(uri):
        return
    recorded = Journal(pathlib.Path(folder)).checksum_of(uri)
    problem = ""
    try:
        storage.size(uri)
        if recorded and storage.sha256(uri) != recorded:
            problem = "is damaged: its SHA-256 has changed since its run wrote it"
    except FileNotFoundError:
        problem = recorded and "is missing since its run wrote it"
    except OSError as error:
        problem = f"can't be read ({error.strerror})"
    if problem:
        raise InputError(f"{uri} {problem}; restore the file, or run the recipe again")


def _open_blob(uri: str, client: Any = None) -> Any:
    from google.cloud.storage import Blob, Client

    # Access to objects needs no project.
    return Blob.from_uri(uri, client or Client(project=None))
