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
    filterable = (
        *("pipeline_name", "display_name", "pipeline_job_user_id", "state", "create_time"),
        *("update_time", "end_time", "labels", "template_uri", "schedule_name"),
    )
    """schedule_name is on no page, but Google's SDK filters by it."""
    sortable = ("create_time", "update_time", "end_time", "start_time")
    default_order = "create_time desc"

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
        """Return a page of the list, without the tasks of the jobs."""
        page = super().page(request)
        for job in page._pb.pipeline_jobs:
            job.ClearField("job_detail")
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
