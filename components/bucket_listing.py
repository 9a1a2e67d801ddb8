"""Files of a source in Cloud Storage, a thousand of them a request.

    for file in list_files("gs://my-bucket/photos"):
        file.path, file.size, file.version

TensorFlow's own way to a bucket would take a request for each.
"""

import re
from collections.abc import Iterator
from typing import Any

from components.cloud_errors import in_one_line
from trainer.data.write import fingerprint
from trainer.data.write.fingerprint import File

_FIELDS = "items(name,size,md5Hash,crc32c,generation),nextPageToken"


def list_files(location: str, *, matching: bool = False) -> Iterator[File]:
    """List files as `fingerprint.list_files` does; an object's version is its content's.

    Args:
        location: any; /gcs/BUCKET, where Vertex AI mounts it, is listed as the bucket, for the
            mount, too, asks once a file. STORAGE_EMULATOR_HOST leads to another server.
        matching: as there.

    Raises:
        InputError: the bucket can't be listed.
        OSError: as there.
    """
    place = re.sub(r"^/gcs/", "gs://", location)
    if not place.startswith("gs://"):
        yield from fingerprint.list_files(location, matching=matching)
        return
    from google.cloud import storage

    bucket, _, name = place.removeprefix("gs://").partition("/")
    with in_one_line(f"listing {place}", role="roles/storage.objectViewer"):
        # No project is asked for: listing a bucket needs none.
        for path, blob in blobs(storage.Client(project=None), bucket, name, matching):
            # A copy with the same content is no change. What was composed has no MD5.
            version = blob.md5_hash or f"{blob.crc32c} {blob.generation}"
            yield File(path, blob.size or 0, version)


def blobs(client: Any, bucket: str, name: str, matching: bool) -> Iterator[tuple[str, Any]]:
    """Yield objects in the order of their names, each with its path below the folder `name`."""

    def listed(prefix: str, **others: Any) -> Iterator[Any]:
        return client.list_blobs(bucket, prefix=prefix, fields=_FIELDS, **others)

    if matching:
        # Braces stand for a choice there, and for themselves in a source. Without a pattern, or
        # from a server that can't match, more files come and count, but none is missed.
        glob = {} if "{" in name else {"match_glob": name}
        for blob in listed(re.split(r"[*?\[]", name)[0], **glob):
            yield blob.name, blob
        return
    folder = f"{name.rstrip('/')}/" if name.strip("/") else ""
    empty = True
    for blob in listed(folder):
        # The console makes objects of this kind for folders.
        if not blob.name.endswith("/"):
            empty = False
            yield blob.name.removeprefix(folder), blob
    if empty:
        # A single file, then: of all names that begin with its own, it is the first.
        for blob in listed(name, max_results=1):
            if blob.name == name:
                yield "", blob
