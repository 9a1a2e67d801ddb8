"""Files under any URI: local ones by the operating system, others by tf.io.gfile.

An object in Cloud Storage appears, or replaces an older one, when its upload is complete, so it is
written under its final name. (Renaming an object means copying and deleting it, which is not
atomic.) In a folder, even in one under /gcs/, a killed process leaves a partial file, so a file is
written under another name and then renamed.

This module does not import TensorFlow for local files: the import would cost each process of a
pool of writers 4 s and 400 MB. etils.epath avoids that, too, but writes in place; fsspec needs a
second client of Cloud Storage beside TensorFlow's, which reads the records.
"""

import collections
import contextlib
import csv
import errno
import glob
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from vertex.errors import InputError, first_line

T = TypeVar("T")
R = TypeVar("R")

REMOTE_READERS = 32
"""Reads in flight against remote storage, to hide its latency of tens of ms."""

_FILE_ERRORS = ("NotFound", "InvalidArgument", "OutOfRange", "Unimplemented")
"""TensorFlow's errors that describe a remote file, or an unknown scheme. All others may be
temporary: a service that does not answer for minutes, a host name that is not resolved
(FailedPrecondition), credentials that are unavailable (PermissionDenied)."""

_PATH_ERRORS = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL,
     errno.ENAMETOOLONG, errno.EEXIST}
)  # fmt: skip
"""Errors that describe a local path. All others come from a disk, a network or this process, and
may be temporary: EIO, ESTALE, ETIMEDOUT, EMFILE, ENOMEM, EACCES from a mounted bucket."""
CHUNK = 1 << 20
_PAUSES = (0.1, 0.4, 1.6)
"""Seconds before each retry of a local path."""

_DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class IrregularFileError(OSError, InputError):
    """A path names a folder, a named pipe, a socket or a device instead of a file.

    A command reports it in one line, unless a reader catches OSError to add where it comes from.
    """

    def __str__(self) -> str:
        return (
            f"{self.filename} is {self.strerror}, but a folder, a named pipe, a socket or a "
            "device; give a file"
        )


def join(uri: str, *parts: str) -> str:
    """Join parts of a path to a folder's URI, whatever its scheme."""
    return "/".join([uri.rstrip("/"), *parts])


def is_remote(uri: str) -> bool:
    """Return true for gs:// and other schemes; /gcs/ is local, because it is a mounted folder."""
    return "://" in uri


def is_object(uri: str) -> bool:
    """Return true for gs:// URIs: a file in Cloud Storage is either complete or does not exist."""
    return uri.startswith("gs://")


def open_file(uri: str, mode: str) -> BinaryIO:
    """Open a file in mode "rb" or "wb"; in mode "rb", raise as `read`."""
    if is_remote(uri):
        return _import_gfile().GFile(uri, mode)
    if mode == "rb":
        return _call_with_retries(uri, lambda path: open(path, "rb", opener=_open_regular))
    return Path(uri).open(mode)  # type: ignore


def read(uri: str) -> bytes:
    """Return the whole content of a file.

    Raises:
        OSError: there is no such file, or it is an `IrregularFileError`.
        InputError: the storage refuses or does not answer; the file itself may be intact.
    """
    if is_remote(uri):
        with catch_read_errors(uri), open_file(uri, "rb") as file:
            return file.read()
    return _call_with_retries(uri, _read)


def size(uri: str) -> int:
    """Return the size of a file in bytes.

    Raises:
        OSError, InputError: as `read`.
    """
    if is_remote(uri):
        with catch_read_errors(uri):
            return _import_gfile().stat(uri).length
    return _call_with_retries(uri, _stat_regular).st_size


