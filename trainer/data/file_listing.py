"""List the files of a folder, a pattern or a bucket, sorted by name.

    for file in list_files("gs://my-bucket/photos"):
        file.path, file.size, file.md5

Cloud Storage returns a thousand objects per request, with the MD5 of their content, so no object
is read; several folders are listed in parallel. TensorFlow's API sends a request per object.
"""

import binascii
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainer.data import storage
from trainer.data.storage import join
from vertex.errors import InputError, google_errors_as_input

LISTERS = 8
"""Requests in flight: fewer than the connections that google-cloud-storage keeps open."""
_FEW = 3
"""Largest number of folders that may be splits, whose subfolders are then listed in parallel."""
_FIELDS = "prefixes,items(name,size,md5Hash,crc32c,generation),nextPageToken"


class File(NamedTuple):
    """A file of a source."""

    path: str  # path relative to the listed folder; empty if a single file is listed
    size: int  # in bytes
    version: str  # changes with the content: a checksum, or the time of the last change
    md5: bytes = b""  # MD5 of the content, if the storage reports it


def is_pattern(location: str) -> bool:
    """Return whether a table's location is a pattern that matches files, not the name of one.

    In a bucket, as for gcloud, each wildcard is part of a pattern.
    """
    wild = not set("*?[").isdisjoint(location)
    return wild and (storage.is_remote(location) or not storage.exists(location))


def list_files(location: str, *, matching: bool = False) -> Iterator[File]:
    """List a folder recursively, the files that match a pattern, or a single file.

    Args:
        location: a path or URI. /gcs/BUCKET, where Vertex AI mounts a bucket, is listed as the
            bucket: the mount sends a request per file. STORAGE_EMULATOR_HOST selects another
            server.
        matching: `location` is a pattern; otherwise wildcards are part of a name.

    Raises:
        InputError: a bucket can't be listed, or a link leads to a folder that contains it.
        OSError: `location` is neither a file nor a folder.
    """
    uri = re.sub(r"^/gcs/", "gs://", location)
    if storage.is_object(uri):
        remedy = "the run's account needs roles/storage.objectViewer"
        with google_errors_as_input(f"{uri} can't be listed", remedy):
            list_function = list_objects if matching else _list_bucket
            yield from list_function(open_client(), uri)
    elif matching:
        for path in sorted(storage.list_matching(location)):
            yield _stat_file(path, path)
    elif storage.is_folder(location):
        yield from _walk_folder(location, "")
    else:
        yield _stat_file(location, "")


def open_client() -> Any:
    """Return a client that uses the account of this process."""
    from google.cloud import storage as cloud_storage

    # Listing a bucket needs no project.
    return cloud_storage.Client(project=None)


def list_objects(client: Any, uri: str) -> Iterator[File]:
    """Yield the objects that match a pattern, by name; raise the errors of Google's client."""
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    # Braces are alternatives in match_glob, but literal in a source. Without match_glob, or from a
    # server that ignores it, more files are listed, but none is missed.
    pattern = {} if "{" in name else {"match_glob": name}
    prefix = re.split(r"[*?\[]", name)[0]
    for page in client.list_blobs(bucket, prefix=prefix, fields=_FIELDS, **pattern).pages:
        yield from _unpack_page(_pack_page(page, ""))


def _list_bucket(client: Any, uri: str) -> Iterator[File]:
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    list_blobs = functools.partial(client.list_blobs, bucket, fields=_FIELDS)
    folder = f"{name.rstrip('/')}/" if name.strip("/") else ""
    bounds = [None, *_list_bounds(list_blobs, folder), None]

    def list_part(number: int) -> list[bytes]:
        begin, end = bounds[number : number + 2]
        pages = list_blobs(prefix=folder, start_offset=begin, end_offset=end).pages
        return [_pack_page(page, folder) for page in pages]

    empty = True
    for pages in storage.read_ahead(list_part, range(len(bounds) - 1), threads=LISTERS):
        for page in pages:
            empty = empty and not page
            yield from _unpack_page(page)
    if empty:
        # A single file: its name sorts first among the names that begin with it.
        for blob in list_blobs(prefix=name, max_results=1):
            if blob.name == name:
                yield from _unpack_page(_pack_page([blob], name))


def _list_bounds(list_blobs: Callable[..., Any], folder: str) -> list[str]:
    """Return sorted names that cut the listing into ranges to list in parallel."""

    def list_folders(prefix: str) -> list[str]:
        listing = list_blobs(prefix=prefix, delimiter="/")
        next(listing.pages, None)
        return sorted(listing.prefixes)

    folders = list_folders(folder)
    if len(folders) > _FEW:
        return folders
    second = [inner for outer in folders for inner in list_folders(outer)]
    return sorted([*folders, *second])


def _pack_page(page: Iterable[Any], folder: str) -> bytes:
    """Return a page of a listing as text, which needs a tenth of the memory of the objects."""
    lines = []
    for blob in page:
        # The console creates objects with a trailing slash for folders.
        if not blob.name.endswith("/"):
            # Replacing an object by a copy is not a change. Composed objects have no MD5.
            version = blob.md5_hash or f"{blob.crc32c} {blob.generation}"
            # Names of objects contain no line feed.
            lines += [blob.name.removeprefix(folder), str(blob.size or 0), version]
    return "\n".join(lines).encode()


def _unpack_page(page: bytes) -> Iterator[File]:
    lines = iter(page.decode().split("\n"))
    for path, size, version in zip(lines, lines, lines, strict=False):
        md5 = b"" if " " in version else binascii.a2b_base64(version)
        yield File(path, int(size), version, md5)


def _walk_folder(folder: str, prefix: str, parents: Sequence[str] = ()) -> Iterator[File]:
    parents = (*parents, folder)
    entries = storage.list_entries(folder)
    for path in sorted(f"{name}/" if is_folder else name for name, is_folder in entries):
        if path.endswith("/"):
            inner = join(folder, path[:-1])
            # A link may lead back to a folder above it.
            real = Path(inner).resolve() if Path(inner).is_symlink() else None
            if real and any(Path(ancestor).resolve().is_relative_to(real) for ancestor in parents):
                raise InputError(f"{inner} is a link to a folder that contains it; remove the link")
            yield from _walk_folder(inner, f"{prefix}{path}", parents)
        else:
            yield _stat_file(join(folder, path), f"{prefix}{path}")


def _stat_file(uri: str, path: str) -> File:
    if storage.is_remote(uri):
        return File(path, storage.size(uri), "")
    # For a broken link, use the link's own status.
    status = os.stat(uri, follow_symlinks=os.path.exists(uri))  # noqa: PTH110, PTH116 - of millions
    return File(path, status.st_size, str(status.st_mtime_ns))
