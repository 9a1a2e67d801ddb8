"""The tasks of a run that have succeeded, kept so that the run can be resumed."""

import pathlib
from collections.abc import Mapping
from typing import Any

from pipelines.local.cache import read_entry, write_entry

_FOLDER_NAME = ".completed"


class Journal:
    """A store of one entry per task in a run's folder, also of its earlier attempts."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._folder = directory / _FOLDER_NAME
        self._intact = True

    @property
    def tasks(self) -> list[str]:
        """Return the stored tasks outside loops, in the order in which they ended."""
        paths = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        return [path.stem for path in paths]

    def put(self, task_path: str, outputs: Mapping[str, Any]) -> None:
        """Store the outputs of a task."""
        write_entry(self._folder / f"{task_path}.json", outputs)

    def get(self, task_path: str) -> dict[str, Any] | None:
        """Return the outputs of a task that an earlier attempt completed.

        Return None for the first task whose entry is missing or damaged, and for all later tasks,
        which may have used outputs that will now change.
        """
        outputs = None
        if self._intact:
            # A later task may have added files: a job's folder fills while it trains.
            outputs = read_entry(self._folder / f"{task_path}.json", may_have_grown=True)
        self._intact = outputs is not None
        return outputs
