"""Schedules that start nothing."""

import json

from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format

from tests.pipelines.vertex.emulator.protos import (
    P,
    ProtoServer,
    answer,
    check_job,
    now,
    numbered,
)
from tests.pipelines.vertex.servers import ApiError


class Schedules(ProtoServer):
    routes = (
        ("POST", P + "/schedules", "CreateSchedule", "create_schedule"),
        ("GET", P + "/schedules", "ListSchedules", "list_schedules"),
        ("GET", P + "/schedules/(?P<id>[^/:]+)", "GetSchedule", "get_schedule"),
        ("PATCH", P + "/schedules/(?P<id>[^/:]+)", "UpdateSchedule", "update_schedule"),
        ("DELETE", P + "/schedules/(?P<id>[^/:]+)", "DeleteSchedule", "delete_schedule"),
        ("POST", P + "/schedules/(?P<id>[^/]+):pause", "PauseSchedule", "pause_schedule"),
        ("POST", P + "/schedules/(?P<id>[^/]+):resume", "ResumeSchedule", "resume_schedule"),
    )

    def __init__(self):
        super().__init__()
        self.schedules = {}
        self.request_is_fixed = False

    def create_schedule(self, match, query, headers, body):
        request = self.parse("CreateSchedule", match, query, body, "schedule")
        schedule = types.Schedule(request.schedule)
        if not schedule.cron or not schedule.max_concurrent_run_count:
            raise ApiError(
                400, "INVALID_ARGUMENT", "cron and max_concurrent_run_count are required"
            )
        check_job(schedule.create_pipeline_job_request.pipeline_job)
        schedule_id = self.next()
        schedule.name = f"{numbered(request.parent)}/schedules/{schedule_id}"
        schedule.state = types.Schedule.State.ACTIVE
        schedule.create_time = now()
        # What the service fills in by itself.
        schedule.start_time = schedule.start_time or now()
        schedule.next_run_time = now()
        self.schedules[schedule_id] = schedule
        return answer(schedule)

    def list_schedules(self, match, query, headers, body):
        request = self.parse("ListSchedules", match, query, body)
        return self.page(
            "schedules", types.ListSchedulesResponse, list(self.schedules.values()), request
        )

    def get_schedule(self, match, query, headers, body):
        self.parse("GetSchedule", match, query, body)
        return answer(self.find(self.schedules, match["id"]))

    def update_schedule(self, match, query, headers, body):
        request = types.UpdateScheduleRequest()
        document = {"schedule": json.loads(body), "updateMask": query["updateMask"]}
        json_format.ParseDict(document, request._pb)
        self.requests.append(("UpdateSchedule", request))
        schedule = self.find(self.schedules, match["id"])
        if not request.update_mask.paths:
            raise ApiError(400, "INVALID_ARGUMENT", "update_mask is required")
        for path in request.update_mask.paths:
            if getattr(schedule, path) and not getattr(request.schedule, path):
                raise ApiError(400, "INVALID_ARGUMENT", f"{path} can't be cleared")
            if path == "create_pipeline_job_request" and self.request_is_fixed:
                raise ApiError(400, "INVALID_ARGUMENT", f"{path} can't be updated")
        for path in request.update_mask.paths:
            setattr(schedule, path, getattr(request.schedule, path))
        return answer(schedule)

    def delete_schedule(self, match, query, headers, body):
        self.parse("DeleteSchedule", match, query, body)
        self.find(self.schedules, match["id"])
        del self.schedules[match["id"]]
        return self.operation()

    def pause_schedule(self, match, query, headers, body):
        self.parse("PauseSchedule", match, query, body)
        return self._bring(match["id"], "ACTIVE", "PAUSED")

    def resume_schedule(self, match, query, headers, body):
        self.parse("ResumeSchedule", match, query, body)
        return self._bring(match["id"], "PAUSED", "ACTIVE")

    def _bring(self, schedule_id, old, new):
        schedule = self.find(self.schedules, schedule_id)
        if schedule.state.name != old:
            raise ApiError(400, "FAILED_PRECONDITION", f"only an {old} schedule can be made {new}")
        schedule.state = types.Schedule.State[new]
        return {}
