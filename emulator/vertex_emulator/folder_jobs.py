"""Jobs whose folders hold their state, which other processes read."""

import dataclasses
import json
import os
import pathlib
import re
import time
from typing import Any, ClassVar, TypeVar

from vertex_emulator import job_state, messages
from vertex_emulator.api_error import not_found
from vertex_emulator.background_jobs import BackgroundJob, BackgroundJobs, end_killed_job
from vertex_emulator.resource_store import warn
from vertex_facts import UsageError
from vertex_facts.jobs import TASK_LABEL

CANCEL_FILE_NAME = "cancel"
"""File in a job's folder by which another process cancels the job."""
_DELETED = "deleted"
_POLL_SECONDS = 0.05


class FolderJob(BackgroundJob):
    """A job that locks its folder while it runs."""

    def __init__(self, message: Any, directory: pathlib.Path) -> None:
        super().__init__(message)
        self.directory = directory  # the job's folder, which other processes read
        self._lock = job_state.lock(directory)

    def wait_for_cancel(self) -> bool:
        """Wait a moment; return whether this process or another has asked the job to end."""
        return self.cancelled.wait(_POLL_SECONDS) or (self.directory / CANCEL_FILE_NAME).exists()

    def unlock(self) -> None:
        """Unlock the folder: the stored state is final."""
        os.close(self._lock)


J = TypeVar("J", bound=FolderJob)


@dataclasses.dataclass(eq=False, kw_only=True)
class FolderJobs(BackgroundJobs[J]):
    """A service of jobs that also finds the jobs of other processes, by their folders."""

    # Has folders of runs, with one folder per job in their logs; None: no runs.
    runs: pathlib.Path | None = None

    patterns: ClassVar[tuple[str, ...]]  # of the files of the jobs' states, in a folder of logs

    def read_state(self, folder: pathlib.Path) -> dict[str, Any]:
        """Return the job in a folder in the JSON of the REST API; raise UsageError if damaged."""
        raise NotImplementedError

    def next_id(self, resource: Any) -> str:
        return str(time.time_ns())

    def store(self, job: Any) -> None:
        """Do nothing: the job writes its own files."""

    def add(self, job: J) -> None:
        """Add a job; forget an earlier one of its folder, such as that of a deleted run."""
        kept = [earlier for earlier in self.jobs if earlier.directory != job.directory]
        self.jobs = [*kept, job]

    def ask_to_cancel(self, name: str) -> None:
        """Ask a job of any process to end."""
        (self._find_folder(name) / CANCEL_FILE_NAME).touch()

    def delete(self, request: Any) -> Any:
        """Cancel and hide a job; keep its logs."""
        folder = self._find_folder(request.name)
        (folder / CANCEL_FILE_NAME).touch()
        (folder / _DELETED).touch()
        return self.operations.start(request.name)

    def find(self, name: str) -> Any:
        return self.read(self._find_folder(name))

    def read(self, folder: pathlib.Path) -> Any:
        """Return the job in a folder; one whose process was killed has failed."""
        # The state of this process's jobs is in memory, as the disk may be full.
        current = [job.message for job in self.jobs if job.directory == folder]
        kind = getattr(messages, self.kind)
        if current:
            return kind(current[0])
        is_running = job_state.is_locked(folder)  # It stores its final state before it unlocks.
        job = kind.from_json(json.dumps(self.read_state(folder)))
        return job if is_running else end_killed_job(job)

    def list_all(self) -> list[Any]:
        return [self.read(folder) for folder in self.find_folders().values()]

    def find_folders(self, *, strict: bool = False) -> dict[str, pathlib.Path]:
        """Return the folder of each job of any process, by its name.

        Leave out jobs whose files are damaged; if `strict`, raise UsageError instead.
        """
        found = {}
        places = [self.directory, *(sorted(self.runs.glob("*/logs")) if self.runs else ())]
        paths = [path for place in places for form in self.patterns for path in place.glob(form)]
        for folder in sorted(path.parent for path in paths):
            if (folder / _DELETED).exists():
                continue
            try:
                found[self.read_state(folder)["name"]] = folder
            except UsageError as error:
                if strict:
                    raise
                warn(str(error))
        return found

    def _find_folder(self, name: str) -> pathlib.Path:
        for job in self.jobs:
            if job.message.name == name and not (job.directory / _DELETED).exists():
                return job.directory
        folders = self.find_folders()
        if name not in folders:
            self.find_folders(strict=True)  # A damaged file may be that of the job.
            raise not_found(name)
        return folders[name]


def name_folder(job: Any) -> str:
    """Return the name of a job's folder: that of its task or, without one, its display name."""
    return re.sub(r"[^\w.-]", "-", job.labels.get(TASK_LABEL) or job.display_name)
