"""Resources in memory and, one JSON file each, in a folder."""

import pathlib
from typing import Any


class ResourceFiles(dict[str, Any]):
    """Holds messages by their ID.

    Args:
        folder: has the messages of earlier processes; None: memory alone.
        kind: type of the messages, of google.cloud.aiplatform_v1.types.
    """

    def __init__(self, folder: pathlib.Path | None, kind: str) -> None:
        super().__init__()
        self._folder = folder
        for path in sorted(folder.glob("*.json")) if folder else ():
            from google.cloud.aiplatform_v1 import types

            super().__setitem__(path.stem, getattr(types, kind).from_json(path.read_text()))

    def next_id(self) -> str:
        """Return a number that no message has for its ID, as text."""
        return str(max(map(int, self), default=0) + 1)

    def __setitem__(self, resource_id: str, message: Any) -> None:
        """Keep a message; a change of one that is kept is written by setting it again."""
        super().__setitem__(resource_id, message)
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
            half = self._folder / f".{resource_id}"
            half.write_text(type(message).to_json(message), encoding="utf-8")
            half.replace(self._folder / f"{resource_id}.json")

    def __delitem__(self, resource_id: str) -> None:
        super().__delitem__(resource_id)
        if self._folder:
            (self._folder / f"{resource_id}.json").unlink()
