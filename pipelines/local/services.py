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
        jobs, batches, endpoints = make_services(models, servers, logs, containers=containers)
        resources = (jobs, batches, models, endpoints, operations)
        emulator = Emulator(*resources, background=True, guardian=guardian)
        with emulator, jobs, batches:
            yield Services(
                emulator, (jobs, batches), guardian, local_programs.component_program, containers
            )


def make_services(
    models: ModelService,
    servers: ModelServers,
    directory: pathlib.Path,
    folder: pathlib.Path | None = None,
    **options: Any,
) -> tuple[JobService, BatchService, EndpointService]:
    """Return services of jobs, batch predictions and endpoints that use the models and servers.

    Args:
        directory: gets a folder for each job.
        folder: keeps the batch predictions; None: memory only.
        options: fields of the JobService.
    """
    operations, clock = models.operations, models.clock
    common: dict[str, Any] = {"directory": directory, "guardian": servers.guardian}
    jobs = JobService(operations, program=local_programs.component_program, **common, **options)
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
    return jobs, batches, endpoints
