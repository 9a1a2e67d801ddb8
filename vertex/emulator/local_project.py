"""A Google Cloud project on this machine: all services of the emulator, on one folder.

with LocalProject(pathlib.Path("emulated")) as project:
    os.environ.update(project.environment)   # Google's clients now use it
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import logging
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vertex.emulator import files
from vertex.emulator.artifact_registry import ArtifactRegistry
from vertex.emulator.batch_service import BatchService
from vertex.emulator.buckets import FolderBuckets
from vertex.emulator.clock import Clock
from vertex.emulator.cloud_storage import CloudStorage
from vertex.emulator.containers import Containers
from vertex.emulator.endpoint_service import EndpointService
from vertex.emulator.engine.pipeline_engine import PipelineEngine
from vertex.emulator.engine.pipeline_run import PipelineRun
from vertex.emulator.engine.task_details import explain_task
from vertex.emulator.engine.task_processes import Services
from vertex.emulator.environment import Program, run_command, run_server
from vertex.emulator.google_hosts import GoogleHosts, TokenService
from vertex.emulator.job_service import JobService
from vertex.emulator.metadata_service import MetadataService
from vertex.emulator.model_server import ModelServers
from vertex.emulator.model_service import FOLDER_NAME, ModelService
from vertex.emulator.monitoring_service import MonitoringService
from vertex.emulator.operations import Operations
from vertex.emulator.pipeline_service import PipelineService
from vertex.emulator.processes import Guardian, temporary_folder
from vertex.emulator.project_services import LogEntries, ProjectServices
from vertex.emulator.schedule_service import ScheduleService
from vertex.emulator.server import Emulator, to_api_error
from vertex.emulator.training_service import TrainingService
from vertex.emulator.tuning_service import TuningService
from vertex.errors import InputError

_FIRE_SECONDS = 0.5
_TAIL_BYTES = 4096
_LOCK_SECONDS = 5.0
_POLL_SECONDS = 0.05


def digest_command(command: Sequence[str]) -> str:
    """Return a digest of a task's command, which contains the code of KFP's components."""
    return hashlib.sha256(json.dumps(list(command)).encode()).hexdigest()


def explain_run(run: PipelineRun) -> str:
    """Return why a run failed: its task, and the last line of the task's log."""
    task = run.failed
    if task is None:
        return "the run failed"
    log = run.processes.logs / f"{task.path.replace('/', '.')}.log"
    with contextlib.suppress(OSError):
        lines = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").split("\n")
        if last := next(filter(None, map(str.strip, reversed(lines))), ""):
            return f"{task.display_name}: {last}"
    return f"{task.display_name}: {explain_task(task)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Programs:
    """Programs that run here in place of containers, and functions that describe them."""

    component: Callable[[str, Sequence[str]], Program] = run_command
    server: Callable[[Any], Program] = run_server
    code_of: Callable[[Sequence[str]], str] = digest_command  # digest on which the cache depends
    explain: Callable[[PipelineRun], str] = explain_run
    storage: Any = files  # has functions for files of every kind of URI in use


@dataclasses.dataclass(frozen=True)
class JobServices:
    """The services of jobs of all kinds and of endpoints."""

    jobs: JobService
    tuning_jobs: TuningService
    batches: BatchService
    endpoints: EndpointService

    @property
    def kinds(self) -> tuple[JobService, TuningService, BatchService]:
        return self.jobs, self.tuning_jobs, self.batches


def make_job_services(
    models: ModelService,
    servers: ModelServers,
    directory: pathlib.Path,
    programs: Programs,
    *,
    runs: pathlib.Path | None = None,
    containers: Containers | None = None,
    local: Callable[[str], str] = str,
) -> JobServices:
    """Return the services of jobs and endpoints that use the models and servers.

    Args:
        directory: gets a folder for each job.
        runs: has the folders of runs, whose jobs are listed, too; None: no runs.
        containers: run the replicas; None: processes do.
        local: returns the path of a file in Cloud Storage.
    """
    operations = models.operations
    common: dict[str, Any] = {"directory": directory, "guardian": servers.guardian, "runs": runs}
    jobs = JobService(
        operations, program=programs.component, containers=containers, local=local, **common
    )
    return JobServices(
        jobs,
        TuningService(operations, trials=jobs, **common),
        BatchService(
            operations, models=models, program=programs.server, storage=programs.storage, **common
        ),
        EndpointService(operations, models.folder, models.clock, models=models, servers=servers),
    )


