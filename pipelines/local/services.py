"""The services of Vertex AI that a run on this machine uses, provided by the emulator."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

from pipelines import local_programs
from trainer.data import storage
from vertex_emulator.batch_service import BatchService
from vertex_emulator.containers import Containers
from vertex_emulator.endpoint_service import EndpointService
from vertex_emulator.engine.task_processes import Services
from vertex_emulator.job_service import JobService
from vertex_emulator.model_server import ModelServers
from vertex_emulator.model_service import FOLDER_NAME, ModelService
from vertex_emulator.operations import Operations
from vertex_emulator.processes import Guardian
from vertex_emulator.server import Emulator
from vertex_emulator.tuning_service import TuningService


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
        made = make_services(models, servers, logs, containers=containers)
        jobs, tuning_jobs, batches, _ = made
        resources = (*made, models, operations)
        emulator = Emulator(*resources, background=True, guardian=guardian)
        with emulator, jobs, tuning_jobs, batches:
            kinds, program = (jobs, tuning_jobs, batches), local_programs.component_program
            yield Services(emulator, kinds, guardian, program, containers)


def make_services(
    models: ModelService,
    servers: ModelServers,
    directory: pathlib.Path,
    folder: pathlib.Path | None = None,
    *,
    runs: pathlib.Path | None = None,
    containers: Containers | None = None,
) -> tuple[JobService, TuningService, BatchService, EndpointService]:
    """Return services of all kinds of jobs and of endpoints that use the models and servers.

    Args:
        directory: gets a folder for each job.
        folder: keeps the batch predictions; None: memory only.
        runs: has the folders of runs, whose jobs are listed, too; None: no runs.
        containers: run the replicas; None: processes do.
    """
    operations, clock = models.operations, models.clock
    common: dict[str, Any] = {"directory": directory, "guardian": servers.guardian}
    program = local_programs.component_program
    jobs = JobService(operations, program=program, containers=containers, runs=runs, **common)
    tuning_jobs = TuningService(operations, trials=jobs, runs=runs, **common)
    batches = BatchService(
        operations,
        folder,
        clock,
        models=models,
        program=local_programs.server_program,
        storage=storage,
        **common,
    )
    endpoints = EndpointService(operations, models.folder, clock, models=models, servers=servers)
    return jobs, tuning_jobs, batches, endpoints
