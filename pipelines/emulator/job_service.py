"""JobService: CustomJobs, whose replicas are processes or containers of this machine."""

import pathlib
import threading
from typing import Any

from pipelines.emulator import job_rules
from pipelines.emulator.api_error import ApiError, not_found
from pipelines.emulator.containers import Containers
from pipelines.emulator.custom_job import TASK_LABEL, CustomJob
from pipelines.emulator.labels import filtered
from pipelines.emulator.operations import PAGE_SIZE, page
from pipelines.emulator.processes import Guardian

_CANCELLED = 1
_DEADLINE_EXCEEDED = 4
_INTERNAL = 13


class JobService:
    """Runs CustomJobs; a context manager, which cancels what still runs when it is left.

    Attributes:
        jobs: every job that was taken, in order of creation.
        refusals: the reason for each job that was not.
    """

    page_size = PAGE_SIZE

    def __init__(
        self, directory: pathlib.Path, guardian: Guardian, containers: Containers | None = None
    ) -> None:
        self._containers = containers
        self.jobs: list[CustomJob] = []
        self.refusals: list[str] = []
        self._directory = directory
        self._guardian = guardian
        self._lock = threading.Lock()
        self._resources: dict[str, CustomJob] = {}

    def __enter__(self) -> "JobService":
        return self

    def __exit__(self, *_: Any) -> None:
        self.cancel()
        self.join()

    def cancel(self) -> None:
        """Cancel every job, as a user would in the console."""
        for job in self.jobs:
            job.cancel()

    def kill(self) -> None:
        """End every replica at once."""
        for job in self.jobs:
            for replica in job.replicas:
                if replica.process:
                    replica.process.kill()

    def join(self) -> None:
        """Wait until every job is in a final state."""
        for job in self.jobs:
            job.join()

    def create_custom_job(self, request: Any) -> Any:
        job = request.custom_job
        try:
            job_rules.check(job, request.parent)
        except ApiError as error:
            self.refusals.append(str(error))
            raise
        with self._lock:
            job_id = str(len(self.jobs) + 1)
            job.name = f"{request.parent}/customJobs/{job_id}"
            name = job.labels.get(TASK_LABEL) or job.display_name
            directory = self._free_directory(name)
            run = CustomJob(job_id, job, directory, self._guardian, self._containers)
            self._resources[job.name] = run
            self.jobs.append(run)
        run.start()
        return _message(run)

    def get_custom_job(self, request: Any) -> Any:
        return _message(self._find(request.name))

    def list_custom_jobs(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        prefix = f"{request.parent}/customJobs/"
        found = [_message(job) for name, job in self._resources.items() if name.startswith(prefix)]
        jobs, token = page(filtered(found, request.filter), request, self.page_size)
        return types.ListCustomJobsResponse(custom_jobs=jobs, next_page_token=token)

    def cancel_custom_job(self, request: Any) -> None:
        self._find(request.name).cancel()

    def _find(self, name: str) -> CustomJob:
        if name not in self._resources:
            raise not_found(name)
        return self._resources[name]

    def _free_directory(self, name: str) -> pathlib.Path:
        """Return a job's folder of logs: its task's name or its own, numbered where taken."""
        taken = {job.directory.name for job in self.jobs}
        clean = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        numbered = (f"{clean}-{n}" for n in range(2, len(taken) + 3))
        return self._directory / next(n for n in (clean, *numbered) if n not in taken)


def _message(run: CustomJob) -> Any:
    """Return the CustomJob as the API shows it now."""
    from google.cloud.aiplatform_v1 import types

    job = types.CustomJob(run.request)
    job.state = types.JobState[f"JOB_STATE_{run.state}"]
    if run.error:
        job.error.code = _INTERNAL if run.failed_replica else _DEADLINE_EXCEEDED
        job.error.message = run.error
    elif run.state == "CANCELLED":
        job.error.code = _CANCELLED
    return job
