"""ScheduleService: Schedules, which start PipelineJobs when they are due."""

import dataclasses
import datetime
import json
from typing import Any

from vertex.emulator import messages
from vertex.emulator.field_rules import refuse, refuse_state
from vertex.emulator.messages import id_of, parent_of, state_of
from vertex.emulator.pipeline_service import PipelineService, check_job, make_id
from vertex.emulator.resources import Resources
from vertex.emulator.server import HttpRequest
from vertex.facts import cron
from vertex.facts.jobs import ENDED

_MAX_DAYS = 3660


@dataclasses.dataclass(eq=False, kw_only=True)
class ScheduleService(Resources):
    """A store of schedules; `fire` starts the runs that are due."""

    kind = "Schedule"
    # Methods for rehearsals, which Vertex AI lacks.
    routes = (("GET", "/clock", "GetClock"), ("POST", "/clock:forward", "ForwardClock"))
    pipelines: PipelineService  # starts the runs

    def check(self, schedule: Any, parent: str) -> None:
        super().check(schedule, parent)
        refuse(not schedule.cron, "schedule.cron is required")
        cron.parse(schedule.cron)
        request = schedule.create_pipeline_job_request
        named = request.pipeline_job_id
        refuse(named, "User-specified ID is not supported in the request template.")
        check_job(request.pipeline_job, parent)

    def begin(self, schedule: Any) -> None:
        schedule.state = messages.Schedule.State.ACTIVE
        schedule.start_time = schedule.start_time or schedule.create_time
        self._plan(schedule)

    def change(self, request: Any, present: Any, changed: Any) -> None:
        refuse_state(present.state.name == "COMPLETED", f"{present.name} is COMPLETED")
        for path in {path.partition(".")[0] for path in request.update_mask.paths}:
            before, after = getattr(present, path), getattr(changed, path)
            cleared = before and not after and after is not False
            refuse(cleared, f"{path} can't be cleared")
        # "When you update the schedule, the START_TIME remains unchanged."
        changed.start_time = present.start_time
        self._plan(changed)

    def pause_schedule(self, request: Any) -> None:
        with self.changing(request.name) as schedule:
            _check_state(schedule, "ACTIVE")
            schedule.state = messages.Schedule.State.PAUSED
            schedule.last_pause_time = self.clock.now()

    def resume_schedule(self, request: Any) -> None:
        """Resume a schedule from its next time; skip the runs that it missed."""
        refuse(request.catch_up, "catch_up is not supported here: missed runs are skipped")
        with self.changing(request.name) as schedule:
            _check_state(schedule, "PAUSED")
            schedule.state = messages.Schedule.State.ACTIVE
            schedule.last_resume_time = self.clock.now()
            self._plan(schedule)

    def get_clock(self, request: HttpRequest) -> dict[str, Any]:
        return {"now": self.clock.now().isoformat()}

    def forward_clock(self, request: HttpRequest) -> dict[str, Any]:
        """Set the clock forward by {"days": N}."""
        days = json.loads(request.body)["days"]
        refuse(not 0 <= days <= _MAX_DAYS, f"days is {days}; it must be 0 to {_MAX_DAYS}")
        self.clock.advance(datetime.timedelta(days=days))
        self.fire()
        return self.get_clock(request)

    def fire(self) -> None:
        """Start a run of each active schedule that is due, and plan its next run.

        A run that would exceed max_concurrent_active_run_count is skipped or queued. A schedule
        that has no next run is completed at its end.
        """
        for schedule in self.list_all():
            due = schedule.next_run_time or schedule.end_time
            if schedule.state.name != "ACTIVE" or due > self.clock.now():
                continue
            if not schedule.next_run_time:
                schedule.state = messages.Schedule.State.COMPLETED
                self.store(schedule)
                continue
            limit = schedule.max_concurrent_active_run_count
            if not limit or self._active_runs(schedule) < limit:
                job = self._start(schedule)
                job.schedule_name = schedule.name
                self.pipelines.store(job)
                schedule.started_run_count += 1
                schedule.last_scheduled_run_response = messages.Schedule.RunResponse(
                    scheduled_run_time=schedule.next_run_time, run_response=job.name
                )
            elif schedule.allow_queueing:
                continue
            self._plan(schedule)
            self.store(schedule)

    def _start(self, schedule: Any) -> Any:
        """Start the run that is due; return its job.

        The job's ID has the time at which it was due: if the emulator is killed before it notes
        that the run has started, no second one starts.
        """
        request = messages.CreatePipelineJobRequest(schedule.create_pipeline_job_request)
        request.parent = parent_of(schedule.name)
        number = f"s{id_of(schedule.name)}"
        job_id = make_id(request.pipeline_job, schedule.next_run_time, number)
        request.pipeline_job_id = job_id
        known = self.pipelines.stored.get(f"{request.parent}/pipelineJobs/{job_id}")
        return known or self.pipelines.create(request)

    def _active_runs(self, schedule: Any) -> int:
        """Return the number of runs of a schedule that have not ended."""
        mine = [job for job in self.pipelines.list_all() if job.schedule_name == schedule.name]
        return sum(state_of(job) not in ENDED for job in mine)

    def _plan(self, schedule: Any) -> None:
        """Set the time of a schedule's next run, if any; complete a schedule after its last run."""
        start = max(self.clock.now(), schedule.start_time)
        schedule.next_run_time = following = cron.parse(schedule.cron).next_after(start)
        last = 0 < schedule.max_run_count <= schedule.started_run_count
        if last:
            schedule.state = messages.Schedule.State.COMPLETED
        if last or (schedule.end_time and following > schedule.end_time):
            schedule._pb.ClearField("next_run_time")


def _check_state(schedule: Any, wanted: str) -> None:
    """Refuse to pause or resume a schedule whose state is not `wanted`."""
    state = schedule.state.name
    refuse_state(state != wanted, f"{schedule.name} is {state}")
