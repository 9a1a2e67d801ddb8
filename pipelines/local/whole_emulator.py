"""An emulator of all services of Vertex AI that this project uses, for `emulator`."""

import contextlib
from pathlib import Path

from pipelines import local_programs
from pipelines.local import folders
from pipelines.local.imported_code import digest_code_of
from pipelines.runs import failures
from trainer.data import storage
from vertex_emulator.artifact_registry import ArtifactRegistry
from vertex_emulator.batch_service import BatchService
from vertex_emulator.clock import Clock
from vertex_emulator.cloud_storage import CloudStorage, FolderBuckets
from vertex_emulator.endpoint_service import EndpointService
from vertex_emulator.engine.pipeline_engine import PipelineEngine
from vertex_emulator.engine.pipeline_run import PipelineRun
from vertex_emulator.engine.task_processes import Services
from vertex_emulator.job_service import JobService, LogEntries
from vertex_emulator.metadata_service import MetadataService
from vertex_emulator.model_server import ModelServers
from vertex_emulator.model_service import FOLDER_NAME, ModelService
from vertex_emulator.monitoring_service import MonitoringService
from vertex_emulator.operations import Operations
from vertex_emulator.pipeline_service import PipelineService
from vertex_emulator.processes import Guardian
from vertex_emulator.project_services import ProjectServices
from vertex_emulator.schedule_service import ScheduleService
from vertex_emulator.server import Emulator

PROJECT, REGION = "my-project", "us-central1"
ACCOUNT = f"training-runner@{PROJECT}.iam.gserviceaccount.com"


def start(root: Path, stack: contextlib.ExitStack) -> tuple[Emulator, ScheduleService]:
    """Start an emulator of all services, which `stack` stops; return it and its schedules."""
    guardian = stack.enter_context(Guardian())
    clock, operations = Clock(root / "clock"), Operations(seconds=1.0)
    stack.enter_context(folders.temporary(guardian))
    engine = PipelineEngine(root, clock, digest_code_of, explain)
    jobs = JobService(
        operations,
        directory=root / "jobs",
        guardian=guardian,
        runs=root / "runs",
        program=local_programs.component_program,
    )
    resources = root / "resources"
    pipelines = PipelineService(operations, resources, clock, engine=engine)
    schedules = ScheduleService(operations, resources, clock, pipelines=pipelines)
    registry = root / "runs" / FOLDER_NAME
    models = ModelService(operations, registry, clock, uri=engine.to_uri, local=engine.to_local)
    servers = stack.enter_context(
        ModelServers(root / "endpoints", guardian, local_programs.server_program)
    )
    endpoints = EndpointService(operations, registry, clock, models=models, servers=servers)
    batches = BatchService(
        operations,
        resources,
        clock,
        directory=root / "jobs",
        guardian=guardian,
        models=models,
        program=local_programs.server_program,
        storage=storage,
    )
    server = stack.enter_context(
        Emulator(
            pipelines,
            schedules,
            stack.enter_context(jobs),
            LogEntries(jobs.read_log_entries),
            stack.enter_context(batches),
            models,
            endpoints,
            MonitoringService(operations, resources, clock, endpoints=endpoints),
            MetadataService(operations, pipelines.stored, resources),
            operations,
            ArtifactRegistry(root / "pipelines"),
            CloudStorage(FolderBuckets(root / "buckets")),
            ProjectServices(ACCOUNT),
            guardian=guardian,
        )
    )
    engine.services = Services(server, (jobs, batches), guardian, local_programs.component_program)
    stack.callback(engine.close)
    return server, schedules


def explain(run: PipelineRun) -> str:
    """Return why a run failed, from the logs of its tasks."""

    return failures.find_failure(run, "").message
