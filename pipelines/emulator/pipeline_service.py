"""PipelineService: PipelineJobs, which an engine executes."""

import pathlib
from typing import Any, Protocol

from pipelines.emulator import pipeline_rules
from pipelines.emulator.api_error import ApiError, not_found
from pipelines.emulator.clock import Clock
from pipelines.emulator.labels import filtered
from pipelines.emulator.operations import PAGE_SIZE, Operations, page
from pipelines.emulator.resource_files import ResourceFiles

_CANCELLED = 1


class Engine(Protocol):
    """Executes PipelineJobs."""

    def start(self, job: Any) -> None:
        """Begin to execute a job, which is PENDING."""

    def update(self, job: Any) -> None:
        """Bring a job's state, times, error and job_detail up to date."""

    def cancel(self, job: Any) -> None:
        """End a job that has not ended; it is CANCELLING, or CANCELLED already."""


class PipelineService:
    """Keeps PipelineJobs.

    Args:
        folder: keeps them beyond this process; None: memory alone.

    Attributes:
        pipeline_jobs: by ID.
    """

    page_size = PAGE_SIZE

    def __init__(
        self,
        engine: Engine,
        operations: Operations,
        clock: Clock,
        folder: pathlib.Path | None = None,
    ) -> None:
        self.pipeline_jobs = ResourceFiles(folder, "PipelineJob")
        self._engine, self._operations, self._clock = engine, operations, clock
        self._number = 0

    def create_pipeline_job(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        job = types.PipelineJob(request.pipeline_job)
        pipeline_rules.check_job(job, request.parent)
        self._number += 1
        job_id = request.pipeline_job_id or f"{self._clock.now():%Y%m%d%H%M%S}-{self._number}"
        if request.pipeline_job_id:
            pipeline_rules.check_job_id(job_id)
        if job_id in self.pipeline_jobs:
            raise ApiError("ALREADY_EXISTS", f"{job_id} already exists")
        job.name = f"{request.parent}/pipelineJobs/{job_id}"
        job.state = types.PipelineState.PIPELINE_STATE_PENDING
        job.create_time = job.start_time = self._clock.now()
        self._engine.start(job)
        self.pipeline_jobs[job_id] = job
        return job

    def get_pipeline_job(self, request: Any) -> Any:
        return self._updated(self._find(request.name))

    def list_pipeline_jobs(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        pipeline_rules.check_order(request.order_by)
        found = filtered(map(self._updated, self.pipeline_jobs.values()), request.filter)
        latest_first = not request.order_by or "desc" in request.order_by
        found.sort(key=lambda job: job.create_time, reverse=latest_first)
        jobs, token = page(found, request, self.page_size)
        shown = [_masked(job, request.read_mask) for job in jobs]
        return types.ListPipelineJobsResponse(pipeline_jobs=shown, next_page_token=token)

    def delete_pipeline_job(self, request: Any) -> Any:
        pipeline_rules.check_ended(self._updated(self._find(request.name)))
        del self.pipeline_jobs[request.name.rpartition("/")[2]]
        return self._operations.start(request.name)

    def cancel_pipeline_job(self, request: Any) -> None:
        from google.cloud.aiplatform_v1 import types

        job = self._updated(self._find(request.name))
        pipeline_rules.check_running(job)
        job.state = types.PipelineState.PIPELINE_STATE_CANCELLING
        self._engine.cancel(job)
        self.pipeline_jobs[job.name.rpartition("/")[2]] = job

    def _updated(self, job: Any) -> Any:
        """Return a job in its present state, which is kept where it is another one."""
        before = pipeline_rules.state_of(job)
        if before not in pipeline_rules.ENDED:
            self._engine.update(job)
        if pipeline_rules.state_of(job) == "CANCELLED":
            job.error.code = _CANCELLED
        if pipeline_rules.state_of(job) != before:
            self.pipeline_jobs[job.name.rpartition("/")[2]] = job
        return job

    def _find(self, name: str) -> Any:
        job_id = name.rpartition("/")[2]
        if job_id not in self.pipeline_jobs:
            raise not_found(name)
        return self.pipeline_jobs[job_id]


def _masked(job: Any, mask: Any) -> Any:
    """Return a PipelineJob as lists have it: the fields asked for, and never its tasks.

    "job_detail: … not available in the list view", reference of pipelineJobs.list.
    """
    from google.cloud.aiplatform_v1 import types

    shown = types.PipelineJob()
    if mask.paths:
        mask.MergeMessage(job._pb, shown._pb)
    else:
        shown._pb.CopyFrom(job._pb)
    shown._pb.ClearField("job_detail")
    return shown
