"""Stores of resources: in memory, or in a folder that processes share."""

import contextlib
import dataclasses
import fcntl
import functools
import json
import logging
import os
import pathlib
import time
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from vertex import checked_json
from vertex.emulator import files
from vertex.emulator.api_error import ApiError, invalid
from vertex.emulator.environment import LOCAL_PARENT

_LONGEST_FILE_NAME = 255
_LOCK_SECONDS = 30.0
"""Longest wait for another process, which holds the lock for milliseconds unless it hangs."""
_POLL_SECONDS = 0.02


class MemoryStore(dict[str, Any]):
    """Resources of one process by name."""

    lock = contextlib.nullcontext


@dataclasses.dataclass(eq=False)
class FolderStore(MutableMapping[str, Any]):
    """Resources by name in a folder, shared by processes.

    A resource's name plus `.json` is the path of its file, without the parent that all resources
    of runs on this machine have. To change a resource, read it, change it and set it again, all
    while holding `lock`.
    """

    folder: pathlib.Path  # created by the first change
    collection: str  # the part of the names before the ID, such as models
    parse: Callable[[str], Any]  # converts a file's text to a resource
    dump: Callable[[Any], str]  # converts a resource to text
    name_of: Callable[[Any], str] | None = None  # returns a resource's name, if it has one

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from changing resources."""
        folder = self.folder / self.collection
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Only for the owner: others could otherwise hold the lock for ever.
            lock = os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT, mode=0o600)
            with os.fdopen(lock, "w"):
                _acquire(lock, folder)
                yield
        except OSError as error:
            raise ApiError(
                "FAILED_PRECONDITION", f"{folder} can't be written: {error.strerror}"
            ) from None

    def __getitem__(self, key: str) -> Any:
        path = self._path(key)
        # IDs are shorter than a file's name may be.
        if len(path.name) > _LONGEST_FILE_NAME:
            raise KeyError(key)
        try:
            resource = _copy(_load(path, files.stamp(path), self.parse))
            if self.name_of and (name := self.name_of(resource)) != key:
                raise ValueError(f"it describes {name}")
            return resource
        except FileNotFoundError:
            raise KeyError(key) from None
        # A file that was edited by hand may raise any error.
        except Exception as error:
            raise ApiError(
                "FAILED_PRECONDITION",
                f"{path} can't be read ({error}); restore it, or delete it with its resource",
            ) from None

    def __setitem__(self, key: str, resource: Any) -> None:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_checked(path, json.loads(self.dump(resource)))

    def __delitem__(self, key: str) -> None:
        self._path(key).unlink()

    def __iter__(self) -> Iterator[str]:
        prefix, file = f"{LOCAL_PARENT}/{self.collection}", f"{self.collection}/[!.]*.json"
        names = [f"{prefix}/{path.stem}" for path in self.folder.glob(file)]
        for path in self.folder.glob(f"projects/*/locations/*/{file}"):
            names.append(str(path).removeprefix(f"{self.folder}/").removesuffix(".json"))
        # Sort numbers by value.
        return iter(sorted(names, key=lambda name: (len(name), name)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _path(self, name: str) -> pathlib.Path:
        if ".." in name.split("/"):
            raise invalid(f"{name} is not the name of a resource")
        return self.folder / f"{name.removeprefix(f'{LOCAL_PARENT}/')}.json"


@functools.lru_cache(maxsize=512)
def _load(path: pathlib.Path, stamp: tuple[int, ...], parse: Callable[[str], Any]) -> Any:
    """Read a resource's file, whose content `stamp` identifies: a run takes 10 ms to parse."""
    return parse(json.dumps(checked_json.parse(files.read(path))))


def _copy(resource: Any) -> Any:
    """Return a copy of JSON and messages, several times faster than by `copy.deepcopy`."""
    if isinstance(resource, dict):
        return {key: _copy(value) for key, value in resource.items()}
    if isinstance(resource, list):
        return [*map(_copy, resource)]
    return type(resource)(resource) if hasattr(resource, "_pb") else resource


@functools.cache
def warn(message: str) -> None:
    """Log a warning, each only once."""
    logging.getLogger(__name__).warning(message)


def _acquire(lock: int, folder: pathlib.Path) -> None:
    """Wait for a folder's lock, a file descriptor; raise ApiError if another process hangs."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ApiError(
                    "FAILED_PRECONDITION",
                    f"another process has held {folder / '.lock'} for {_LOCK_SECONDS:g} s; end it",
                ) from None
        time.sleep(_POLL_SECONDS)
