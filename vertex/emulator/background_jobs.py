"""Jobs executed by processes on this machine: the base of training, tuning and batch prediction.

The folder of a job holds its state, which other processes read.
"""

import dataclasses
import json
import os
import pathlib
import re
import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from google.protobuf import json_format

from vertex.emulator import files, job_state, messages
from vertex.emulator.api_error import ApiError, code_of, not_found
from vertex.emulator.clock import Clock
from vertex.emulator.http_rules import to_json
from vertex.emulator.messages import state_of
from vertex.emulator.processes import Guardian, Process
from vertex.emulator.resource_store import warn
from vertex.emulator.resources import Resources
from vertex.errors import InputError
from vertex.facts.jobs import ENDED, RUN_LABEL, TASK_LABEL

CANCEL_FILE_NAME = "cancel"
"""File in a job's folder by which another process cancels the job."""
_DELETED = "deleted"
_POLL_SECONDS = 0.05


class End(NamedTuple):
    """The end of a job."""

    state: str  # one of `ENDED`
    status: str = ""  # the name of a google.rpc.Code, unless it succeeded
    error: str = ""


class BackgroundJob(threading.Thread):
    """A job that runs in its own thread; `run` returns in a final state, with no process left."""

    file_name: ClassVar[str]  # of the file in its folder that holds the job
    failure: ClassVar[str] = ""  # begins the error of a job that an exception ends
    replicas: Sequence[Any] = ()  # of a training job
    trials: Sequence[Any] = ()  # of a search
    failed_replica: Any = None  # the Replica that failed the job, if one did

    def __init__(self, message: Any, directory: pathlib.Path) -> None:
        super().__init__(name="job", daemon=True)
        self.message = message  # updated in place
        self.directory = directory  # the job's folder, locked while the job runs
        self._folder_lock = job_state.lock(directory)
        # The labels of the run and of the task whose launcher created the job; empty if none did.
        self.launched_by = find_launcher(message)
        self.cancelled = threading.Event()  # set once the job is to be cancelled

    def run(self) -> None:
        """Execute the job to its end."""
        try:
            end = self.execute()
        # Any error: clients wait until the job has a final state.
        except Exception as error:
            end = End("FAILED", "INTERNAL", f"{self.failure}{type(error).__name__}: {error}")
            if isinstance(error, InputError):
                end = End("FAILED", "INVALID_ARGUMENT", str(error))
            if self.is_cancelled:
                end = End("CANCELLED", "CANCELLED")
        self.stop(end.state)
        self.set_state(*end)
        os.close(self._folder_lock)  # The stored state is final.

    def execute(self) -> End:
        """Do the job's work; return how it ends."""
        raise NotImplementedError

    def stop(self, state: str) -> None:
        """End all processes of the job, whose final state is `state`."""
        raise NotImplementedError

    @property
    def state(self) -> str:
        """Return QUEUED, PENDING, RUNNING or one of `ENDED`."""
        return state_of(self.message)

    @property
    def error(self) -> str:
        """Return why the job failed, in Vertex AI's words; empty otherwise."""
        return str(self.message.error.message)

    def set_state(self, state: str, status: str = "", error: str = "") -> None:
        """Change the state and store it; `status` and `error` are as in `End`."""
        now = Clock().now()
        if status:
            self.message.error.code, self.message.error.message = code_of(status), error
        if state == "RUNNING":
            self.message.start_time = now
        if state in ENDED:
            self.message.end_time = now
        self.message.state = f"JOB_STATE_{state}"
        self.store()

    def store(self) -> None:
        """Write the job's file, which other processes read."""
        self.message.update_time = Clock().now()
        files.write_checked(self.directory / self.file_name, to_json(self.message))

    @property
    def processes(self) -> list[Process]:
        """Return the job's processes, including processes that have ended."""
        raise NotImplementedError

    @property
    def is_cancelled(self) -> bool:
        """Return whether this process or another has asked the job to end."""
        return self.cancelled.is_set() or (self.directory / CANCEL_FILE_NAME).exists()

    def wait_for_cancel(self) -> bool:
        """Wait a moment; return `is_cancelled`."""
        return self.cancelled.wait(_POLL_SECONDS) or self.is_cancelled

    def cancel(self) -> None:
        """Ask the job to end, with a grace period; don't wait for it."""
        self.cancelled.set()

    def kill(self) -> None:
        """Cancel the job and kill its processes."""
        self.cancel()
        for process in self.processes:
            process.kill()


J = TypeVar("J", bound=BackgroundJob)


