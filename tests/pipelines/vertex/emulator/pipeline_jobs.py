"""Pipeline jobs that do not run: what becomes of the next one is told by `outcomes`."""

import datetime
import json

from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format

from tests.pipelines.vertex.emulator.protos import (
    LOCATION,
    NUMBER,
    P,
    ProtoServer,
    answer,
    check_job,
    filtered,
    masked,
    now,
    numbered,
)
from tests.pipelines.vertex.servers import ApiError


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
        metrics: of its evaluation.
    """

    def __init__(
        self, state="SUCCEEDED", job_error="", task_error="", hours=1.0, polls=1, decision=None,
        launched=True, metrics=None,
    ):  # fmt: skip
        self.state, self.job_error, self.task_error = state, job_error, task_error
        self.hours, self.polls, self.decision = hours, polls, decision or {}
        self.launched, self.metrics = launched, metrics or {}


class PipelineJobs(ProtoServer):
    routes = (
        ("POST", P + "/pipelineJobs", "CreatePipelineJob", "create_pipeline_job"),
        ("GET", P + "/pipelineJobs", "ListPipelineJobs", "list_pipeline_jobs"),
        ("GET", P + "/pipelineJobs/(?P<id>[^/:]+)", "GetPipelineJob", "get_pipeline_job"),
        ("DELETE", P + "/pipelineJobs/(?P<id>[^/:]+)", "DeletePipelineJob", "delete_pipeline_job"),
        ("POST", P + "/pipelineJobs/(?P<id>[^/]+):cancel", "CancelPipelineJob", "cancel_pipeline"),
        ("DELETE", P + "/metadataStores/default/executions/(?P<id>[^/]+)", "DeleteExecution",
         "delete_execution"),
    )  # fmt: skip

    def __init__(self):
        super().__init__()
        self.pipeline_jobs, self.custom_jobs = {}, {}
        self.executions = set()
        self.outcomes = []
        self.pools = [
            {
                "machineSpec": {"machineType": "n1-standard-4"},
                "replicaCount": 1,
                "diskSpec": {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100},
                "containerSpec": {"imageUri": "image"},
            }
        ]
        self._polls = {}

    def create_pipeline_job(self, match, query, headers, body):
        request = self.parse("CreatePipelineJob", match, query, body, "pipeline_job")
        job = types.PipelineJob(request.pipeline_job)
        check_job(job)
        if request.pipeline_job_id in self.pipeline_jobs:
            raise ApiError(409, "ALREADY_EXISTS", f"{request.pipeline_job_id} already exists")
        job.name = f"{numbered(request.parent)}/pipelineJobs/{request.pipeline_job_id}"
        job.state = types.PipelineState.PIPELINE_STATE_PENDING
        job.create_time = job.start_time = now()
        self.pipeline_jobs[request.pipeline_job_id] = job
        outcome = self.outcomes.pop(0) if self.outcomes else Outcome()
        self._polls[request.pipeline_job_id] = [outcome, outcome.polls]
        return answer(job)

    def get_pipeline_job(self, match, query, headers, body):
        self.parse("GetPipelineJob", match, query, body)
        job = self.find(self.pipeline_jobs, match["id"])
        if match["id"] in self._polls:
            context = f"{LOCATION}/metadataStores/default/contexts/{match['id']}"
            job.job_detail.pipeline_run_context.name = context
            outcome, left = self._polls[match["id"]]
            self._polls[match["id"]][1] = left - 1
            if left <= 0:
                self.finish(match["id"], outcome)
            else:
                job.state = types.PipelineState.PIPELINE_STATE_RUNNING
        return answer(job)

    def list_pipeline_jobs(self, match, query, headers, body):
        request = self.parse("ListPipelineJobs", match, query, body)
        jobs = filtered(self.pipeline_jobs.values(), request.filter)
        jobs.sort(key=lambda job: job.create_time, reverse="desc" in request.order_by)
        jobs = [masked(job, request.read_mask) for job in jobs]
        return self.page("pipeline_jobs", types.ListPipelineJobsResponse, jobs, request)

    def delete_pipeline_job(self, match, query, headers, body):
        self.parse("DeletePipelineJob", match, query, body)
        job = self.find(self.pipeline_jobs, match["id"])
        if job.state.name in ("PIPELINE_STATE_RUNNING", "PIPELINE_STATE_PENDING"):
            raise ApiError(400, "FAILED_PRECONDITION", "a running job can't be deleted")
        del self.pipeline_jobs[match["id"]]
        return self.operation()

    def cancel_pipeline(self, match, query, headers, body):
        self.parse("CancelPipelineJob", match, query, body)
        job = self.find(self.pipeline_jobs, match["id"])
        if job.state.name == "PIPELINE_STATE_CANCELLED":
            raise ApiError(400, "FAILED_PRECONDITION", "a run that has ended can't be cancelled")
        self.finish(match["id"], Outcome("CANCELLED"))
        return {}

    def delete_execution(self, match, query, headers, body):
        self.parse("DeleteExecution", match, query, body)
        if match["id"] not in self.executions:
            raise ApiError(404, "NOT_FOUND", "no such execution")
        self.executions.remove(match["id"])
        return self.operation()

    def finish(self, run_id, outcome):
        """Brings a run to its end, with the tasks and the CustomJob of one."""
        self._polls.pop(run_id, None)
        job = self.pipeline_jobs[run_id]
        job.state = types.PipelineState[f"PIPELINE_STATE_{outcome.state}"]
        job.end_time = end = now()
        times = {"start_time": end - datetime.timedelta(hours=outcome.hours), "end_time": end}
        custom_job = self._custom_job(job, run_id, outcome, times)
        root = f"{job.runtime_config.gcs_output_directory}/{NUMBER}/{run_id}"
        details = job.job_detail.task_details
        details.append(_task(1, "create-tfrecords", state="SUCCEEDED", **times))
        details[-1].outputs["records"] = _output(f"{root}/create-tfrecords_1/records")
        details.append(_task(2, "custom-training-job", state=outcome.state, **times))
        for number, detail in enumerate(details):
            execution = f"{run_id}-{number}"
            self.executions.add(execution)
            detail.execution.name = f"{LOCATION}/metadataStores/default/executions/{execution}"
        resource = {"resourceType": "CustomJob", "resourceUri": f"https://x/v1/{custom_job.name}"}
        text = json.dumps({"resources": [resource] if outcome.launched else []})
        metadata = details[-1].execution._pb.metadata
        json_format.ParseDict({"output:gcp_resources": text}, metadata)
        launcher = f"{LOCATION}/customJobs/{self.next()}"
        details[-1].executor_detail.container_detail.main_job = launcher
        if outcome.state == "FAILED":
            details[-1].error.message = outcome.task_error or "Job failed"
        if outcome.launched:
            details.append(types.PipelineTaskDetail(task_id=8, task_name="plan-training"))
            details[-1].outputs["training"] = _output(f"{root}/plan-training_8/training")
        if outcome.metrics:
            details.append(types.PipelineTaskDetail(task_id=7, task_name="evaluate-model"))
            details[-1].outputs["metrics"] = _output("", outcome.metrics)
        if outcome.decision:
            details.append(types.PipelineTaskDetail(task_id=9, task_name="skip-training"))
            output = _output(f"{root}/skip-training_1/decision", outcome.decision)
            details[-1].outputs["decision"] = output

    def _custom_job(self, job, run_id, outcome, times):
        """The CustomJob of a run, kept where it was launched."""
        number = self.next()
        labels = json_format.MessageToDict(job._pb)["runtimeConfig"]["parameterValues"]["labels"]
        custom_job = types.CustomJob(
            name=f"{LOCATION}/customJobs/{number}", display_name=run_id, labels=labels,
            create_time=times["start_time"], state=types.JobState.JOB_STATE_SUCCEEDED, **times,
        )  # fmt: skip
        json_format.ParseDict({"workerPoolSpecs": self.pools}, custom_job.job_spec._pb)
        if outcome.job_error:
            custom_job.state = types.JobState.JOB_STATE_FAILED
            custom_job.error.code, custom_job.error.message = 3, outcome.job_error
        if outcome.launched:
            self.custom_jobs[number] = custom_job
        return custom_job


def _task(task_id, name, *, state, **times):
    state = types.PipelineTaskDetail.State[state]
    return types.PipelineTaskDetail(task_id=task_id, task_name=name, state=state, **times)


def _output(uri, metadata=None):
    artifact = types.Artifact(uri=uri)
    json_format.ParseDict(metadata or {}, artifact._pb.metadata)
    return types.PipelineTaskDetail.ArtifactList(artifacts=[artifact])
