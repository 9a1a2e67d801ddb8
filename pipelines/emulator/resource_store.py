"""Resources in memory, or in a folder that processes may share."""

import contextlib
import fcntl
import pathlib
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from pipelines.emulator.api_error import ApiError


class MemoryStore(dict[str, Any]):
    """Holds resources by their ID, for one process."""

    lock = contextlib.nullcontext


class FolderStore(MutableMapping[str, Any]):
    """Holds resources by their ID, for all processes.

    A resource that has changed is set again; `lock` is held from reading it to setting it.

    Args:
        folder: takes a file a resource; made by the first change.
        parse: returns a resource from its file's text.
        dump: returns the text.
    """

    def __init__(
        self, folder: pathlib.Path, parse: Callable[[str], Any], dump: Callable[[Any], str]
    ) -> None:
        self._folder, self._parse, self._dump = folder, parse, dump

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Let no other process change a resource."""
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
        # Whatever is wrong with it: the file may have been edited.
        except Exception as error:
            raise ApiError(
                "FAILED_PRECONDITION",
                f"{path} can't be read ({error}); mend it, or take it away with its resource",
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
        # Numbers in their order.
        return iter(sorted(names, key=lambda name: (len(name), name)))

    def __len__(self) -> int:
        return len(list(iter(self)))