def _stat_regular(path: str) -> os.stat_result:
    status = os.stat(path)  # noqa: PTH116 - called for every example, as `_read`
    if not stat.S_ISREG(status.st_mode):
        raise IrregularFileError(errno.EINVAL, "not a regular file", path)
    return status


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file: a named pipe would wait for a writer, and a device may never end."""
    _stat_regular(path)
    return os.open(path, flags)


def _read(path: str) -> bytes:
    # Called for every example: creating a Path would cost as much as reading the file.
    with open(path, "rb", buffering=0, opener=_open_regular) as file:
        return file.read()


def _call_with_retries(path: str, function: Callable[[str], R]) -> R:
    """Call `function` with a local path; retry temporary errors, and then raise InputError."""
    for pause in (*_PAUSES, None):
        try:
            return function(path)
        except OSError as error:
            if error.errno in _PATH_ERRORS:
                raise
            if pause is None:
                raise InputError(
                    f"{path} can't be read ({error.strerror or error}), after "
                    f"{len(_PAUSES) + 1} attempts; fix that and run again"
                ) from None
            time.sleep(pause)
    raise AssertionError


def sha256(uri: str) -> str:
    """Return the sha256 (hex) of a file's content; raise as `read`."""
    if not is_remote(uri):
        return _call_with_retries(uri, _sha256)
    with catch_read_errors(uri):
        return _sha256(uri)


