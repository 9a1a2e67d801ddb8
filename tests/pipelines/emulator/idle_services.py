"""The services of an emulator whose runs do not end by themselves."""

import copy
import datetime

from components.planning.serving_container import PREBUILT
from pipelines.local.local_programs import server_program
from tests.faulty_emulator import NoServers
from vertex.client.vertex_client import connect_service, import_client_class, local_credentials
from vertex.emulator.batch_service import BatchService
from vertex.emulator.clock import Clock
from vertex.emulator.endpoint_service import EndpointService
from vertex.emulator.job_service import JobService
from vertex.emulator.metadata_service import MetadataService
from vertex.emulator.model_server import ModelServers
from vertex.emulator.model_service import ModelService
from vertex.emulator.monitoring_service import MonitoringService
from vertex.emulator.operations import Operations
from vertex.emulator.pipeline_service import PipelineService
from vertex.emulator.processes import Guardian
from vertex.emulator.schedule_service import ScheduleService
from vertex.emulator.server import Emulator
from vertex.emulator.tuning_service import TuningService

PROJECT = "projects/123456"
PARENT = f"{PROJECT}/locations/us-central1"
STORE = f"{PARENT}/metadataStores/default"
POOL = {
    "machine_spec": {"machine_type": "n1-standard-4"},
    "replica_count": 1,
    "disk_spec": {"boot_disk_type": "pd-ssd"},
    "container_spec": {"image_uri": "image", "command": ["false"]},
}
MODEL = {"display_name": "digits", "container_spec": {"image_uri": PREBUILT}}
RUN = {
    "display_name": "digits",
    "pipeline_spec": {"pipelineInfo": {"name": "training"}, "root": {"dag": {}}},
    "runtime_config": {"gcs_output_directory": "gs://bucket/runs"},
}
REQUESTS = {
    "pipeline_job": RUN,
    "schedule": {
        "display_name": "digits",
        "cron": "TZ=UTC 0 3 * * 1",
        "max_concurrent_run_count": 1,
        "create_pipeline_job_request": {"parent": PARENT, "pipeline_job": RUN},
    },
    "custom_job": {"display_name": "train", "job_spec": {"worker_pool_specs": [POOL]}},
    "hyperparameter_tuning_job": {
        "display_name": "tune",
        "study_spec": {
            "metrics": [{"metric_id": "accuracy", "goal": "MAXIMIZE"}],
            "parameters": [
                {"parameter_id": "rate", "double_value_spec": {"min_value": 0, "max_value": 1}}
            ],
        },
        "max_trial_count": 5,
        "parallel_trial_count": 2,
        "trial_job_spec": {"worker_pool_specs": [POOL]},
    },
    "batch_prediction_job": {
        "display_name": "batch",
        "model": f"{PARENT}/models/1@1",
        "input_config": {"instances_format": "jsonl", "gcs_source": {"uris": ["gs://b/a.jsonl"]}},
        "output_config": {
            "predictions_format": "jsonl",
            "gcs_destination": {"output_uri_prefix": "gs://b/predictions"},
        },
        "dedicated_resources": {"machine_spec": {"machine_type": "n1-standard-4"}},
    },
    "model": MODEL,
    "endpoint": {"display_name": "digits"},
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
        runs = PipelineService(operations, None, self.clock, engine=Idle())
        self.scheduler = ScheduleService(operations, None, self.clock, pipelines=runs)
        guardian = stack.enter_context(Guardian())
        processes = {"directory": folder / "jobs", "guardian": guardian}
        jobs = stack.enter_context(JobService(operations, **processes))
        tuning = stack.enter_context(TuningService(operations, trials=jobs, **processes))
        self.servers = servers = NoServers()
        if serves:
            self.servers = servers = stack.enter_context(
                ModelServers(folder / "endpoints", guardian, server_program)
            )
        models = ModelService(operations, folder)
        endpoints = EndpointService(operations, folder, models=models, servers=servers)
        batches = BatchService(operations, models=models, program=server_program, **processes)
        self.batches = stack.enter_context(batches)
        metadata = MetadataService(operations)
        self.experiments = metadata.children
        others = MonitoringService(operations, endpoints=endpoints), metadata, operations
        emulator = Emulator(runs, self.scheduler, jobs, tuning, batches, models, endpoints, *others)
        server = stack.enter_context(emulator)
        credentials = local_credentials(server.environment)
        for name in ("endpoint", "job", "metadata", "model", "pipeline", "prediction", "schedule"):
            kind = import_client_class(name)
            client = connect_service(kind, server.endpoint, credentials=credentials)
            setattr(self, name, client)

    def create(self, kind, resource_id="", parent=PARENT, **fields):
        """Create a resource of REQUESTS with other fields; return what the client does."""
        is_job = kind in ("custom_job", "hyperparameter_tuning_job", "batch_prediction_job")
        client = getattr(self, "job" if is_job else kind.removesuffix("_job"))
        verb = "upload" if kind == "model" else "create"
        request = {"parent": parent, kind: changed(REQUESTS[kind], **fields)}
        if resource_id:
            request[f"{kind}_id"] = resource_id
        return getattr(client, f"{verb}_{kind}")(request)

    def update_schedule(self, name, **fields):
        mask = {"paths": list(fields)}
        return self.schedule.update_schedule(schedule={"name": name, **fields}, update_mask=mask)

    def upload(self, **request):
        return self.model.upload_model({"parent": PARENT, "model": MODEL, **request}).result()

    def update_endpoint(self, name, **fields):
        mask = {"paths": [field for field in fields if field != "etag"]}
        content = {"name": name, **fields}
        return self.endpoint.update_endpoint(endpoint=content, update_mask=mask, retry=None)

    def deploy(self, name, split, model=MODEL, **fields):
        """Upload a model and deploy it; return the operation."""
        replicas = {"min_replica_count": 1, "max_replica_count": 2}
        machine = {"machine_spec": {"machine_type": "n1-standard-4"}, **replicas}
        deployed = {
            "id": "1",
            "model": self.upload(model=model).model,
            "dedicated_resources": machine,
        }
        request = {"endpoint": name, "deployed_model": changed(deployed, **fields)}
        return self.endpoint.deploy_model({**request, "traffic_split": split})

    def create_context(self, context_id):
        return self.metadata.create_context(
            parent=STORE, context={"display_name": context_id}, context_id=context_id
        )

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
