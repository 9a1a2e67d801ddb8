"""Files under any URI: local ones straight from the operating system, others by tf.io.gfile.

A process that only touches local files never imports TensorFlow here; a pool of writing
processes would otherwise pay 4 s and 400 MB for each of them.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from trainer.errors import InputError

T = TypeVar("T")
R = TypeVar("R")

READERS = 32
"""Reads in flight against remote storage, whose latency (tens of ms) would else rule."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_remote(uri: str) -> bool:
    """True for gs:// and the like; /gcs/ is a mounted folder."""
    return "://" in uri


def open_file(uri: str, mode: str) -> BinaryIO:
    """Opens `uri` for "rb" or "wb"."""
    return _gfile().GFile(uri, mode) if is_remote(uri) else Path(uri).open(mode)  # type: ignore


def read(uri: str) -> bytes:
    """The whole content of a file."""
    with open_file(uri, "rb") as file:
        return file.read()


def size(uri: str) -> int:
    """Bytes of a file; raises OSError for what is not one, such as a named pipe."""
    if is_remote(uri):
        return _gfile().stat(uri).length
    status = Path(uri).stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return status.st_size


def write_whole(uri: str, content: bytes) -> None:
    """Writes a file that appears under its name only when it is whole."""
    partial = f"{uri}.partial"
    with open_file(partial, "wb") as file:
        file.write(content)
    replace(partial, uri)


def scan(uri: str) -> list[tuple[str, bool]]:
    """The entries of a folder, sorted: (name, is it a folder)."""
    if not is_remote(uri):
        with os.scandir(uri) as entries:
            return sorted((entry.name, entry.is_dir()) for entry in entries)
    # Object stores list folders with a slash; asking for each entry would cost a request each.
    names = _gfile().listdir(uri)
    return sorted((name.rstrip("/"), name.endswith("/")) for name in names if name.strip("/"))


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


def read_ahead(function: Callable[[T], R], items: Iterable[T], *, remote: bool) -> Iterator[R]:
    """`map`, with `READERS` calls in flight where `remote`; results keep the order of items."""
    if not remote:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(READERS) as threads:
        window: list[Any] = []
        for item in items:
            window.append(threads.submit(function, item))
            if len(window) >= 2 * READERS:
                yield window.pop(0).result()
        for future in window:
            yield future.result()


@contextlib.contextmanager
def writing(uri: str) -> Iterator[None]:
    """Turns a failure to write to `uri` into one clear line."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise InputError(_full(uri, str(error.strerror))) from None
        raise InputError(f"can't write to {uri}: {error.strerror or error}") from None
    except Exception as error:
        if not type(error).__module__.startswith("tensorflow"):
            raise
        text = str(error).splitlines()[0]
        if "No space left" in text or type(error).__name__ == "ResourceExhaustedError":
            raise InputError(_full(uri, text)) from None
        raise InputError(f"can't write to {uri}: {text}") from None


def _full(uri: str, reason: str) -> str:
    return (
        f"no room to write to {uri} ({reason}); free some space and run again: "
        "shards that are whole are kept"
    )


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile
