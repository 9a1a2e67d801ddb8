"""PipelineService: PipelineJobs, executed by a PipelineEngine."""

import itertools
import pathlib
from typing import Any

from pipelines.emulator import messages, pipeline_rules
from pipelines.emulator.clock import Clock
from pipelines.emulator.operations import Operations
from pipelines.emulator.pipeline_engine import PipelineEngine
from pipelines.emulator.resources import Resources

_CANCELLED = 1


class PipelineService(Resources):
    """A store of PipelineJobs."""

    kind = "PipelineJob"

    def __init__(
        self,
        engine: PipelineEngine,
        operations: Operations,
        clock: Clock,
        folder: pathlib.Path | None = None,
    ) -> None:
        super().__init__(operations, folder, clock)
        self._engine, self._numbers = engine, itertools.count(1)

    def next_id(self) -> str:
        return f"{self.clock.now():%Y%m%d%H%M%S}-{next(self._numbers)}"

    def check(self, job: Any, parent: str) -> None:
        pipeline_rules.check_job(job, parent)

    def begin(self, job: Any) -> None:
        job.state = messages.PipelineState.PIPELINE_STATE_PENDING
        job.start_time = job.create_time
        self._engine.start(job)

    def page(self, request: Any) -> Any:
        """Return a page of the list, sorted as requested; default: latest first."""
        pipeline_rules.check_order(request.order_by)
        latest_first = not request.order_by or "desc" in request.order_by
        found = sorted(
            self.of(request.parent), key=lambda job: job.create_time, reverse=latest_first
        )
        page = self.listed(found, request, "ListPipelineJobsResponse", "pipeline_jobs")
        page.pipeline_jobs = [_masked(job, request.read_mask) for job in page.pipeline_jobs]
        return page

    def check_deletable(self, job: Any) -> None:
        pipeline_rules.check_ended(job)

    def cancel_pipeline_job(self, request: Any) -> None:
        with self.changing(request.name) as job:
            pipeline_rules.check_running(job)
            job.state = messages.PipelineState.PIPELINE_STATE_CANCELLING
            self._engine.cancel(job)

    def shown(self, job: Any) -> Any:
        """Update and return a job; store it if its state has changed."""
        before = pipeline_rules.state_of(job)
        if before not in pipeline_rules.ENDED:
            self._engine.update(job)
        if pipeline_rules.state_of(job) == "CANCELLED":
            job.error.code = _CANCELLED
        if pipeline_rules.state_of(job) != before:
            self.keep(job)
        return job


def _masked(job: Any, mask: Any) -> Any:
    """Return a PipelineJob as lists show it: the requested fields, without the tasks."""
    shown = messages.PipelineJob()
    if mask.paths:
        mask.MergeMessage(job._pb, shown._pb)
    else:
        shown._pb.CopyFrom(job._pb)
    shown._pb.ClearField("job_detail")
    return shown