@dataclasses.dataclass(eq=False, kw_only=True)
class BackgroundJobs(Resources, Generic[J]):
    """A service of jobs that also finds the jobs of other processes, by their folders.

    A context manager that cancels the jobs of this process on exit.
    """

    file_name: ClassVar[str]  # of the jobs' files
    patterns: ClassVar[tuple[str, ...]] = ("*",)  # of the jobs' folders, in a folder of logs

    directory: pathlib.Path  # gets a folder for each job
    guardian: Guardian
    # Has folders of runs, with one folder per job in their logs; None: no runs.
    runs: pathlib.Path | None = None
    # Folders of the logs of pipelines' runs, by the label that their jobs have.
    run_logs: dict[str, pathlib.Path] = dataclasses.field(default_factory=dict, init=False)
    # Every job that was accepted, by folder; replaced as a whole, since threads iterate over it.
    _accepted: dict[pathlib.Path, J] = dataclasses.field(default_factory=dict, init=False)
    # The reason for the last job that each task of a run was refused.
    refusals: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict, init=False)
    # The jobs in files, by folder, with the stamps of the files that they were parsed from.
    _parsed: dict[pathlib.Path, tuple[tuple[int, ...], Any]] = dataclasses.field(
        default_factory=dict, init=False
    )
    # Held while a job is created: trials come from threads of this process.
    _creation: Any = dataclasses.field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.standard_methods[f"Cancel{self.kind}"] = self.cancel_job

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        for job in self.jobs:
            job.cancel()
        self.join()

    def create(self, request: Any) -> Any:
        with self._creation:
            try:
                resource = super().create(request)
            except (ApiError, InputError) as error:
                job = getattr(request, self._field)
                self.refusals[find_launcher(job)] = str(error)
                raise
            self.jobs[-1].start()
            return resource

    @property
    def jobs(self) -> list[J]:
        """Return every job that was accepted, in order of creation."""
        return [*self._accepted.values()]

    def cancel_job(self, request: Any) -> None:
        """Ask a job of any process to end; do nothing if it has ended."""
        (self._find_folder(request.name) / CANCEL_FILE_NAME).touch()

    def logs_of(self, job: Any) -> pathlib.Path:
        """Return the folder for a job's own folder: that of its run's logs, if it has one."""
        return self.run_logs.get(job.labels.get(RUN_LABEL, ""), self.directory)

    def join(self) -> None:
        """Wait until every job is in a final state."""
        for job in self.jobs:
            job.join()

    def read_state(self, folder: pathlib.Path) -> dict[str, Any]:
        """Return the job in a folder in the JSON of the REST API; raise InputError if damaged."""
        return job_state.read_message(folder / self.file_name)

    def next_id(self, resource: Any) -> str:
        return str(time.time_ns())

    def store(self, job: Any) -> None:
        """Do nothing: the job writes its own files."""

    def add(self, job: J) -> None:
        """Add a job; forget an earlier one of its folder, such as that of a deleted run."""
        accepted = {**self._accepted}
        accepted.pop(job.directory, None)
        self._accepted = {**accepted, job.directory: job}

    def delete(self, request: Any) -> Any:
        """Cancel and hide a job; keep its logs."""
        folder = self._find_folder(request.name)
        self.check_deletable(self.read(folder))
        (folder / CANCEL_FILE_NAME).touch()
        (folder / _DELETED).touch()
        return self.operations.start(request.name)

    def find(self, name: str) -> Any:
        return self.read(self._find_folder(name))

    def read(self, folder: pathlib.Path) -> Any:
        """Return the job in a folder; one whose process was killed has failed."""
        # The state of this process's jobs is in memory, as the disk may be full.
        kind = getattr(messages, self.kind)
        if current := self._accepted.get(folder):
            return kind(current.message)
        if state_of(stored := self._read_stored(folder)) in ENDED:
            return kind(stored)
        is_running = job_state.is_locked(folder)  # It stores its final state before it unlocks.
        job = kind(self._read_stored(folder))
        if not is_running and state_of(job) not in ENDED:
            job.state = "JOB_STATE_FAILED"
            job.end_time = job.update_time
            job.error = {"code": code_of("INTERNAL"), "message": "the job's process was killed"}
        return job

    def list_all(self) -> list[Any]:
        found = {}
        for folder in self._list_folders():
            try:
                job = self.read(folder)
            except InputError as error:
                warn(str(error))
            else:
                found[job.name] = job
        return [*found.values()]

    def find_folders(self) -> dict[str, pathlib.Path]:
        """Return the folder of each job of any process, by its name; leave out damaged files."""
        found = {}
        for folder in self._list_folders():
            try:
                found[self._read_stored(folder).name] = folder
            except InputError as error:
                warn(str(error))
        return found

    def _read_stored(self, folder: pathlib.Path) -> Any:
        """Return the job in a folder's file, which is parsed once, and which callers don't change.

        Raise InputError if the file is damaged or gone.
        """
        path = folder / self.file_name
        try:
            with files.named(path):
                stamp = files.stamp(path)
                if folder not in self._parsed or self._parsed[folder][0] != stamp:
                    content = self.read_state(folder)
                    job = getattr(messages, self.kind).from_json(json.dumps(content))
                    if not job.name:
                        raise ValueError("it names no job")
                    self._parsed[folder] = (stamp, job)
                return self._parsed[folder][1]
        except (FileNotFoundError, json_format.ParseError) as error:
            reason = getattr(error, "strerror", error)
            raise InputError(f"{path} can't be read ({reason}); remove it") from None

    def _list_folders(self) -> list[pathlib.Path]:
        places = [self.directory, *(sorted(self.runs.glob("*/logs")) if self.runs else ())]
        forms = [f"{pattern}/{self.file_name}" for pattern in self.patterns]
        paths = [path for place in places for form in forms for path in place.glob(form)]
        folders = sorted(path.parent for path in paths)
        return [folder for folder in folders if not (folder / _DELETED).exists()]

    def _find_folder(self, name: str) -> pathlib.Path:
        for job in self.jobs:
            if job.message.name == name and not (job.directory / _DELETED).exists():
                return job.directory
        folders = self.find_folders()
        if name not in folders:
            for folder in self._list_folders():
                self._read_stored(folder)  # A damaged file may be that of the job.
            raise not_found(name)
        return folders[name]


def name_folder(job: Any) -> str:
    """Return the name of a job's folder: that of its task or, without one, its display name."""
    return re.sub(r"[^\w.-]", "-", job.labels.get(TASK_LABEL) or job.display_name)


def find_launcher(job: Any) -> tuple[str, str]:
    """Return the run and the task, as labels, that have launched a job; empty if none has."""
    return job.labels.get(RUN_LABEL, ""), job.labels.get(TASK_LABEL, "")
