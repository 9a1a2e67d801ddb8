"""A Vertex AI on this machine, in which a test sets how pipeline jobs end."""

import dataclasses
import datetime
import json

from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format

from components.planning.serving_container import PREBUILT
from tests.faulty_emulator import NUMBER, ById, FaultyEmulator, NoServers
from vertex.emulator.api_error import not_found
from vertex.emulator.clock import Clock
from vertex.emulator.endpoint_service import EndpointService
from vertex.emulator.metadata_service import MetadataService
from vertex.emulator.model_service import ModelService
from vertex.emulator.monitoring_service import MonitoringService
from vertex.emulator.operations import Operations
from vertex.emulator.pipeline_service import PipelineService
from vertex.emulator.project_services import LogEntries
from vertex.emulator.resources import Resources
from vertex.emulator.schedule_service import ScheduleService

LOCATION = f"projects/{NUMBER}/locations/us-central1"
POOL = {
    "machineSpec": {"machineType": "n1-standard-4"},
    "replicaCount": 1,
    "diskSpec": {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100},
    "containerSpec": {"imageUri": "image"},
}
LABELS = {"made-by": "vertex-tensorflow-training", "recipe": "digits"}


def now():
    return datetime.datetime.now(datetime.UTC)


@dataclasses.dataclass
class Outcome:
    """The end of a run, as a test sets it."""

    state: str = "SUCCEEDED"
    job_error: str = ""  # of its CustomJob, if it fails there
    task_error: str = ""  # of the task that fails
    hours: float = 1.0  # that its CustomJob ran
    polls: int = 1  # answers before the final state
    decision: dict | None = None  # metadata of the gate's artifact
    launched: bool = True  # False if it ended before its CustomJob was created
    metrics: dict | None = None  # of its evaluation
    training: dict | None = None  # metrics of its training


class CustomJobs(Resources):
    """The custom jobs that runs would have left."""

    kind = "CustomJob"

    def cancel_custom_job(self, request):
        with self.changing(request.name) as job:
            job.state = types.JobState.JOB_STATE_CANCELLED


class BatchJobs(Resources):
    """The batch prediction jobs that runs would have left."""

    kind = "BatchPredictionJob"


class TuningJobs(Resources):
    kind = "HyperparameterTuningJob"


class NoData:
    """BigQuery and Cloud Storage without any dataset or bucket."""

    routes = (("GET", "/(?:bigquery|storage)/v[12]/.+", "GetData"),)

    def get_data(self, request):
        raise not_found(request.match[0])


