"""Jobs executed by processes on this machine: the base of training and batch prediction."""

import dataclasses
import pathlib
import threading
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from vertex_emulator.api_error import ApiError, code_of
from vertex_emulator.clock import Clock
from vertex_emulator.messages import state_of
from vertex_emulator.processes import Guardian, Process
from vertex_emulator.resources import Resources
from vertex_facts import UsageError
from vertex_facts.jobs import ENDED, RUN_LABEL, TASK_LABEL


class BackgroundJob(threading.Thread):
    """A job that runs in its own thread; `run` returns in a final state, with no process left."""

    replicas: Sequence[Any] = ()  # of a training job
    trials: Sequence[Any] = ()  # of a search
    failed_replica: Any = None  # the Replica that failed the job, if one did

    def __init__(self, message: Any) -> None:
        super().__init__(name="job", daemon=True)
        self.message = message  # updated in place
        # The labels of the run and of the task whose launcher created the job; empty if none did.
        self.launched_by = (message.labels.get(RUN_LABEL, ""), message.labels.get(TASK_LABEL, ""))
        self.cancelled = threading.Event()  # set once the job is to be cancelled

    @property
    def state(self) -> str:
        """Return QUEUED, PENDING, RUNNING or one of `ENDED`."""
        return state_of(self.message)

    @property
    def error(self) -> str:
        """Return why the job failed, in Vertex AI's words; empty otherwise."""
        return str(self.message.error.message)

    def set_state(self, state: str, status: str = "", error: str = "") -> None:
        """Change the state and store it; a failed job also has a google.rpc.Code and an error."""
        now = Clock().now()
        if status:
            self.message.error.code, self.message.error.message = code_of(status), error
        if state == "RUNNING":
            self.message.start_time = now
        if state in ENDED:
            self.message.end_time = now
        self.message.update_time = now
        self.message.state = f"JOB_STATE_{state}"
        self.store()

    def store(self) -> None:
        """Store the job for other processes."""
        raise NotImplementedError

    @property
    def processes(self) -> list[Process]:
        """Return the job's processes, including processes that have ended."""
        raise NotImplementedError

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
    """Resources that jobs run for; a context manager that cancels the jobs on exit."""

    directory: pathlib.Path  # gets a folder for each job
    guardian: Guardian
    # Folders of the logs of pipelines' runs, by the label that their jobs have.
    run_logs: dict[str, pathlib.Path] = dataclasses.field(default_factory=dict, init=False)
    # Every job that was accepted, in order of creation.
    jobs: list[J] = dataclasses.field(default_factory=list, init=False)
    # The reason for each job that was refused.
    refusals: list[str] = dataclasses.field(default_factory=list, init=False)
    # Held while a job is created: trials come from threads of this process.
    _creation: Any = dataclasses.field(default_factory=threading.Lock, init=False)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.cancel()
        self.join()

    def create(self, request: Any) -> Any:
        with self._creation:
            try:
                resource = super().create(request)
            except (ApiError, UsageError) as error:
                self.refusals.append(str(error))
                raise
            self.jobs[-1].start()
            return resource

    def logs_of(self, job: Any) -> pathlib.Path:
        """Return the folder for a job's own folder: that of its run's logs, if it has one."""
        return self.run_logs.get(job.labels.get(RUN_LABEL, ""), self.directory)

    def cancel(self) -> None:
        """Cancel every job, as a user would in the console."""
        for job in self.jobs:
            job.cancel()

    def kill(self) -> None:
        """Cancel every job and kill its processes."""
        for job in self.jobs:
            job.kill()

    def join(self) -> None:
        """Wait until every job is in a final state."""
        for job in self.jobs:
            job.join()


def end_killed_job(job: Any) -> Any:
    """Set the final state of a job whose process ended before it could; return the job."""
    if state_of(job) not in ENDED:
        job.state = "JOB_STATE_FAILED"
        job.end_time = job.update_time
        job.error = {"code": code_of("INTERNAL"), "message": "the job's process was killed"}
    return job