class LocalProject:
    """A project whose services keep everything in one folder; a context manager.

    Raise InputError if another process has the folder, or it can't be written.

    Args:
        folder: keeps runs, models, buckets and all other resources after this process.
        project: ID of the project.
        location: region that clients use by default.
        port: port of the REST and gRPC API; 0: one that is free.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        project: str = "my-project",
        location: str = "us-central1",
        port: int = 0,
        programs: Programs | None = None,
    ) -> None:
        self.folder, self.project, self.location = folder.resolve(), project, location
        self._given = folder
        self.account = f"training-runner@{project}.iam.gserviceaccount.com"
        self.bucket = f"{project}-training"
        self._port, self._programs = port, programs or Programs()
        self._stack, self._ended = contextlib.ExitStack(), threading.Event()

    def __enter__(self) -> "LocalProject":
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that lead clients to this project."""
        return {**self.server.environment, **self.hosts.environment}

    def _start(self, stack: contextlib.ExitStack) -> None:
        folder, programs = self.folder, self._programs
        guardian = stack.enter_context(
            Guardian(holding=[stack.enter_context(_locked(self._given))])
        )
        stack.enter_context(temporary_folder(guardian))
        self.clock, operations = Clock(folder / "clock"), Operations(seconds=1.0)
        engine = PipelineEngine(folder, self.clock, programs.code_of, programs.explain)
        resources, runs = folder / "resources", folder / "runs"
        pipelines = PipelineService(operations, resources, self.clock, engine=engine)
        metadata = MetadataService(operations, pipelines.stored, resources, self.clock)
        pipelines.parents = metadata.parents_of
        schedules = ScheduleService(operations, resources, self.clock, pipelines=pipelines)
        models = ModelService(
            operations, runs / FOLDER_NAME, self.clock, uri=engine.to_uri, local=engine.to_local
        )
        servers = stack.enter_context(ModelServers(folder / "endpoints", guardian, programs.server))
        buckets = folder / "buckets"
        made = make_job_services(
            models,
            servers,
            folder / "jobs",
            programs,
            runs=runs,
            local=lambda uri: str(buckets / uri.removeprefix("gs://")),
        )
        for service in made.kinds:
            stack.enter_context(service)
        self.buckets = FolderBuckets(buckets)
        if self.bucket not in [*self.buckets]:
            self.buckets.make(self.bucket)
        projects = ProjectServices(self.account)
        self.server = stack.enter_context(
            Emulator(
                pipelines,
                schedules,
                *made.kinds,
                LogEntries(made.jobs.read_log_entries),
                models,
                made.endpoints,
                TrainingService(operations, resources, self.clock, jobs=made.jobs, models=models),
                MonitoringService(operations, resources, self.clock, endpoints=made.endpoints),
                metadata,
                operations,
                ArtifactRegistry(folder / "pipelines"),
                CloudStorage(self.buckets, "US-CENTRAL1", self.project, projects.number_of),
                projects,
                tokens := TokenService(),
                guardian=guardian,
                port=self._port,
            )
        )
        hosts = GoogleHosts(self.server, tokens, self.project, self.location)
        self.hosts = stack.enter_context(hosts)
        engine.services = Services(self.server, made.kinds, guardian, programs.component)
        stack.callback(engine.close)
        self._schedules = schedules
        firing = threading.Thread(target=self._fire, name="schedules", daemon=True)
        firing.start()
        stack.callback(firing.join)
        stack.callback(self._ended.set)

    def fire(self) -> None:
        """Start the runs of schedules that are due."""
        self.server.call("Fire", lambda _: self._schedules.fire(), None)

    def _fire(self) -> None:
        while not self._ended.wait(_FIRE_SECONDS):
            try:
                self.fire()
            except Exception as error:
                # For example, the file of a schedule is damaged. The emulator continues.
                message = to_api_error(error, "Fire")
                logging.getLogger(__name__).warning("schedules: %s", message)


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[int]:
    """Hold the lock of a folder, which is created; yield its file descriptor."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, mode=0o600)
    except OSError as error:
        raise InputError(
            f"--folder {str(folder)!r} can't be created ({error.strerror}); give another folder"
        ) from None
    try:
        # Processes of an emulator that has just ended hold the lock a little longer.
        deadline = time.monotonic() + _LOCK_SECONDS
        while not _try_lock(lock):
            if time.monotonic() > deadline:
                raise InputError(
                    f"--folder {str(folder)!r} is in use by another emulator; end it, or give "
                    "another folder"
                )
            time.sleep(_POLL_SECONDS)
        yield lock
    finally:
        os.close(lock)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