class VertexEmulator(FaultyEmulator):
    """All services, in pages of two; also the engine that runs pipeline jobs."""

    def __init__(self, model_folder):
        clock = Clock()
        operations = self.operations = Operations(seconds=0.001)
        self.outcomes, self.empty_log_pages = [], 0
        self.polls_of_a_cancellation = 0
        self._polls, self._number = {}, 1000
        pipelines = PipelineService(operations, None, clock, engine=self)
        schedules = ScheduleService(operations, None, clock, pipelines=pipelines)
        custom_jobs, self.log_entries = CustomJobs(operations), []
        models = ModelService(operations, model_folder)
        metadata = MetadataService(operations, pipelines.stored)
        self.servers = NoServers()
        endpoints = EndpointService(operations, model_folder, models=models, servers=self.servers)
        self.deploy_model = endpoints.deploy_model
        monitoring = MonitoringService(operations, endpoints=endpoints)
        batch_jobs, tuning_jobs = BatchJobs(operations), TuningJobs(operations)
        services = [pipelines, schedules, custom_jobs, batch_jobs, tuning_jobs, models, endpoints]
        for service in services:
            service.page_size = 2
        self.pipeline_jobs, self.schedules = ById(pipelines), ById(schedules)
        self.custom_jobs, self.endpoints = ById(custom_jobs), ById(endpoints)
        self.batch_jobs, self.tuning_jobs = ById(batch_jobs), ById(tuning_jobs)
        self.models, self.monitoring_jobs = ById(models), ById(monitoring)
        log = LogEntries(lambda: self.log_entries)
        self.executions, self._experiments = metadata.executions.stored, metadata.children
        super().__init__(*services, log, monitoring, metadata, operations, NoData())

    def call(self, name, function, request):
        if name == "ListLogEntries" and self.empty_log_pages:
            # As documented: a page may be empty, with a token for where the search goes on.
            self.empty_log_pages -= 1
            return super().call(name, lambda _: {"nextPageToken": "0"}, request)
        return super().call(name, function, request)

    def sent_json(self, name):
        """Return the requests of a name, as JSON."""
        return [json_format.MessageToDict(request._pb) for request in self.sent(name)]

    @property
    def experiments(self):
        """IDs of the runs of each experiment, by the experiment's ID."""
        return {_id(name): [*map(_id, runs)] for name, runs in self._experiments.items()}

    def put_version(self, number, aliases=(), **fields):
        """Add a version of the model digits."""
        names = {"name": f"{LOCATION}/models/digits", "display_name": "digits", "labels": LABELS}
        names |= {"version_id": str(number), "container_spec": {"image_uri": PREBUILT}}
        version = types.Model(version_aliases=aliases, **names | fields)
        entry = self.models.get("digits", {"last": 0, "versions": {}, "evaluations": {}})
        entry["versions"][str(number)] = version
        entry["last"] = max(entry["last"], number)
        self.models["digits"] = entry

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
        """End a run, with the tasks and the CustomJob of an outcome."""
        self._polls.pop(run_id, None)
        job = self.pipeline_jobs[run_id]
        job.state = types.PipelineState[f"PIPELINE_STATE_{outcome.state}"]
        job.end_time = end = now()
        times = {"start_time": end - datetime.timedelta(hours=outcome.hours), "end_time": end}
        custom_job = self._custom_job(job, run_id, outcome, times)
        root = f"{job.runtime_config.gcs_output_directory}/{NUMBER}/{run_id}"
        records, training = f"{root}/create-tfrecords_1/records", f"{root}/plan-training_8/training"
        details = [
            _task(1, "create-tfrecords", "records", records, state="SUCCEEDED", **times),
            _task(2, "custom-training-job", state=outcome.state, **times),
        ]
        for number, detail in enumerate(details):
            detail.execution.name = (
                f"{LOCATION}/metadataStores/default/executions/{run_id}-{number}"
            )
            self.executions[detail.execution.name] = detail.execution
        trained = details[-1]
        resource = {"resourceType": "CustomJob", "resourceUri": f"https://x/v1/{custom_job.name}"}
        text = json.dumps({"resources": [resource] if outcome.launched else []})
        json_format.ParseDict({"output:gcp_resources": text}, trained.execution._pb.metadata)
        launcher = f"{LOCATION}/customJobs/{self._next()}"
        trained.executor_detail.container_detail.main_job = launcher
        if outcome.state == "FAILED":
            trained.error.message = outcome.task_error or "Job failed"
        if outcome.launched:
            details.append(_task(8, "plan-training", "training", training))
        if outcome.metrics:
            details.append(_task(7, "evaluate-model", "metrics", metadata=outcome.metrics))
        if outcome.training:
            details.append(_task(6, "collect-training", "metrics", metadata=outcome.training))
        if outcome.decision:
            decision = f"{root}/skip-training_1/decision"
            details.append(_task(9, "skip-training", "decision", decision, outcome.decision))
        job.job_detail.task_details = details

    def _custom_job(self, job, run_id, outcome, times):
        """Make the CustomJob of a run; keep it if it was launched."""
        number = self._next()
        labels = json_format.MessageToDict(job._pb)["runtimeConfig"]["parameterValues"]["labels"]
        custom_job = types.CustomJob(name=f"{LOCATION}/customJobs/{number}", display_name=run_id)
        custom_job.labels, custom_job.state = labels, types.JobState.JOB_STATE_SUCCEEDED
        custom_job.create_time = custom_job.start_time = times["start_time"]
        custom_job.end_time = times["end_time"]
        json_format.ParseDict({"workerPoolSpecs": [POOL]}, custom_job.job_spec._pb)
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


def _task(task_id, name, output="", uri="", metadata=None, **fields):
    detail = types.PipelineTaskDetail(task_id=task_id, task_name=name, **fields)
    if output:
        artifact = types.Artifact(uri=uri)
        json_format.ParseDict(metadata or {}, artifact._pb.metadata)
        detail.outputs[output] = types.PipelineTaskDetail.ArtifactList(artifacts=[artifact])
    return detail
