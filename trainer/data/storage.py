"""Files under any URI: local ones straight from the operating system, others by tf.io.gfile.

A process that only touches local files never imports TensorFlow here; a pool of writing
processes would otherwise pay 4 s and 400 MB for each of them.
"""

import collections
import contextlib
import errno
import glob
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from trainer.errors import InputError, first_line

T = TypeVar("T")
R = TypeVar("R")

REMOTE_READERS = 32
"""Reads in flight against remote storage, whose latency (tens of ms) would else rule."""

_OF_THE_FILE = ("NotFound", "InvalidArgument", "OutOfRange")
"""TensorFlow's errors that say something of a remote file. All others may be gone tomorrow:
of a service that is silent for minutes, of a host name that is not resolved (FailedPrecondition),
of credentials that are unavailable (PermissionDenied)."""

_OF_THE_PATH = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL,
     errno.ENAMETOOLONG, errno.EEXIST}
)  # fmt: skip
"""Errors that say what a local path is. All others, of a disk, a network or this process, may
pass: EIO, ESTALE, ETIMEDOUT, EMFILE, ENOMEM, EACCES of a mounted bucket."""
_CHUNK = 1 << 20
_PAUSES = (0.1, 0.4, 1.6)
"""Seconds before a local path is tried again."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_remote(uri: str) -> bool:
    """Return true for gs:// and the like; /gcs/ is a mounted folder."""
    return "://" in uri


def is_object(uri: str) -> bool:
    """Return true for Cloud Storage's own URIs: such a file is whole, or was never there."""
    return uri.startswith("gs://")


def open_file(uri: str, mode: str) -> BinaryIO:
    """Opens `uri` for "rb" or "wb"; raises as `read` for "rb"."""
    if is_remote(uri):
        return _gfile().GFile(uri, mode)
    if mode == "rb":
        return _tried(uri, lambda path: Path(path).open("rb"))
    return Path(uri).open(mode)  # type: ignore


def read(uri: str) -> bytes:
    """Return the whole content of a file.

    Raises:
        OSError: there is no such file.
        InputError: the storage refuses or is silent, which says nothing of the file.
    """
    if is_remote(uri):
        with _os_errors(uri), open_file(uri, "rb") as file:
            return file.read()
    return _tried(uri, _read)


def size(uri: str) -> int:
    """Return bytes of a file; raise as `read`, OSError also for what is none, as a named pipe."""
    if is_remote(uri):
        with _os_errors(uri):
            return _gfile().stat(uri).length
    status = _tried(uri, os.stat)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return status.st_size


def _read(path: str) -> bytes:
    # Called for every example: a Path would cost as much as the reading.
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()


def _tried(path: str, function: Callable[[str], R]) -> R:
    """Call `function` with a local path, again after errors that may pass: then InputError."""
    for pause in (*_PAUSES, None):
        try:
            return function(path)
        except OSError as error:
            if error.errno in _OF_THE_PATH:
                raise
            if pause is None:
                raise InputError(
                    f"{path} can't be read ({error.strerror or error}), tried "
                    f"{len(_PAUSES) + 1} times; mend that and run again"
                ) from None
            time.sleep(pause)
    raise AssertionError


def sha256(uri: str) -> str:
    """Return the sha256 (hex) of a file's content; raises as `read` for a local one."""
    return _sha256(uri) if is_remote(uri) else _tried(uri, _sha256)


def _sha256(uri: str) -> str:
    digest = hashlib.sha256()
    with open_file(uri, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def write_whole(uri: str, content: bytes, *, shared: bool = False) -> None:
    """Writes a file that appears under its name only when it is whole.

    Args:
        shared: whether others may write the same file at the same time. One of them is the last.
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
        if shared:  # Another's will have another name, and never take this one's place.
            remove(partial)
        raise


def scan(uri: str) -> list[tuple[str, bool]]:
    """Return the entries of a folder, sorted: (name, is it a folder)."""
    if not is_remote(uri):
        return _tried(uri, lambda path: sorted(entries(path)))
    names = [name for name in _gfile().listdir(uri) if name.strip("/")]
    if is_object(uri):
        # Folders come with a slash; asking for each entry would cost a request each.
        return sorted((name.rstrip("/"), name.endswith("/")) for name in names)
    return sorted((name.rstrip("/"), is_folder(f"{uri.rstrip('/')}/{name}")) for name in names)


def entries(uri: str) -> Iterator[tuple[str, bool]]:
    """Yield the entries of a folder as `scan` has them, in any order, local ones as they come."""
    if is_remote(uri):
        yield from scan(uri)
        return
    with os.scandir(uri) as found:
        for entry in found:
            yield entry.name, entry.is_dir()


def matching(pattern: str) -> list[str]:
    """Return the files and folders that a pattern, or a plain URI, means."""
    if is_remote(pattern):
        return _gfile().glob(pattern)
    return glob.glob(pattern, recursive=True)  # noqa: PTH207 - a pattern, not a folder


def exists(uri: str) -> bool:
    return _gfile().exists(uri) if is_remote(uri) else Path(uri).exists()


def is_folder(uri: str) -> bool:
    return _gfile().isdir(uri) if is_remote(uri) else Path(uri).is_dir()


def make_folder(uri: str) -> None:
    if is_remote(uri):
        _gfile().makedirs(uri)
    else:
        Path(uri).mkdir(parents=True, exist_ok=True)


def remove(uri: str) -> None:
    """Removes a file, if it is there."""
    if not is_remote(uri):
        Path(uri).unlink(missing_ok=True)
    elif exists(uri):
        _gfile().remove(uri)


def remove_folder(uri: str) -> None:
    """Removes a folder with all that is in it, if it is there."""
    if not is_remote(uri):
        shutil.rmtree(uri, ignore_errors=True)
    elif is_folder(uri):
        _gfile().rmtree(uri)


def replace(source: str, target: str) -> None:
    """Renames a file, over an older one too."""
    if is_remote(target):
        _gfile().rename(source, target, overwrite=True)
    else:
        Path(source).replace(target)


def read_ahead(
    function: Callable[[T], R], items: Iterable[T], *, uri: str = "", threads: int = 0
) -> Iterator[R]:
    """`map` in `threads`, or as many as reading from `uri` pays; results keep the order of items.

    For local files more than one, this one, gain nothing: most of the time is Python's own.
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
def writing(uri: str) -> Iterator[None]:
    """Turns a failure to write to `uri` into one clear line."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError):
            text, is_full = str(error.strerror or error), error.errno in _FULL
        elif _is_tensorflow(error):
            text, name = first_line(error), type(error).__name__
            is_full = "No space left" in text or name == "ResourceExhaustedError"
        else:
            raise
        if is_full:
            raise InputError(
                f"no room to write to {uri} ({text}); free some space and run again: "
                "shards that are whole are kept"
            ) from None
        raise InputError(f"can't write to {uri}: {text}") from None


@contextlib.contextmanager
def _os_errors(uri: str) -> Iterator[None]:
    """Turns TensorFlow's errors of reading `uri` into OSError or, for the storage's, InputError.

    A picture that could not be had would else be one that can't be used, and left out.
    """
    try:
        yield
    except Exception as error:
        if not _is_tensorflow(error):
            raise
        text, name = first_line(error), type(error).__name__.removesuffix("Error")
        if name not in _OF_THE_FILE:
            raise InputError(f"{uri} can't be read: {text}; run again") from None
        kind = FileNotFoundError if name == "NotFound" else OSError
        raise kind(errno.EIO, text) from None


def _is_tensorflow(error: Exception) -> bool:
    return type(error).__module__.startswith("tensorflow")


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile
