"""Jobs that processes of this machine work on: what training and batch prediction share."""

import threading
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pipelines.emulator.api_error import ApiError
from pipelines.emulator.processes import Process
from pipelines.emulator.resources import Resources
from trainer.errors import InputError

TASK_LABEL = "vertex-ai-pipelines-task"
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
CANCELLED_CODE, INVALID_CODE, TIMEOUT_CODE, INTERNAL_CODE = 1, 3, 4, 13
"""https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto"""


class BackgroundJob:
    """Works on a job, in a thread of its own.

    Args:
        labels: of the job.

    Attributes:
        launched_by: the pipeline's task whose launcher created the job; empty if none did.
        cancelled: set once nobody wants its result.
        error: why it failed, as Vertex AI puts it; empty otherwise.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._thread = threading.Thread(target=self.run, name="job", daemon=True)
        self.launched_by = labels.get(TASK_LABEL, "")
        self.cancelled = threading.Event()
        self.error = ""

    @property
    def state(self) -> str:
        """QUEUED, PENDING, RUNNING, then one of `ENDED`."""
        raise NotImplementedError

    @property
    def processes(self) -> list[Process]:
        """Its processes, those that have ended, too."""
        raise NotImplementedError

    def run(self) -> None:
        """Bring the job to a final state, in which no process of it is left."""
        raise NotImplementedError

    def start(self) -> None:
        """Run in the background."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the final state."""
        self._thread.join()

    def cancel(self) -> None:
        """Have it end, with a grace; returns at once."""
        self.cancelled.set()

    def kill(self) -> None:
        """Have it end at once."""
        self.cancel()
        for process in self.processes:
            process.kill()


J = TypeVar("J", bound=BackgroundJob)


class BackgroundJobs(Resources, Generic[J]):
    """Resources that jobs work on; a context manager, which cancels them when it is left.

    Attributes:
        jobs: every job that was taken, in order of creation.
        refusals: the reason for each job that was not.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.jobs: list[J] = []
        self.refusals: list[str] = []

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.cancel()
        self.join()

    def create(self, request: Any) -> Any:
        try:
            resource = super().create(request)
        except (ApiError, InputError) as error:
            self.refusals.append(str(error))
            raise
        self.jobs[-1].start()
        return resource

    def cancel(self) -> None:
        """Cancel every job, as a user would in the console."""
        for job in self.jobs:
            job.cancel()

    def kill(self) -> None:
        """End every process at once."""
        for job in self.jobs:
            job.kill()

    def join(self) -> None:
        """Wait until every job is in a final state."""
        for job in self.jobs:
            job.join()
