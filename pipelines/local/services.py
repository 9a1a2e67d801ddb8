"""The emulator's services that a run on this machine uses."""

import contextlib
import pathlib
from collections.abc import Iterator

from pipelines.local import local_programs
from pipelines.runs import failures
from trainer.data import storage
from vertex.emulator.containers import Containers
from vertex.emulator.engine.task_processes import Services
from vertex.emulator.local_project import Programs, make_job_services
from vertex.emulator.model_server import ModelServers
from vertex.emulator.model_service import FOLDER_NAME, ModelService
from vertex.emulator.operations import Operations
from vertex.emulator.processes import Guardian
from vertex.emulator.server import Emulator

PROGRAMS = Programs(
    component=local_programs.component_program,
    server=local_programs.server_program,
    code_of=local_programs.digest_code_of,
    explain=failures.explain,
    storage=storage,
)
"""This checkout's code, in place of the project's images."""


@contextlib.contextmanager
def started_services(
    directory: pathlib.Path, guardian: Guardian, containers: Containers | None
) -> Iterator[Services]:
    """Start the services of the run in `directory`; run replicas in `containers`, if given."""
    logs = directory / "logs"
    operations = Operations()
    # Runs share the registry: the next run finds the champion there.
    models = ModelService(operations, directory.parent / FOLDER_NAME)
    with ModelServers(logs / "endpoints", guardian, PROGRAMS.server) as servers:
        made = make_job_services(models, servers, logs, PROGRAMS, containers=containers)
        emulator = Emulator(
            *made.kinds, made.endpoints, models, operations, background=True, guardian=guardian
        )
        with emulator, made.jobs, made.tuning_jobs, made.batches:
            yield Services(emulator, made.kinds, guardian, PROGRAMS.component, containers)
