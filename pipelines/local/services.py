"""The services of Vertex AI that a run on this machine uses, served by the emulator."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator

from pipelines.emulator.batch_service import BatchService
from pipelines.emulator.containers import Containers
from pipelines.emulator.endpoint_service import EndpointService
from pipelines.emulator.job_service import JobService
from pipelines.emulator.model_service import FOLDER_NAME, ModelService
from pipelines.emulator.operations import Operations
from pipelines.emulator.processes import Guardian
from pipelines.emulator.server import Emulator
from pipelines.emulator.serving_processes import ServingProcesses


@dataclasses.dataclass(frozen=True)
class Services:
    """The server, and those of its services that start processes for a run."""

    emulator: Emulator
    jobs: JobService
    batches: BatchService


@contextlib.contextmanager
def started_services(
    directory: pathlib.Path, guardian: Guardian, containers: Containers | None
) -> Iterator[Services]:
    """Serve a run whose folder is `directory`; replicas run in `containers`, if there are any."""
    logs = directory / "logs"
    operations = Operations()
    # Models outlive the run that has made them: the next one meets its champion there.
    registry = directory.parent / FOLDER_NAME
    models = ModelService(registry, operations)
    with ServingProcesses(logs / "endpoints", guardian) as servers:
        endpoints = EndpointService(registry, models, operations, servers)
        jobs = JobService(logs, guardian, containers)
        batches = BatchService(logs, guardian, models, operations)
        resources = (jobs, batches, models, endpoints, operations)
        with (
            Emulator(*resources, background=True, guardian=guardian) as emulator,
            jobs,
            batches,
        ):
            yield Services(emulator, jobs, batches)
