"""JobService: CustomJobs, run as processes or containers on this machine, and their log lines."""

import contextlib
import datetime
import json
import pathlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, ValuesView
from typing import Any

from pipelines.emulator import environment, job_rules, job_state, messages
from pipelines.emulator.background_jobs import ENDED, TASK_LABEL, BackgroundJobs
from pipelines.emulator.containers import Containers
from pipelines.emulator.custom_job import CANCEL_FILE_NAME, REQUEST_FILE_NAME, CustomJob
from pipelines.emulator.job_state import JobState
from pipelines.emulator.messages import id_of
from pipelines.emulator.operations import Operations
from pipelines.emulator.processes import Guardian
from pipelines.emulator.server import HttpRequest

_DELETED = "deleted"


class JobFolders(Mapping[str, Any]):
    """CustomJobs of any process by name, read from the files in each job's folder.

    Args:
        directory: has one folder per job.
        runs: has folders of runs, with one folder per job in their logs; None: no runs.
        read: returns the state of the job in a folder.
    """

    lock = contextlib.nullcontext

    def __init__(
        self,
        directory: pathlib.Path,
        runs: pathlib.Path | None = None,
        read: Callable[[pathlib.Path], JobState] = job_state.read,
    ) -> None:
        self._read = read
        self._places = [(directory, "*")] + ([(runs, "*/logs/*")] if runs else [])

    def folders(self) -> dict[str, pathlib.Path]:
        """Return the folder of each job, by its name."""
        paths = [
            path.parent
            for place, pattern in self._places
            for path in sorted(place.glob(f"{pattern}/{job_state.FILE_NAME}"))
        ]
        present = [path for path in paths if not (path / _DELETED).exists()]
        return {request_of(path).name: path for path in present}

    def __getitem__(self, name: str) -> Any:
        return self._job(self.folders()[name])

    def values(self) -> ValuesView[Any]:
        """Return the jobs, reading each folder once."""
        return {name: self._job(folder) for name, folder in self.folders().items()}.values()

    def _job(self, folder: pathlib.Path) -> Any:
        job, state = request_of(folder), self._read(folder)
        job.state = messages.JobState[f"JOB_STATE_{state.state}"]
        job.start_time = time_of(folder / REQUEST_FILE_NAME)
        if state.state in ENDED:
            job.end_time = time_of(folder / job_state.FILE_NAME)
        if state.error_code:
            job.error.code, job.error.message = state.error_code, state.error
        return job

    def __delitem__(self, name: str) -> None:
        """Cancel and hide a CustomJob; keep its logs."""
        folder = self.folders()[name]
        (folder / CANCEL_FILE_NAME).touch()
        (folder / _DELETED).touch()

    def __iter__(self) -> Iterator[str]:
        return iter(self.folders())

    def __len__(self) -> int:
        return len(self.folders())


class JobService(BackgroundJobs[CustomJob]):
    """The service of CustomJobs, which runs them and lists those of other processes.

    Args:
        directory: takes one folder per job.
        runs: as for `JobFolders`.
    """

    kind = "CustomJob"

    def __init__(
        self,
        directory: pathlib.Path,
        guardian: Guardian,
        operations: Operations,
        containers: Containers | None = None,
        runs: pathlib.Path | None = None,
    ) -> None:
        super().__init__(operations)
        self.kept = JobFolders(directory, runs, self._state_of)
        self._directory, self._guardian, self._containers = directory, guardian, containers

    def next_id(self) -> str:
        return str(time.time_ns())

    def check(self, job: Any, parent: str) -> None:
        job_rules.check(job, parent)

    def begin(self, job: Any) -> None:
        directory = self._new_directory(job.labels.get(TASK_LABEL) or job.display_name)
        self.jobs.append(CustomJob(job, directory, self._guardian, self._containers))
        job.state = messages.JobState.JOB_STATE_QUEUED

    def keep(self, job: Any) -> None:
        """Do nothing: the job writes its own files."""

    def cancel_custom_job(self, request: Any) -> None:
        """Ask a CustomJob of any process to end."""
        self.find(request.name)
        (self.kept.folders()[request.name] / CANCEL_FILE_NAME).touch()

    def log_entries(self) -> list[dict[str, Any]]:
        """Return the log lines of all replicas, as entries of Cloud Logging."""
        entries = []
        for name, folder in self.kept.folders().items():
            for path in sorted(folder.glob("*-*.log")):
                role, _, index = path.stem.rpartition("-")
                replica = f"workerpool{environment.ROLES.index(role)}-{index}"
                labels = {"job_id": id_of(name), "task_name": replica}
                entries += [
                    {"resource": {"type": "ml_job", "labels": labels}, "textPayload": line}
                    for line in path.read_text(errors="replace").splitlines()
                ]
        return entries

    def _state_of(self, folder: pathlib.Path) -> JobState:
        """Return a job's state: from memory if it is this process's, as the disk may be full."""
        own = [job.snapshot for job in self.jobs if job.directory == folder]
        return own[0] if own else job_state.read(folder)

    def _new_directory(self, name: str) -> pathlib.Path:
        """Make a job's folder from a name, numbered if it is taken."""
        clean = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        number = 1
        while True:
            directory = self._directory / (clean if number == 1 else f"{clean}-{number}")
            try:
                directory.mkdir(parents=True)
                return directory
            except FileExistsError:
                number += 1


class LogEntries:
    """Cloud Logging's server of the lines of training jobs.

    Args:
        entries: returns the entries in Cloud Logging's JSON, oldest first.
    """

    routes = (("POST", "/v2/entries:list", "ListLogEntries"),)

    def __init__(self, entries: Callable[[], list[dict[str, Any]]]) -> None:
        self._entries = entries

    def list_log_entries(self, request: HttpRequest) -> dict[str, Any]:
        """Return the newest entries whose resource has the filter's labels.

        https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list
        """
        content = json.loads(request.body)
        wanted = dict(re.findall(r'resource\.labels\.(\w+)="([^"]*)"', content["filter"])).items()
        found = [one for one in self._entries() if wanted <= one["resource"]["labels"].items()]
        return {"entries": found[::-1][: content["pageSize"]]}


def request_of(folder: pathlib.Path) -> Any:
    """Return the CustomJob in a folder, as it was created."""
    return messages.CustomJob.from_json((folder / REQUEST_FILE_NAME).read_text())


def time_of(path: pathlib.Path) -> datetime.datetime:
    """Return the time at which a file was last written."""
    return datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc)