def _sha256(uri: str) -> str:
    digest = hashlib.sha256()
    with open_file(uri, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def write_atomically(uri: str, content: bytes, *, shared: bool = False) -> None:
    """Write a file that appears under its name only when it is complete.

    If `shared`, others may write the same file at the same time; the last writer wins.
    """
    if is_object(uri):
        with open_file(uri, "wb") as file:
            file.write(content)
        return
    partial = f"{uri}.{secrets.token_hex(4)}.partial" if shared else f"{uri}.partial"
    try:
        with open_file(partial, "wb") as file:
            file.write(content)
        replace(partial, uri)
    except BaseException:
        if shared:  # The name is random, so no later write would replace the file.
            remove(partial)
        raise


def write_text(uri: str, text: str) -> None:
    """Write a file atomically, and the folder that holds it."""
    _make_parent(uri)
    write_atomically(uri, text.encode())


def write_json(uri: str, content: Any) -> None:
    """Write `content` as indented JSON; raise ValueError for NaN and infinity."""
    write_text(uri, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_csv(uri: str, rows: list[dict[str, Any]]) -> None:
    """Write rows to a CSV file; a row may lack some of the columns."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(uri, text.getvalue())


def read_text(uri: str) -> str | None:
    """Return the text of a file, or None if it does not exist."""
    try:
        with catch_read_errors(uri), open_file(uri, "rb") as file:
            # Read to the end, not to the reported size, because another process may replace the
            # file in between.
            return b"".join(iter(lambda: file.read(CHUNK), b"")).decode()
    except FileNotFoundError:
        return None


def copy(file: str, uri: str) -> None:
    """Copy a file (a local path or any URI) to `uri` atomically."""
    if not is_remote(file):
        _stat_regular(file)
    _make_parent(uri)
    target = uri if is_object(uri) else f"{uri}.partial"
    _import_gfile().copy(file, target, overwrite=True)
    if target != uri:
        replace(target, uri)


@contextlib.contextmanager
def uploaded(uri: str) -> Iterator[str]:
    """Yield the path of a local file to write, which is copied to `uri` atomically on exit."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, uri.rpartition("/")[2]))
        yield file
        copy(file, uri)


def _make_parent(uri: str) -> None:
    if not is_object(uri):
        make_folder(uri.rpartition("/")[0])


def list_entries(uri: str) -> list[tuple[str, bool]]:
    """Return the entries of a folder as sorted pairs: (name, whether it is a folder)."""
    if not is_remote(uri):
        return _call_with_retries(uri, lambda path: sorted(iter_entries(path)))
    with catch_read_errors(uri):
        names = [name for name in _import_gfile().listdir(uri) if name.strip("/")]
    if is_object(uri):
        # The names of folders end in a slash; is_folder would cost a request per entry.
        return sorted((name.rstrip("/"), name.endswith("/")) for name in names)
    return sorted((name.rstrip("/"), is_folder(f"{uri.rstrip('/')}/{name}")) for name in names)


def iter_entries(uri: str) -> Iterator[tuple[str, bool]]:
    """Yield the entries of a folder as `list_entries` does, but unsorted, and lazily if local."""
    if is_remote(uri):
        yield from list_entries(uri)
        return
    with os.scandir(uri) as entries:
        for entry in entries:
            # A link to itself is not a folder, but is_dir of its entry would raise an error.
            yield entry.name, Path(entry).is_dir() if entry.is_symlink() else entry.is_dir()


def list_matching(pattern: str) -> list[str]:
    """Return the files and folders that match a pattern or a plain URI."""
    if not is_remote(pattern):
        return glob.glob(pattern, recursive=True)  # noqa: PTH207 - a pattern, not a folder
    with contextlib.suppress(FileNotFoundError), catch_read_errors(pattern):
        return _import_gfile().glob(pattern)
    return []


def exists(uri: str) -> bool:
    if not is_remote(uri):
        return Path(uri).exists()
    with catch_read_errors(uri):
        return _import_gfile().exists(uri)


def is_folder(uri: str) -> bool:
    return _import_gfile().isdir(uri) if is_remote(uri) else Path(uri).is_dir()


def make_folder(uri: str) -> None:
    if is_remote(uri):
        _import_gfile().makedirs(uri)
    else:
        Path(uri).mkdir(parents=True, exist_ok=True)


def remove(uri: str) -> None:
    """Remove a file, if it exists."""
    if not is_remote(uri):
        Path(uri).unlink(missing_ok=True)
    elif exists(uri):
        _import_gfile().remove(uri)


def remove_folder(uri: str) -> None:
    """Remove a folder and everything in it, if it exists."""
    if not is_remote(uri):
        shutil.rmtree(uri, ignore_errors=True)
    elif is_folder(uri):
        _import_gfile().rmtree(uri)


def replace(source: str, target: str) -> None:
    """Rename a file, replacing an older one."""
    if is_remote(target):
        _import_gfile().rename(source, target, overwrite=True)
    else:
        Path(source).replace(target)


def read_ahead(
    function: Callable[[T], R], items: Iterable[T], *, uri: str = "", threads: int = 0
) -> Iterator[R]:
    """Map a function over items in several threads; results keep the items' order.

    Args:
        uri: folder that the function reads. If it is local, this thread does the work: more
            threads gain nothing, because Python takes most of the time.
        threads: number of threads; 0: as many as suit `uri`.
    """
    threads = threads or (REMOTE_READERS if is_remote(uri) else 1)
    if threads == 1:
        yield from map(function, items)
        return
    window: collections.deque[Future[R]] = collections.deque()
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            window.append(pool.submit(function, item))
            if len(window) > 2 * threads:
                yield window.popleft().result()
        while window:
            yield window.popleft().result()


@contextlib.contextmanager
def catch_write_errors(uri: str) -> Iterator[None]:
    """Convert a failure to write to `uri` to an InputError with one line."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError):
            text, is_full = str(error.strerror or error), error.errno in _DISK_FULL_ERRORS
        elif _is_tensorflow(error):
            text, name = first_line(error), type(error).__name__
            is_full = "No space left" in text or name == "ResourceExhaustedError"
        else:
            raise
        if is_full:
            raise InputError(
                f"no space left to write to {uri} ({text}); free some space and run again"
            ) from None
        raise InputError(f"can't write to {uri}: {text}") from None


@contextlib.contextmanager
def catch_read_errors(uri: str) -> Iterator[None]:
    """Convert TensorFlow's errors to OSError if the file is at fault, else to InputError.

    Otherwise a picture that can't be read at the moment would count as unusable and be left out.
    """
    try:
        yield
    except Exception as error:
        if not _is_tensorflow(error):
            raise
        text, name = first_line(error), type(error).__name__.removesuffix("Error")
        if name not in _FILE_ERRORS:
            raise InputError(f"{uri} can't be read: {text}; run again") from None
        kind = FileNotFoundError if name == "NotFound" else OSError
        raise kind(errno.EIO, text) from None


def _is_tensorflow(error: Exception) -> bool:
    return type(error).__module__.startswith("tensorflow")


def _import_gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile
