"""Files of a run as its own process sees them: in a folder, or under a gs:// URI.

In Cloud Storage by Google's client, without TensorFlow, which would take seconds to import.
STORAGE_EMULATOR_HOST leads it elsewhere.
"""

import logging
import os
import pathlib
from typing import Any

from components.cloud_errors import in_one_line
from trainer.data.storage import is_object, sha256


def write_first(uri: str, content: bytes) -> None:
    """Writes an object, to learn whether that can be done at all.

    Raises:
        InputError: there are no credentials or no such bucket, or they do not suffice.
    """
    with in_one_line(f"writing {uri}, of --pipeline-root", role="roles/storage.objectUser"):
        _blob(uri).upload_from_string(content)


def read(uri: str) -> bytes | None:
    """Return a file's content; None where there is none, or it can't be read, as the log says."""
    if not is_object(uri):
        path = pathlib.Path(uri)
        return path.read_bytes() if path.is_file() else None
    try:
        return _blob(uri).download_as_bytes()
    except Exception as error:
        logging.getLogger(__name__).warning("%s can't be read: %s", uri, error)
        return None


def checksums(uri: str) -> dict[str, str]:
    """Return a checksum of every file at or below `uri`, by path or URI.

    Local files are read for it, about 1 s a GB; of objects Cloud Storage keeps one.
    """
    if not is_object(uri):
        return {str(path): sha256(str(path)) for path in _walk(pathlib.Path(uri))}
    place = _blob(uri)
    name, found = place.name, place.bucket.list_blobs(prefix=place.name)
    return {
        f"gs://{place.bucket.name}/{blob.name}": f"{blob.size} {blob.crc32c}"
        for blob in found
        # Neither neighbors of the same beginning nor markers of folders.
        if blob.name == name or (blob.name.startswith(f"{name}/") and not blob.name.endswith("/"))
    }


def _walk(path: pathlib.Path) -> list[pathlib.Path]:
    if path.is_file():
        return [path]
    return [
        pathlib.Path(folder, name) for folder, _, names in os.walk(path) for name in sorted(names)
    ]


def _blob(uri: str) -> Any:
    from google.cloud import storage

    # Objects belong to a bucket, and no project is asked for.
    return storage.Blob.from_uri(uri, storage.Client(project=None))
