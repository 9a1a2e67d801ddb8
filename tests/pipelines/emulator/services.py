"""The services of an emulator whose runs do not end by themselves."""

import copy
import datetime

from google.cloud import aiplatform_v1 as vertex

from components.vertex_client import local_credentials, service
from pipelines.emulator.batch_service import BatchService
from pipelines.emulator.clock import Clock
from pipelines.emulator.endpoint_service import EndpointService
from pipelines.emulator.job_service import JobService
from pipelines.emulator.metadata_service import MetadataService
from pipelines.emulator.model_server import ModelServers
from pipelines.emulator.model_service import ModelService
from pipelines.emulator.monitoring_service import MonitoringService
from pipelines.emulator.operations import Operations
from pipelines.emulator.pipeline_service import PipelineService
from pipelines.emulator.processes import Guardian
from pipelines.emulator.schedule_service import ScheduleService
from pipelines.emulator.server import Emulator

PROJECT = "projects/123456"
PARENT = f"{PROJECT}/locations/us-central1"
STORE = f"{PARENT}/metadataStores/default"


class Idle:
    """An engine whose runs go on until they are cancelled."""

    def start(self, job):
        job.state = "PIPELINE_STATE_RUNNING"

    def update(self, job):
        pass

    def cancel(self, job):
        job.state = "PIPELINE_STATE_CANCELLED"


class Services:
    """An emulator, and a client of each of its services.

    Args:
        serves: whether the models that are deployed answer.
    """

    def __init__(self, folder, stack, serves=False):
        self.clock, operations = Clock(), Operations()
        runs = PipelineService(Idle(), operations, self.clock)
        self.scheduler = ScheduleService(runs, operations, self.clock)
        guardian = stack.enter_context(Guardian())
        jobs = stack.enter_context(JobService(folder / "jobs", guardian, operations))
        servers = None
        if serves:
            servers = stack.enter_context(ModelServers(folder / "endpoints", guardian))
        models = ModelService(folder, operations)
        endpoints = EndpointService(folder, models, operations, servers)
        kept = folder / "batchPredictionJobs"
        batches = BatchService(folder / "batches", guardian, models, operations, kept)
        self.batches = stack.enter_context(batches)
        metadata = MetadataService(operations)
        self.experiments = metadata.experiments
        server = stack.enter_context(
            Emulator(
                runs,
                self.scheduler,
                jobs,
                batches,
                models,
                endpoints,
                MonitoringService(endpoints, operations),
                metadata,
                operations,
            )
        )
        credentials = local_credentials(server.environment)
        for name in ("Endpoint", "Job", "Metadata", "Model", "Pipeline", "Prediction", "Schedule"):
            kind = getattr(vertex, f"{name}ServiceClient")
            client = service(kind, server.endpoint, credentials=credentials)
            setattr(self, name.lower(), client)

    def create_run(self, fields, run_id="one"):
        request = {"parent": PARENT, "pipeline_job": fields, "pipeline_job_id": run_id}
        return self.pipeline.create_pipeline_job(request)

    def create_schedule(self, fields):
        return self.schedule.create_schedule(parent=PARENT, schedule=fields)

    def create_job(self, fields):
        return self.job.create_custom_job(parent=PARENT, custom_job=fields)

    def create_batch(self, fields):
        return self.job.create_batch_prediction_job(parent=PARENT, batch_prediction_job=fields)

    def upload(self, fields, **others):
        return self.model.upload_model({"parent": PARENT, "model": fields, **others}).result()

    def create_context(self, context_id):
        return self.metadata.create_context(parent=STORE, context={}, context_id=context_id)

    def forward(self, **ahead):
        self.clock.advance(datetime.timedelta(**ahead))
        self.scheduler.fire()


def changed(content, **fields):
    """A copy of a request with other values, by their path: a__b for content["a"]["b"]."""
    result = copy.deepcopy(content)
    for path, value in fields.items():
        target = result
        *parents, last = path.split("__")
        for name in parents:
            target = target.setdefault(name, {})
        target[last] = value
    return result
