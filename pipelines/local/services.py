"""The emulator's services: those that a run on this machine uses, and all, for `emulator`."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

from pipelines.local import folders, local_programs
from pipelines.runs import failures
from trainer.data import storage
from vertex.emulator.artifact_registry import ArtifactRegistry
from vertex.emulator.batch_service import BatchService
from vertex.emulator.buckets import FolderBuckets
from vertex.emulator.clock import Clock
from vertex.emulator.cloud_storage import CloudStorage
from vertex.emulator.containers import Containers
from vertex.emulator.endpoint_service import EndpointService
from vertex.emulator.engine.pipeline_engine import PipelineEngine
from vertex.emulator.engine.task_processes import Services
from vertex.emulator.google_hosts import GoogleHosts, TokenService
from vertex.emulator.job_service import JobService
from vertex.emulator.metadata_service import MetadataService
from vertex.emulator.model_server import ModelServers
from vertex.emulator.model_service import FOLDER_NAME, ModelService
from vertex.emulator.monitoring_service import MonitoringService
from vertex.emulator.operations import Operations
from vertex.emulator.pipeline_service import PipelineService
from vertex.emulator.processes import Guardian
from vertex.emulator.project_services import LogEntries, ProjectServices
from vertex.emulator.schedule_service import ScheduleService
from vertex.emulator.server import Emulator
from vertex.emulator.tuning_service import TuningService

EMULATED_PROJECT, EMULATED_REGION = "my-project", "us-central1"
EMULATED_NUMBER = "123456789012"
EMULATED_ACCOUNT = f"training-runner@{EMULATED_PROJECT}.iam.gserviceaccount.com"


@contextlib.contextmanager
def started_services(
    directory: pathlib.Path, guardian: Guardian, containers: Containers | None
) -> Iterator[Services]:
    """Start the services of the run in `directory`; run replicas in `containers`, if given."""
    logs = directory / "logs"
    operations = Operations()
    # Runs share the registry: the next run finds the champion there.
    models = ModelService(operations, directory.parent / FOLDER_NAME)
    with ModelServers(logs / "endpoints", guardian, local_programs.server_program) as servers:
        made = _make_services(models, servers, logs, containers=containers)
        emulator = Emulator(*made, models, operations, background=True, guardian=guardian)
        jobs, tuning_jobs, batches, _ = made
        with emulator, jobs, tuning_jobs, batches:
            kinds, program = (jobs, tuning_jobs, batches), local_programs.component_program
            yield Services(emulator, kinds, guardian, program, containers)


def _make_services(
    models: ModelService,
    servers: ModelServers,
    directory: pathlib.Path,
    *,
    runs: pathlib.Path | None = None,
    containers: Containers | None = None,
) -> tuple[JobService, TuningService, BatchService, EndpointService]:
    """Return services of all kinds of jobs and of endpoints that use the models and servers.

    Args:
        directory: gets a folder for each job.
        runs: has the folders of runs, whose jobs are listed, too; None: no runs.
        containers: run the replicas; None: processes do.
    """
    operations = models.operations
    common: dict[str, Any] = {"directory": directory, "guardian": servers.guardian, "runs": runs}
    program = local_programs.component_program
    jobs = JobService(operations, program=program, containers=containers, **common)
    tuning_jobs = TuningService(operations, trials=jobs, **common)
    batches = BatchService(
        operations,
        models=models,
        program=local_programs.server_program,
        storage=storage,
        **common,
    )
    endpoints = EndpointService(
        operations, models.folder, models.clock, models=models, servers=servers
    )
    return jobs, tuning_jobs, batches, endpoints


def start_emulator(
    root: pathlib.Path, lock: int, stack: contextlib.ExitStack
) -> tuple[Emulator, ScheduleService, GoogleHosts]:
    """Start an emulator of all services, which `stack` stops.

    Return it, its schedules and the hosts that lead clients to it.
    `lock` is the file descriptor of the lock of its folder `root`.
    """
    guardian = stack.enter_context(Guardian(holding=[lock]))
    clock, operations = Clock(root / "clock"), Operations(seconds=1.0)
    stack.enter_context(folders.temporary(guardian))
    engine = PipelineEngine(root, clock, local_programs.digest_code_of, failures.explain)
    resources = root / "resources"
    pipelines = PipelineService(operations, resources, clock, engine=engine)
    metadata = MetadataService(operations, pipelines.stored, resources, clock)
    pipelines.parents = metadata.parents_of
    schedules = ScheduleService(operations, resources, clock, pipelines=pipelines)
    runs = root / "runs"
    models = ModelService(
        operations, runs / FOLDER_NAME, clock, uri=engine.to_uri, local=engine.to_local
    )
    servers = stack.enter_context(
        ModelServers(root / "endpoints", guardian, local_programs.server_program)
    )
    made = _make_services(models, servers, root / "jobs", runs=runs)
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
            metadata,
            operations,
            ArtifactRegistry(root / "pipelines"),
            CloudStorage(FolderBuckets(root / "buckets"), project_number=EMULATED_NUMBER),
            ProjectServices(EMULATED_ACCOUNT, EMULATED_PROJECT, EMULATED_NUMBER),
            tokens := TokenService(),
            guardian=guardian,
        )
    )
    hosts = stack.enter_context(GoogleHosts(server, tokens, EMULATED_PROJECT, EMULATED_REGION))
    kinds = (jobs, tuning_jobs, batches)
    engine.services = Services(server, kinds, guardian, local_programs.component_program)
    stack.callback(engine.close)
    return server, schedules, hosts
