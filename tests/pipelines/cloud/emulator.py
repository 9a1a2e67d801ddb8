"""A Vertex AI on this machine whose pipeline jobs do not run: `outcomes` say how they end."""

import datetime
import json

from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format

from pipelines.emulator.clock import Clock
from pipelines.emulator.endpoint_service import EndpointService
from pipelines.emulator.job_service import LogEntries
from pipelines.emulator.metadata_service import MetadataService
from pipelines.emulator.model_service import ModelService
from pipelines.emulator.monitoring_service import MonitoringService
from pipelines.emulator.operations import Operations
from pipelines.emulator.pipeline_service import PipelineService
from pipelines.emulator.resources import Resources
from pipelines.emulator.schedule_service import ScheduleService
from tests.emulator import NUMBER, ById, FaultyEmulator

REGION = "us-central1"
LOCATION = f"projects/{NUMBER}/locations/{REGION}"


def now():
    return datetime.datetime.now(datetime.timezone.utc)


class Outcome:
    """The end of a run, as a test sets it.

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


class CustomJobs(Resources):
    """Those that a run would have left."""

    kind = "CustomJob"


class VertexEmulator(FaultyEmulator):
    """All resources, in pages of two; the engine of its pipeline jobs, too.

    Args:
        folder: of the models.
    """

    def __init__(self, folder):
        clock = Clock()
        operations = self.operations = Operations(seconds=0.001)
        self.outcomes, self.empty_log_pages = [], 0
        self.polls_of_a_cancellation = 0
        self.pools = [
            {
                "machineSpec": {"machineType": "n1-standard-4"},
                "replicaCount": 1,
                "diskSpec": {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100},
                "containerSpec": {"imageUri": "image"},
            }
        ]
        self._polls, self._number = {}, 1000
        pipelines = PipelineService(self, operations, clock)
        schedules = ScheduleService(pipelines, operations, clock)
        custom_jobs, self.log_entries = CustomJobs(operations), []
        models = ModelService(folder, operations)
        metadata = MetadataService(operations, pipelines.kept)
        endpoints = EndpointService(folder, models, operations)
        monitoring = MonitoringService(endpoints, operations)
        self.monitoring_jobs = ById(monitoring)
        services = [pipelines, schedules, custom_jobs, models, endpoints]
        for service in services:
            service.page_size = 2
        self.pipeline_jobs, self.schedules = ById(pipelines), ById(schedules)
        self.custom_jobs, self.endpoints = ById(custom_jobs), ById(endpoints)
        self.models = ById(models)
        log = LogEntries(lambda: self.log_entries)
        self.executions, self._experiments = metadata.executions, metadata.experiments
        super().__init__(*services, log, monitoring, metadata, operations)

    def call(self, name, function, request):
        if name == "ListLogEntries":
            # As documented: a page may be empty, with a token for where the search goes on.
            number = int(json.loads(request.body).get("pageToken") or 0)
            if number < self.empty_log_pages:
                return super().call(name, lambda _: {"nextPageToken": str(number + 1)}, request)
        return super().call(name, function, request)

    @property
    def experiments(self):
        """IDs of the runs of each experiment, by the experiment's ID."""
        return {_id(name): [*map(_id, runs)] for name, runs in self._experiments.items()}

    def put_version(self, model_id, version):
        """Adds a version to a model as it is, whenever it was made."""
        entry = self.models.get(model_id, {"last": 0, "versions": {}, "evaluations": {}})
        entry["versions"][version.version_id] = version
        entry["last"] = max(map(int, entry["versions"]))
        self.models[model_id] = entry

    def version_numbers(self, model_id):
        return list(self.models[model_id]["versions"])

    def start(self, job):
        outcome = self.outcomes.pop(0) if self.outcomes else Outcome()
        self._polls[_id(job)] = [outcome, outcome.polls]

    def update(self, job):
        if _id(job) not in self._polls:
            return
        context = f"{LOCATION}/metadataStores/default/contexts/{_id(job)}"
        job.job_detail.pipeline_run_context.name = context
        outcome, left = self._polls[_id(job)]
        self._polls[_id(job)][1] = left - 1
        if left <= 0:
            self.finish(_id(job), outcome)
        elif job.state != types.PipelineState.PIPELINE_STATE_CANCELLING:
            job.state = types.PipelineState.PIPELINE_STATE_RUNNING

    def cancel(self, job):
        self._polls[_id(job)] = [Outcome("CANCELLED"), self.polls_of_a_cancellation]
        self.update(job)

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
            execution = f"{LOCATION}/metadataStores/default/executions/{run_id}-{number}"
            self.executions.add(execution)
            detail.execution.name = execution
        resource = {"resourceType": "CustomJob", "resourceUri": f"https://x/v1/{custom_job.name}"}
        text = json.dumps({"resources": [resource] if outcome.launched else []})
        metadata = details[-1].execution._pb.metadata
        json_format.ParseDict({"output:gcp_resources": text}, metadata)
        launcher = f"{LOCATION}/customJobs/{self._next()}"
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
        number = self._next()
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

    def _next(self):
        self._number += 1
        return str(self._number)


def _id(named):
    return getattr(named, "name", named).rpartition("/")[2]


def _task(task_id, name, *, state, **times):
    state = types.PipelineTaskDetail.State[state]
    return types.PipelineTaskDetail(task_id=task_id, task_name=name, state=state, **times)


def _output(uri, metadata=None):
    artifact = types.Artifact(uri=uri)
    json_format.ParseDict(metadata or {}, artifact._pb.metadata)
    return types.PipelineTaskDetail.ArtifactList(artifacts=[artifact])
