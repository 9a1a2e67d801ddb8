"""An emulator of all services of Vertex AI that this project uses, for `emulator`."""

import contextlib
from pathlib import Path

from pipelines import local_programs
from pipelines.local import folders
from pipelines.local.imported_code import digest_code_of
from pipelines.local.services import make_services
from pipelines.runs import failures
from vertex_emulator.artifact_registry import ArtifactRegistry
from vertex_emulator.clock import Clock
from vertex_emulator.cloud_storage import CloudStorage, FolderBuckets
from vertex_emulator.engine.pipeline_engine import PipelineEngine
from vertex_emulator.engine.task_processes import Services
from vertex_emulator.metadata_service import MetadataService
from vertex_emulator.model_server import ModelServers
from vertex_emulator.model_service import FOLDER_NAME, ModelService
from vertex_emulator.monitoring_service import MonitoringService
from vertex_emulator.operations import Operations
from vertex_emulator.pipeline_service import PipelineService
from vertex_emulator.processes import Guardian
from vertex_emulator.project_services import LogEntries, ProjectServices
from vertex_emulator.schedule_service import ScheduleService
from vertex_emulator.server import Emulator

PROJECT, REGION = "my-project", "us-central1"
ACCOUNT = f"training-runner@{PROJECT}.iam.gserviceaccount.com"


def start(root: Path, stack: contextlib.ExitStack) -> tuple[Emulator, ScheduleService]:
    """Start an emulator of all services, which `stack` stops; return it and its schedules."""
    guardian = stack.enter_context(Guardian())
    clock, operations = Clock(root / "clock"), Operations(seconds=1.0)
    stack.enter_context(folders.temporary(guardian))
    engine = PipelineEngine(root, clock, digest_code_of, failures.explain)
    resources = root / "resources"
    pipelines = PipelineService(operations, resources, clock, engine=engine)
    schedules = ScheduleService(operations, resources, clock, pipelines=pipelines)
    runs = root / "runs"
    models = ModelService(
        operations, runs / FOLDER_NAME, clock, uri=engine.to_uri, local=engine.to_local
    )
    servers = stack.enter_context(
        ModelServers(root / "endpoints", guardian, local_programs.server_program)
    )
    made = make_services(models, servers, root / "jobs", resources, runs=runs)
    jobs, tuning_jobs, batches, endpoints = made
    server = stack.enter_context(
        Emulator(
            pipelines,
            schedules,
            stack.enter_context(jobs),
            LogEntries(jobs.read_log_entries),
            stack.enter_context(tuning_jobs),
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
    kinds = (jobs, tuning_jobs, batches)
    engine.services = Services(server, kinds, guardian, local_programs.component_program)
    stack.callback(engine.close)
    return server, schedules
