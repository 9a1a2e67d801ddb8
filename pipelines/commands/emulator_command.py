"""The command `emulator`: emulate Vertex AI on this machine, to practice without a cloud."""

import contextlib
import fcntl
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from components.planning.code_digest import code_digest
from pipelines.commands.arguments import expand_folder
from trainer.errors import InputError

if TYPE_CHECKING:
    from vertex_emulator.engine.pipeline_run import PipelineRun

_PROJECT, _REGION = "my-project", "us-central1"
_ACCOUNT = f"training-runner@{_PROJECT}.iam.gserviceaccount.com"
_FIRE_SECONDS = 1.0


def emulator(
    folder: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder for the emulator's runs, models and buckets.",
            callback=expand_folder,
        ),
    ] = Path("emulated"),
) -> None:
    """Start an emulator of Vertex AI; print the environment that points other commands to it."""
    root = folder.resolve()
    try:
        (root / "buckets").mkdir(parents=True, exist_ok=True)
        lock = (root / ".lock").open("w")
    except OSError as error:
        raise InputError(
            f"--folder {str(folder)!r} can't be created ({error.strerror}); give another folder"
        ) from None
    from vertex_emulator.artifact_registry import REPOSITORY
    from vertex_emulator.server import to_api_error

    ended = threading.Event()
    with contextlib.ExitStack() as stack:
        try:
            fcntl.flock(stack.enter_context(lock), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"--folder {str(folder)!r} is in use by another emulator; end it, or give another"
            ) from None
        server, schedules = _start(root, stack)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        _print_exports(server.environment, f"{server.endpoint}{REPOSITORY}")
        while not ended.wait(_FIRE_SECONDS):
            try:
                server.call("Fire", lambda _: schedules.fire(), None)
            except Exception as error:
                # For example, the file of a schedule is damaged. The emulator continues.
                typer.echo(f"schedules: {to_api_error(error, 'Fire')}", err=True)


def _start(root: Path, stack: contextlib.ExitStack) -> tuple[Any, Any]:
    """Start an emulator of all services, which `stack` stops; return it and its schedules."""
    from pipelines import local_programs
    from pipelines.local import folders
    from pipelines.local.imported_code import digest_code_of
    from trainer.data import storage
    from vertex_emulator.artifact_registry import ArtifactRegistry
    from vertex_emulator.batch_service import BatchService
    from vertex_emulator.clock import Clock
    from vertex_emulator.cloud_storage import CloudStorage, FolderBuckets
    from vertex_emulator.endpoint_service import EndpointService
    from vertex_emulator.engine.pipeline_engine import PipelineEngine
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
            ProjectServices(_ACCOUNT),
            guardian=guardian,
        )
    )
    engine.services = Services(server, (jobs, batches), guardian, local_programs.component_program)
    stack.callback(engine.close)
    return server, schedules


def explain(run: "PipelineRun") -> str:
    """Return why a run failed, from the logs of its tasks."""
    from pipelines.runs import failures

    return failures.find_failure(run, "").message


def _print_exports(environment: dict[str, str], repository: str) -> None:
    # Runs execute this checkout's code. As with a pushed image, other code has another digest.
    images, digest = f"{_REGION}-docker.pkg.dev/{_PROJECT}/images", code_digest()
    settings: dict[str, Any] = {
        **environment,
        "GOOGLE_CLOUD_PROJECT": _PROJECT,
        "GOOGLE_CLOUD_REGION": _REGION,
        "VERTEX_PIPELINE_ROOT": f"gs://{_PROJECT}-training/runs",
        "VERTEX_IMAGE": f"{images}/training@sha256:{digest}",
        "VERTEX_GPU_IMAGE": f"{images}/training-gpu@sha256:{digest}",
        "VERTEX_SERVING_IMAGE": f"{images}/serving@sha256:{digest}",
        "VERTEX_TEMPLATE_REPOSITORY": repository,
        "VERTEX_SERVICE_ACCOUNT": _ACCOUNT,
    }
    for name, value in settings.items():
        print(f"export {name}={value}")
    print("# Ready; Ctrl-C stops the emulator and all of its runs.", flush=True)
