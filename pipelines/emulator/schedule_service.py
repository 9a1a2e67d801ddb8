"""ScheduleService: Schedules, which start PipelineJobs when their time has come."""

import datetime
import json
import pathlib
from typing import Any

from pipelines.emulator import cron, pipeline_rules
from pipelines.emulator.api_error import invalid, not_found
from pipelines.emulator.clock import Clock
from pipelines.emulator.operations import PAGE_SIZE, Operations, page
from pipelines.emulator.pipeline_service import PipelineService
from pipelines.emulator.resource_files import ResourceFiles
from pipelines.emulator.server import HttpRequest


class ScheduleService:
    """Keeps schedules; `fire` starts what is due.

    Args:
        folder: keeps them beyond this process; None: memory alone.

    Attributes:
        schedules: by ID.
    """

    page_size = PAGE_SIZE
    routes = (("POST", "/clock:forward", "ForwardClock"),)

    def __init__(
        self,
        pipelines: PipelineService,
        operations: Operations,
        clock: Clock,
        folder: pathlib.Path | None = None,
    ) -> None:
        self.schedules = ResourceFiles(folder, "Schedule")
        self._pipelines, self._operations, self._clock = pipelines, operations, clock
        self._number = max(map(int, self.schedules), default=1000)

    def create_schedule(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        schedule = types.Schedule(request.schedule)
        pipeline_rules.check_schedule(schedule)
        self._number += 1
        schedule.name = f"{request.parent}/schedules/{self._number}"
        schedule.state = types.Schedule.State.ACTIVE
        schedule.create_time = self._clock.now()
        schedule.start_time = schedule.start_time or self._clock.now()
        self._plan(schedule)
        self.schedules[str(self._number)] = schedule
        return schedule

    def get_schedule(self, request: Any) -> Any:
        return self._find(request.name)

    def list_schedules(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        found, token = page(list(self.schedules.values()), request, self.page_size)
        return types.ListSchedulesResponse(schedules=found, next_page_token=token)

    def update_schedule(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        schedule = self._find(request.schedule.name)
        pipeline_rules.check_not_completed(schedule)
        if not request.update_mask.paths:
            raise invalid("update_mask is required")
        for path in request.update_mask.paths:
            if getattr(schedule, path) and not getattr(request.schedule, path):
                raise invalid(f"{path} can't be cleared")
        changed = types.Schedule(schedule)
        for path in request.update_mask.paths:
            # "When you update the schedule, the START_TIME remains unchanged."
            if path != "start_time":
                setattr(changed, path, getattr(request.schedule, path))
        pipeline_rules.check_schedule(changed)
        schedule._pb.CopyFrom(changed._pb)
        self._plan(schedule)
        self._keep(schedule)
        return schedule

    def delete_schedule(self, request: Any) -> Any:
        self._find(request.name)
        del self.schedules[request.name.rpartition("/")[2]]
        return self._operations.start(request.name)

    def pause_schedule(self, request: Any) -> None:
        self._bring(request.name, "ACTIVE", "PAUSED")

    def resume_schedule(self, request: Any) -> None:
        """Let a schedule start runs again: from the next time on, without those it has missed."""
        self._bring(request.name, "PAUSED", "ACTIVE")
        schedule = self._find(request.name)
        self._plan(schedule)
        self._keep(schedule)

    def forward_clock(self, request: HttpRequest) -> dict[str, Any]:
        """Wind the clock forward by {"days": N}: not of Vertex AI, but of a rehearsal."""
        self._clock.forward(datetime.timedelta(days=json.loads(request.body)["days"]))
        self.fire()
        return {"now": self._clock.now().isoformat()}

    def fire(self) -> None:
        """Start a run of each active schedule whose time has come, and plan its next.

        A run that would exceed max_concurrent_active_run_count is skipped, or waits in a queue.
        """
        from google.cloud.aiplatform_v1 import types

        now = self._clock.now()
        for schedule in list(self.schedules.values()):
            if schedule.state.name != "ACTIVE" or schedule.next_run_time > now:
                continue
            limit = schedule.max_concurrent_active_run_count
            if not limit or len(self._active_runs(schedule)) < limit:
                request = types.CreatePipelineJobRequest(schedule.create_pipeline_job_request)
                request.parent = schedule.name.partition("/schedules/")[0]
                request.pipeline_job.schedule_name = schedule.name
                job = self._pipelines.create_pipeline_job(request)
                schedule.started_run_count += 1
                response = types.Schedule.RunResponse(
                    scheduled_run_time=schedule.next_run_time, run_response=job.name
                )
                schedule.last_scheduled_run_response = response
            elif schedule.allow_queueing:
                continue
            self._plan(schedule)
            self._keep(schedule)

    def _active_runs(self, schedule: Any) -> list[Any]:
        jobs = self._pipelines.pipeline_jobs.values()
        mine = [job for job in jobs if job.schedule_name == schedule.name]
        return [job for job in mine if pipeline_rules.state_of(job) not in pipeline_rules.ENDED]

    def _plan(self, schedule: Any) -> None:
        """Set a schedule's next run, or its state where there is none."""
        from google.cloud.aiplatform_v1 import types

        start = max(self._clock.now(), schedule.start_time)
        schedule.next_run_time = following = cron.parse(schedule.cron).after(start)
        over = schedule.end_time and following > schedule.end_time
        if over or 0 < schedule.max_run_count <= schedule.started_run_count:
            schedule.state = types.Schedule.State.COMPLETED
            schedule._pb.ClearField("next_run_time")

    def _bring(self, name: str, old: str, new: str) -> None:
        from google.cloud.aiplatform_v1 import types

        schedule = self._find(name)
        pipeline_rules.check_state(schedule, old)
        schedule.state = types.Schedule.State[new]
        self._keep(schedule)

    def _keep(self, schedule: Any) -> None:
        self.schedules[schedule.name.rpartition("/")[2]] = schedule

    def _find(self, name: str) -> Any:
        schedule_id = name.rpartition("/")[2]
        if schedule_id not in self.schedules:
            raise not_found(name)
        return self.schedules[schedule_id]
