"""JobService: CustomJobs, run as processes or containers on this machine."""

import dataclasses
import json
import pathlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from vertex_emulator import job_rules, job_state, messages
from vertex_emulator.api_error import not_found
from vertex_emulator.background_jobs import BackgroundJobs, end_killed_job
from vertex_emulator.containers import Containers
from vertex_emulator.custom_job import CANCEL_FILE_NAME, CustomJob
from vertex_emulator.environment import Program, run_command
from vertex_emulator.messages import id_of
from vertex_emulator.processes import new_folder
from vertex_emulator.resource_store import warn
from vertex_facts import UsageError
from vertex_facts.jobs import ROLES, TASK_LABEL

_DELETED = "deleted"


@dataclasses.dataclass(eq=False, kw_only=True)
class JobService(BackgroundJobs[CustomJob]):
    """The service of CustomJobs, which runs them and also lists the jobs of other processes."""

    kind = "CustomJob"
    containers: Containers | None = None
    # Without containers, returns the program that runs in place of an image with a command.
    program: Callable[[str, Sequence[str]], Program] = run_command
    # Has folders of runs, with one folder per job in their logs; None: no runs.
    runs: pathlib.Path | None = None

    def next_id(self, resource: Any) -> str:
        return str(time.time_ns())

    def check(self, job: Any, parent: str) -> None:
        job_rules.check(job, parent)

    def begin(self, job: Any) -> None:
        name = re.sub(r"[^\w.-]", "-", job.labels.get(TASK_LABEL) or job.display_name)
        directory = new_folder(self.logs_of(job), name)
        # A deleted run of the same name had the same folders.
        self.jobs[:] = [earlier for earlier in self.jobs if earlier.directory != directory]
        execution = self.guardian, self.containers, self.program
        self.jobs.append(CustomJob(job, directory, *execution))

    def store(self, job: Any) -> None:
        """Do nothing: the job writes its own files."""

    def cancel_custom_job(self, request: Any) -> None:
        """Ask a CustomJob of any process to end."""
        (self._find_folder(request.name) / CANCEL_FILE_NAME).touch()

    def delete(self, request: Any) -> Any:
        """Cancel and hide a CustomJob; keep its logs."""
        folder = self._find_folder(request.name)
        (folder / CANCEL_FILE_NAME).touch()
        (folder / _DELETED).touch()
        return self.operations.start(request.name)

    def find(self, name: str) -> Any:
        return self._read(self._find_folder(name))

    def _read(self, folder: pathlib.Path) -> Any:
        # The state of this process's jobs is in memory, as the disk may be full.
        current = [job.message for job in self.jobs if job.directory == folder]
        if current:
            return messages.CustomJob(current[0])
        is_running = job_state.is_locked(folder)  # It stores its final state before it unlocks.
        job = messages.CustomJob.from_json(json.dumps(job_state.read(folder).job))
        return job if is_running else end_killed_job(job)

    def list_all(self) -> list[Any]:
        return [self._read(folder) for folder in self.find_folders().values()]

    def find_folders(self, *, strict: bool = False) -> dict[str, pathlib.Path]:
        """Return the folder of each CustomJob of any process, by its name."""
        folders = find_job_folders(self.directory, strict=strict)
        if self.runs:
            folders |= find_job_folders(self.runs, "*/logs/*", strict=strict)
        return folders

    def _find_folder(self, name: str) -> pathlib.Path:
        for job in self.jobs:
            if job.message.name == name and not (job.directory / _DELETED).exists():
                return job.directory
        folders = self.find_folders()
        if name not in folders:
            self.find_folders(strict=True)  # A damaged file may be that of the job.
            raise not_found(name)
        return folders[name]

    def read_log_entries(self) -> list[dict[str, Any]]:
        """Return the log lines of all replicas, as entries of Cloud Logging."""
        entries = []
        for name, folder in self.find_folders().items():
            for path in sorted(folder.glob("*-*.log")):
                role, _, index = path.stem.rpartition("-")
                replica = f"workerpool{ROLES.index(role)}-{index}"
                labels = {"job_id": id_of(name), "task_name": replica}
                entries += [
                    {"resource": {"type": "ml_job", "labels": labels}, "textPayload": line}
                    for line in path.read_text(errors="replace").splitlines()
                ]
        return entries


def find_job_folders(
    directory: pathlib.Path, pattern: str = "*", *, strict: bool = False
) -> dict[str, pathlib.Path]:
    """Return the folders of CustomJobs that match a pattern, by the names of the jobs.

    Leave out jobs whose files are damaged; if `strict`, raise UsageError instead.
    """
    found = {}
    for path in sorted(directory.glob(f"{pattern}/{job_state.FILE_NAME}")):
        if (path.parent / _DELETED).exists():
            continue
        try:
            found[job_state.read(path.parent).job["name"]] = path.parent
        except UsageError as error:
            if strict:
                raise
            warn(str(error))
    return found
