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
POOL = {
    "machine_spec": {"machine_type": "n1-standard-4"},
    "replica_count": 1,
    "disk_spec": {"boot_disk_type": "pd-ssd"},
    "container_spec": {"image_uri": "image", "command": ["false"]},
}
MODEL = {"display_name": "digits", "container_spec": {"image_uri": "image:1"}}
RUN = {
    "display_name": "digits",
    "pipeline_spec": {"pipelineInfo": {"name": "training"}, "root": {"dag": {}}},
    "runtime_config": {"gcs_output_directory": "gs://bucket/runs"},
}


class Idle:
    """An engine whose runs go on until they are cancelled."""

    def start(self, job):
        job.state = "PIPELINE_STATE_RUNNING"

    def update(self, job):
        pass

    def cancel(self, job):
        job.state = "PIPELINE_STATE_CANCELLED"


class Services:
    """An emulator, and a client of each of its services; with `serves`, deployed models answer."""

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
        others = MonitoringService(endpoints, operations), metadata, operations
        server = stack.enter_context(
            Emulator(runs, self.scheduler, jobs, batches, models, endpoints, *others)
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

    def update_schedule(self, name, **fields):
        mask = {"paths": list(fields)}
        return self.schedule.update_schedule(schedule={"name": name, **fields}, update_mask=mask)

    def upload(self, fields, **others):
        return self.model.upload_model({"parent": PARENT, "model": fields, **others}).result()

    def create_endpoint(self, endpoint_id="digits", **fields):
        content = {"display_name": "digits", **fields}
        request = {"parent": PARENT, "endpoint": content, "endpoint_id": endpoint_id}
        return self.endpoint.create_endpoint(request).result().name

    def update_endpoint(self, name, **fields):
        mask = {"paths": [field for field in fields if field != "etag"]}
        content = {"name": name, **fields}
        return self.endpoint.update_endpoint(endpoint=content, update_mask=mask, retry=None)

    def deploy(self, name, split, model=MODEL, **fields):
        """Upload a model and deploy it; return the operation."""
        replicas = {"min_replica_count": 1, "max_replica_count": 2}
        machine = {"machine_spec": {"machine_type": "n1-standard-4"}, **replicas}
        deployed = {"id": "1", "model": self.upload(model).model, "dedicated_resources": machine}
        request = {"endpoint": name, "deployed_model": changed(deployed, **fields)}
        return self.endpoint.deploy_model({**request, "traffic_split": split})

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
