"""Tell from a listing whether a source has changed: no file of it is opened.

    found = fingerprint("images:/data/photos", data_dir="")
    found.digest  # of names, sizes and versions: changes when a file comes, goes or changes

Records that were written of a source with the same digest are as good as new ones.
"""

import glob
import hashlib
import inspect
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from trainer.data import storage
from trainer.data.schema import join
from trainer.data.sources import kind_of
from trainer.errors import InputError


class File(NamedTuple):
    """A file of a source.

    Attributes:
        path: below the folder that was listed; empty for the very file that was named.
        size: in bytes.
        version: text that changes with the content: a checksum, or the time of the last change.
    """

    path: str
    size: int
    version: str


class Fingerprint(NamedTuple):
    """The digest (hex) of a source, the files in it, and their bytes together."""

    digest: str
    files: int
    bytes: int


def is_pattern(location: str) -> bool:
    """Return whether a table's location stands for all files that match it."""
    return any(sign in location for sign in "*?[")


class Listing(Protocol):
    """Lists files, as `list_files` does."""

    def __call__(self, location: str, *, matching: bool) -> Iterable[File]: ...


def list_files(location: str, *, matching: bool = False) -> Iterator[File]:
    """Files of a folder and all below it, those that match a pattern, or one file, in order.

    Args:
        matching: `location` is a pattern; else brackets and the like are part of a name.

    Raises:
        OSError: there is no such file or folder, or it can't be read.
    """
    if storage.is_remote(location):
        yield from _by_tensorflow(location, matching)
    elif matching:
        for path in sorted(glob.glob(location, recursive=True)):  # noqa: PTH207 - a pattern
            yield _file(path, Path(path).stat())
    elif Path(location).is_dir():
        yield from _below(location, "")
    else:
        yield _file("", Path(location).stat())


def fingerprint(source: str, data_dir: str, listing: Listing = list_files) -> Fingerprint:
    """Return the fingerprint of a source.

    Args:
        source, data_dir: as `RecordOptions` has them.
        listing: of other places than `list_files` knows.

    Raises:
        InputError: no such source, nothing in it, or it can't be listed.
    """
    kind, place = kind_of(source)
    version, location = kind.version(place, data_dir)
    # Which examples a source has depends on its code, too, which may be the user's own.
    version += inspect.getsource(inspect.getmodule(kind) or kind)
    if not location:
        return _digest(version, [])
    matching = bool(kind.endings) and is_pattern(location)
    try:
        files = listing(location, matching=matching)
        if kind.endings and not matching:
            files = (
                one for one in files if not one.path or one.path.lower().endswith(kind.endings)
            )
        found = _digest(version, files)
    except OSError as error:
        raise InputError(
            f"source={source!r} can't be listed: {error.filename or location}: "
            f"{error.strerror or error}"
        ) from None
    if not found.files:
        raise InputError(f"source={source!r}: there is no file at {location}")
    return found


def _digest(name: str, files: Iterable[File]) -> Fingerprint:
    digest, count, size = hashlib.sha256(name.encode()), 0, 0
    for file in files:
        entry = f"\n{file.path}\0{file.size}\0{file.version}"
        # Names that are not UTF-8 are listed all the same, and rejected later.
        digest.update(entry.encode(errors="surrogateescape"))
        count += 1
        size += file.size
    return Fingerprint(digest.hexdigest()[:32], count, size)


def _below(folder: str, prefix: str) -> Iterator[File]:
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        path = f"{prefix}{entry.name}"
        # Links are followed, as the sources do; one that leads nowhere counts as it is.
        if entry.is_dir():
            yield from _below(entry.path, f"{path}/")
        elif entry.is_symlink() and not Path(entry.path).exists():
            yield _file(path, entry.stat(follow_symlinks=False))
        else:
            yield _file(path, entry.stat())


def _file(path: str, status: os.stat_result) -> File:
    return File(path, status.st_size, str(status.st_mtime_ns))


def _by_tensorflow(location: str, matching: bool) -> Iterator[File]:
    """Describe files that only TensorFlow can reach, with a request a file."""
    import tensorflow as tf

    gfile = tf.io.gfile
    try:
        if matching:
            paths = sorted(gfile.glob(location))
        elif gfile.isdir(location):
            paths = [
                join(folder, name)
                for folder, _, names in gfile.walk(location)
                for name in sorted(names)
            ]
        else:
            paths = [location]
        for path in paths:
            status = gfile.stat(path)
            yield File(
                path.removeprefix(location).lstrip("/"), status.length, str(status.mtime_nsec)
            )
    except tf.errors.OpError as error:
        raise OSError(str(error.message).partition("\n")[0]) from None
