"""A Vertex AI on this machine for tests: REST, parsed and answered with the official protos.

Pipelines do not run: what becomes of the next one is told by `outcomes`. Project IDs turn into
the project's number in names, as they do there.
"""

import datetime
import json
import re

from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format

from tests.pipelines.vertex.servers import ApiError, Server

NUMBER = "123456"
REGION = "us-central1"
P = r"/v1/(?P<parent>projects/[^/]+/locations/[^/]+)"
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")


class Outcome:
    """What becomes of a run.

    Attributes:
        state: the final one.
        job_error: of its CustomJob, if it fails there.
        task_error: of the task that fails.
        hours: that its CustomJob ran.
        polls: answers before the final state.
        decision: metadata of the gate's artifact.
        launched: whether there came to be a CustomJob.
    """

    def __init__(
        self, state="SUCCEEDED", job_error="", task_error="", hours=1.0, polls=1, decision=None,
        launched=True,
    ):  # fmt: skip
        self.state, self.job_error, self.task_error = state, job_error, task_error
        self.hours, self.polls, self.decision = hours, polls, decision or {}
        self.launched = launched


class VertexEmulator(Server):
    routes = (
        ("POST", P + "/pipelineJobs", "CreatePipelineJob", "create_pipeline_job"),
        ("GET", P + "/pipelineJobs", "ListPipelineJobs", "list_pipeline_jobs"),
        ("GET", P + "/pipelineJobs/(?P<id>[^/:]+)", "GetPipelineJob", "get_pipeline_job"),
        ("DELETE", P + "/pipelineJobs/(?P<id>[^/:]+)", "DeletePipelineJob", "delete_pipeline_job"),
        ("POST", P + "/pipelineJobs/(?P<id>[^/]+):cancel", "CancelPipelineJob", "cancel_pipeline"),
        ("POST", P + "/schedules", "CreateSchedule", "create_schedule"),
        ("GET", P + "/schedules", "ListSchedules", "list_schedules"),
        ("PATCH", P + "/schedules/(?P<id>[^/:]+)", "UpdateSchedule", "update_schedule"),
        ("DELETE", P + "/schedules/(?P<id>[^/:]+)", "DeleteSchedule", "delete_schedule"),
        ("POST", P + "/schedules/(?P<id>[^/]+):pause", "PauseSchedule", "pause_schedule"),
        ("POST", P + "/schedules/(?P<id>[^/]+):resume", "ResumeSchedule", "resume_schedule"),
        ("GET", P + "/customJobs", "ListCustomJobs", "list_custom_jobs"),
        ("GET", P + "/customJobs/(?P<id>[^/:]+)", "GetCustomJob", "get_custom_job"),
        ("DELETE", P + "/customJobs/(?P<id>[^/:]+)", "DeleteCustomJob", "delete_custom_job"),
        ("GET", P + "/models", "ListModels", "list_models"),
        ("GET", P + "/models/(?P<id>[^/:]+):listVersions", "ListModelVersions", "list_versions"),
        ("DELETE", P + "/models/(?P<id>[^/]+):deleteVersion", "DeleteModelVersion", "delete_model"),
        ("DELETE", P + "/models/(?P<id>[^/:]+)", "DeleteModel", "delete_whole_model"),
        ("DELETE", P + "/metadataStores/default/executions/(?P<id>[^/]+)", "DeleteExecution",
         "delete_execution"),
        ("GET", "/(v1|ui)/.+/operations/(?P<id>[^/]+)", "GetOperation", "get_operation"),
        ("POST", "/v2/entries:list", "ListLogEntries", "list_log_entries"),
    )  # fmt: skip

    def __init__(self):
        super().__init__()
        self.pipeline_jobs, self.schedules, self.custom_jobs = {}, {}, {}
        self.models = {}
        self.executions = set()
        self.outcomes = []
        self.log_entries = []
        self.pools = [
            {
                "machineSpec": {"machineType": "n1-standard-4"},
                "replicaCount": 1,
                "diskSpec": {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100},
                "containerSpec": {"imageUri": "image"},
            }
        ]
        self._polls = {}
        self._number = 1000

    # Pipeline jobs

    def create_pipeline_job(self, match, query, headers, body):
        request = self._parse("CreatePipelineJob", match, query, body, "pipeline_job")
        job = types.PipelineJob(request.pipeline_job)
        self._check_job(job)
        if request.pipeline_job_id in self.pipeline_jobs:
            raise ApiError(409, "ALREADY_EXISTS", f"{request.pipeline_job_id} already exists")
        job.name = f"{_numbered(request.parent)}/pipelineJobs/{request.pipeline_job_id}"
        job.state = types.PipelineState.PIPELINE_STATE_PENDING
        job.create_time = job.start_time = now()
        self.pipeline_jobs[request.pipeline_job_id] = job
        outcome = self.outcomes.pop(0) if self.outcomes else Outcome()
        self._polls[request.pipeline_job_id] = [outcome, outcome.polls]
        return answer(job)

    def get_pipeline_job(self, match, query, headers, body):
        self._parse("GetPipelineJob", match, query, body)
        job = self._find(self.pipeline_jobs, match["id"])
        if match["id"] in self._polls:
            outcome, left = self._polls[match["id"]]
            self._polls[match["id"]][1] = left - 1
            if left <= 0:
                self.finish(match["id"], outcome)
            else:
                job.state = types.PipelineState.PIPELINE_STATE_RUNNING
        return answer(job)

    def finish(self, run_id, outcome):
        """Brings a run to its end, with the tasks and the CustomJob of one."""
        self._polls.pop(run_id, None)
        job = self.pipeline_jobs[run_id]
        end = now()
        start = end - datetime.timedelta(hours=outcome.hours)
        job.state = types.PipelineState[f"PIPELINE_STATE_{outcome.state}"]
        job.end_time = end
        custom_job_id = self._next()
        name = f"projects/{NUMBER}/locations/{REGION}/customJobs/{custom_job_id}"
        labels = json_format.MessageToDict(job._pb)["runtimeConfig"]["parameterValues"]["labels"]
        custom_job = types.CustomJob(
            name=name, display_name=run_id, labels=labels, start_time=start, end_time=end,
            create_time=start, state=types.JobState.JOB_STATE_SUCCEEDED,
        )  # fmt: skip
        json_format.ParseDict({"workerPoolSpecs": self.pools}, custom_job.job_spec._pb)
        if outcome.job_error:
            custom_job.state = types.JobState.JOB_STATE_FAILED
            custom_job.error.code, custom_job.error.message = 3, outcome.job_error
        if outcome.launched:
            self.custom_jobs[custom_job_id] = custom_job
        root = f"{job.runtime_config.gcs_output_directory}/{NUMBER}/{run_id}"
        failed = outcome.state == "FAILED"
        for number, (task, state, uri) in enumerate(
            [
                ("create-tfrecords", "SUCCEEDED", f"{root}/create-tfrecords_1/records"),
                ("custom-training-job", outcome.state, ""),
            ]
        ):
            execution = f"{run_id}-{number}"
            self.executions.add(execution)
            detail = types.PipelineTaskDetail(
                task_id=number + 1, task_name=task, start_time=start, end_time=end,
                state=types.PipelineTaskDetail.State[state],
            )  # fmt: skip
            store = f"projects/{NUMBER}/locations/{REGION}/metadataStores/default"
            detail.execution.name = f"{store}/executions/{execution}"
            if uri:
                artifact = types.Artifact(uri=uri)
                detail.outputs["records"] = types.PipelineTaskDetail.ArtifactList(
                    artifacts=[artifact]
                )
            else:
                resource = {"resourceType": "CustomJob", "resourceUri": f"https://x/v1/{name}"}
                text = json.dumps({"resources": [resource] if outcome.launched else []})
                launcher = f"projects/{NUMBER}/locations/{REGION}/customJobs/{self._next()}"
                detail.executor_detail.container_detail.main_job = launcher
                json_format.ParseDict({"output:gcp_resources": text}, detail.execution._pb.metadata)
                if failed:
                    detail.error.message = outcome.task_error or "Job failed"
            job.job_detail.task_details.append(detail)
        if outcome.decision:
            artifact = types.Artifact(uri=f"{root}/skip-training_1/decision")
            json_format.ParseDict(outcome.decision, artifact._pb.metadata)
            detail = types.PipelineTaskDetail(task_id=9, task_name="skip-training")
            detail.outputs["decision"] = types.PipelineTaskDetail.ArtifactList(artifacts=[artifact])
            job.job_detail.task_details.append(detail)

    def list_pipeline_jobs(self, match, query, headers, body):
        request = self._parse("ListPipelineJobs", match, query, body)
        jobs = _filtered(self.pipeline_jobs.values(), request.filter)
        jobs.sort(key=lambda job: job.create_time, reverse="desc" in request.order_by)
        return self._page("pipeline_jobs", types.ListPipelineJobsResponse, jobs, request)

    def delete_pipeline_job(self, match, query, headers, body):
        self._parse("DeletePipelineJob", match, query, body)
        job = self._find(self.pipeline_jobs, match["id"])
        if job.state.name in ("PIPELINE_STATE_RUNNING", "PIPELINE_STATE_PENDING"):
            raise ApiError(400, "FAILED_PRECONDITION", "a running job can't be deleted")
        del self.pipeline_jobs[match["id"]]
        return self._operation()

    def cancel_pipeline(self, match, query, headers, body):
        self._parse("CancelPipelineJob", match, query, body)
        self._find(self.pipeline_jobs, match["id"])
        self.finish(match["id"], Outcome("CANCELLED"))
        return {}

    # Schedules

    def create_schedule(self, match, query, headers, body):
        request = self._parse("CreateSchedule", match, query, body, "schedule")
        schedule = types.Schedule(request.schedule)
        if not schedule.cron or not schedule.max_concurrent_run_count:
            raise ApiError(
                400, "INVALID_ARGUMENT", "cron and max_concurrent_run_count are required"
            )
        self._check_job(schedule.create_pipeline_job_request.pipeline_job)
        schedule_id = self._next()
        schedule.name = f"{_numbered(request.parent)}/schedules/{schedule_id}"
        schedule.state = types.Schedule.State.ACTIVE
        schedule.create_time = now()
        # What the service fills in by itself.
        schedule.start_time = schedule.start_time or now()
        schedule.next_run_time = now()
        self.schedules[schedule_id] = schedule
        return answer(schedule)

    def list_schedules(self, match, query, headers, body):
        request = self._parse("ListSchedules", match, query, body)
        return self._page(
            "schedules", types.ListSchedulesResponse, list(self.schedules.values()), request
        )

    def update_schedule(self, match, query, headers, body):
        request = types.UpdateScheduleRequest()
        document = {"schedule": json.loads(body), "updateMask": query["updateMask"]}
        json_format.ParseDict(document, request._pb)
        self.requests.append(("UpdateSchedule", request))
        schedule = self._find(self.schedules, match["id"])
        if not request.update_mask.paths:
            raise ApiError(400, "INVALID_ARGUMENT", "update_mask is required")
        for path in request.update_mask.paths:
            setattr(schedule, path, getattr(request.schedule, path))
        return answer(schedule)

    def delete_schedule(self, match, query, headers, body):
        self._parse("DeleteSchedule", match, query, body)
        self._find(self.schedules, match["id"])
        del self.schedules[match["id"]]
        return self._operation()

    def pause_schedule(self, match, query, headers, body):
        self._parse("PauseSchedule", match, query, body)
        self._find(self.schedules, match["id"]).state = types.Schedule.State.PAUSED
        return {}

    def resume_schedule(self, match, query, headers, body):
        self._parse("ResumeSchedule", match, query, body)
        self._find(self.schedules, match["id"]).state = types.Schedule.State.ACTIVE
        return {}

    # Custom jobs, models, metadata, operations, logs

    def list_custom_jobs(self, match, query, headers, body):
        request = self._parse("ListCustomJobs", match, query, body)
        jobs = _filtered(self.custom_jobs.values(), request.filter)
        return self._page("custom_jobs", types.ListCustomJobsResponse, jobs, request)

    def get_custom_job(self, match, query, headers, body):
        self._parse("GetCustomJob", match, query, body)
        return answer(self._find(self.custom_jobs, match["id"]))

    def delete_custom_job(self, match, query, headers, body):
        self._parse("DeleteCustomJob", match, query, body)
        self._find(self.custom_jobs, match["id"])
        del self.custom_jobs[match["id"]]
        return self._operation()

    def list_models(self, match, query, headers, body):
        request = self._parse("ListModels", match, query, body)
        latest = [versions[-1] for versions in self.models.values()]
        return self._page("models", types.ListModelsResponse, _filtered(latest, request.filter),
                          request)  # fmt: skip

    def list_versions(self, match, query, headers, body):
        request = self._parse("ListModelVersions", match, query, body)
        versions = self._find(self.models, match["id"].partition("@")[0])
        return self._page("models", types.ListModelVersionsResponse, versions, request)

    def delete_model(self, match, query, headers, body):
        request = self._parse("DeleteModelVersion", match, query, body)
        model, _, version = match["id"].partition("@")
        versions = self._find(self.models, model)
        found = next((one for one in versions if one.version_id == version), None)
        if not found:
            raise ApiError(404, "NOT_FOUND", f"{request.name} not found")
        if "default" in found.version_aliases or len(versions) == 1:
            raise ApiError(400, "FAILED_PRECONDITION", "the default version can't be deleted")
        versions.remove(found)
        return self._operation()

    def delete_whole_model(self, match, query, headers, body):
        self._parse("DeleteModel", match, query, body)
        self._find(self.models, match["id"])
        del self.models[match["id"]]
        return self._operation()

    def delete_execution(self, match, query, headers, body):
        self._parse("DeleteExecution", match, query, body)
        if match["id"] not in self.executions:
            raise ApiError(404, "NOT_FOUND", "no such execution")
        self.executions.remove(match["id"])
        return self._operation()

    def get_operation(self, match, query, headers, body):
        self.requests.append(("GetOperation", None))
        return self._operation(done=True)

    def list_log_entries(self, match, query, headers, body):
        request = json.loads(body)
        self.requests.append(("ListLogEntries", request))
        wanted = dict(re.findall(r'resource\.labels\.(\w+)="([^"]*)"', request["filter"]))
        entries = [
            entry
            for entry in self.log_entries
            if wanted.items() <= entry["resource"]["labels"].items()
        ]
        return {"entries": entries[::-1][: request["pageSize"]]}

    def _parse(self, name, match, query, body, field=""):
        """The request's proto, from path, query and body as google.api.http has it."""
        request = getattr(types, f"{name}Request")()
        document = {key: value for key, value in query.items() if not key.startswith("$")}
        if "id" in match.groupdict():
            document["name"] = match.string.removeprefix("/v1/").partition(":")[0]
        else:
            document["parent"] = match["parent"]
        if field:
            document[field] = json.loads(body)
        try:
            json_format.ParseDict(document, request._pb)
        except json_format.ParseError as error:
            raise ApiError(400, "INVALID_ARGUMENT", str(error)) from None
        self.requests.append((name, request))
        return request

    def _check_job(self, job):
        document = json_format.MessageToDict(job._pb)
        runtime = document.get("runtimeConfig", {})
        if not runtime.get("gcsOutputDirectory", "").startswith("gs://"):
            raise ApiError(400, "INVALID_ARGUMENT", "gcs_output_directory is required")
        known = document["pipelineSpec"]["root"]["inputDefinitions"]["parameters"]
        for name in runtime.get("parameterValues", {}):
            if name not in known:
                raise ApiError(400, "INVALID_ARGUMENT", f"unknown parameter {name}")
        for key, value in job.labels.items():
            if not _LABEL.fullmatch(key) or not _LABEL.fullmatch(value):
                raise ApiError(400, "INVALID_ARGUMENT", f"invalid label {key}={value}")

    def _find(self, resources, key):
        if key not in resources:
            raise ApiError(404, "NOT_FOUND", f"{key} is not found.")
        return resources[key]

    def _page(self, field, response, items, request):
        """Two at a time, so that a client that forgets further pages is caught."""
        start = int(request.page_token or 0)
        token = str(start + 2) if start + 2 < len(items) else ""
        return answer(response(**{field: items[start : start + 2], "next_page_token": token}))

    def _operation(self, done=False):
        name = f"projects/{NUMBER}/locations/{REGION}/operations/{self._next()}"
        operation = {"name": name}
        if done:
            operation |= {
                "done": True,
                "response": {"@type": "type.googleapis.com/google.protobuf.Empty"},
            }
        return operation

    def _next(self):
        self._number += 1
        return str(self._number)


def answer(message):
    return json.loads(type(message).to_json(message, use_integers_for_enums=False))


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def _numbered(parent):
    return re.sub(r"^projects/[^/]+", f"projects/{NUMBER}", parent)


def _filtered(resources, text):
    found = list(resources)
    for term in filter(None, text.split(" AND ")):
        match = re.fullmatch(r'labels\.([\w-]+)="([^"]*)"', term)
        if not match:
            raise ApiError(400, "INVALID_ARGUMENT", f"invalid filter {term!r}")
        found = [one for one in found if one.labels.get(match[1]) == match[2]]
    return found
