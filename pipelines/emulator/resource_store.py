"""Stores of resources: in memory, or in a folder that processes share."""

import contextlib
import fcntl
import pathlib
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from pipelines.emulator.api_error import ApiError


class MemoryStore(dict[str, Any]):
    """Resources of one process by ID."""

    lock = contextlib.nullcontext


class FolderStore(MutableMapping[str, Any]):
    """Resources by ID in a folder, shared by processes.

    To change a resource, read it, change it and set it again, all while holding `lock`.

    Args:
        folder: takes one file per resource; created by the first change.
        parse: converts a file's text to a resource.
        dump: converts a resource to text.
    """

    def __init__(
        self, folder: pathlib.Path, parse: Callable[[str], Any], dump: Callable[[Any], str]
    ) -> None:
        self._folder, self._parse, self._dump = folder, parse, dump

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from changing resources."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise ApiError(
                "FAILED_PRECONDITION", f"{self._folder} can't be written: {error.strerror}"
            ) from None

    def __getitem__(self, key: str) -> Any:
        path = self._folder / f"{key}.json"
        try:
            return self._parse(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise KeyError(key) from None
        # A file that was edited by hand may raise any error.
        except Exception as error:
            raise ApiError(
                "FAILED_PRECONDITION",
                f"{path} can't be read ({error}); repair it, or delete it with its resource",
            ) from None

    def __setitem__(self, key: str, resource: Any) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        half = self._folder / f".{key}"
        half.write_text(self._dump(resource), encoding="utf-8")
        half.replace(self._folder / f"{key}.json")

    def __delitem__(self, key: str) -> None:
        (self._folder / f"{key}.json").unlink()

    def __iter__(self) -> Iterator[str]:
        names = (one.stem for one in self._folder.glob("[!.]*.json"))
        # Sort numbers by value.
        return iter(sorted(names, key=lambda name: (len(name), name)))

    def __len__(self) -> int:
        return len(list(iter(self)))
