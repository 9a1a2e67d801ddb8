"""The processes of a run's tasks: containers of components, and Google's launchers of jobs."""

import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vertex.emulator.background_jobs import BackgroundJob, BackgroundJobs
from vertex.emulator.containers import Containers
from vertex.emulator.engine import bucket_executor
from vertex.emulator.engine.task_environments import TaskEnvironment, split_installs
from vertex.emulator.environment import (
    Program,
    child_environment,
    importing_vertex,
    run_command,
)
from vertex.emulator.processes import Guardian, Process
from vertex.emulator.server import Emulator
from vertex.errors import InputError
from vertex.facts.jobs import RUN_LABEL, TASK_LABEL
from vertex.facts.json_numbers import Json

LAUNCHERS = {
    f"google_cloud_pipeline_components.container.v1.{kind}.launcher"
    for kind in ("custom_job", "batch_prediction_job", "hyperparameter_tuning_job")
}
"""Google's modules that create a job on Vertex AI and wait for its end."""
_LAUNCHER_PACKAGE = "google_cloud_pipeline_components.container."
MAIL_MODULE = "google_cloud_pipeline_components.container.v1.vertex_notification_email.executor"
_CANCEL_GRACE_SECONDS = 10.0
_LAUNCHER = [sys.executable, "-u", "-m", "vertex.emulator.engine.launcher"]
_LONGEST_LABEL = 63


@dataclasses.dataclass(frozen=True)
class Services:
    """Services that the tasks of runs use: an emulator, its services of jobs, containers."""

    emulator: Emulator
    jobs: Sequence[BackgroundJobs[Any]]  # services of jobs of every kind
    guardian: Guardian
    # Returns the program on this machine for the command of an image.
    program: Callable[[str, Sequence[str]], Program] = run_command
    containers: Containers | None = None  # None: tasks and replicas run as processes


@dataclasses.dataclass(eq=False)
class TaskProcesses:
    """The processes of the tasks of one run."""

    services: Services  # the services that the tasks use
    run: str  # value of the label that marks the run's jobs
    spec: Json  # the run's PipelineSpec
    logs: pathlib.Path  # folder of the tasks' logs
    in_bucket: bool  # whether the run's artifacts are in Cloud Storage

    def __post_init__(self) -> None:
        self._variables = self.services.emulator.task_environment
        for service in self.services.jobs:
            service.run_logs[self.run] = self.logs
        self._lock = threading.Lock()
        self._running: list[Process] = []
        self.cancelled, self.killed = threading.Event(), threading.Event()
        executors = self.spec.get("deploymentSpec", {}).get("executors", {}).values()
        containers = [executor.get("container", {}) for executor in executors]
        commands = [container.get("command", []) for container in containers]
        if not self.services.containers:
            check_images(containers)
        if not self.services.emulator.task_variables:
            check_launchers(commands)
        # Of the first launcher that a task needs, a process is started early: its imports take
        # less time than the first tasks.
        self._launcher = next(filter(None, map(find_launcher, commands)), "")
        self._warm = self._start_launcher(self._launcher) if self._launcher else None

    def image_of(self, image: str) -> str:
        """Return the ID of the image that tasks run in; without containers, its name."""
        containers = self.services.containers
        return containers.image_id(image) if containers else image

    def make_folder(self, folder: pathlib.Path) -> None:
        """Create the folder of a task's outputs, in which the user of its container may write."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.services.containers:
            folder.chmod(0o777)

    def execute(
        self,
        task: str,
        image: str,
        command: Sequence[str],
        variables: Json,
        log: pathlib.Path,
        *,
        after_cancel: bool = False,
    ) -> int | None:
        """Run a task's container to its end; return its exit code, None if it was cancelled.

        `task` is the task's path. -n is returned if signal n ended the process, and 1 if the
        process succeeded but a job that it launched did not. With `after_cancel`, it runs even if
        the run has been cancelled.
        """
        stop = self.killed if after_cancel else self.cancelled
        if MAIL_MODULE in command:
            log.write_text("Nothing is sent: e-mails are a service of Vertex AI\n")
            return 0
        installs, rest = split_installs(command)
        is_isolated = installs or self.services.program is run_command
        if is_isolated and not self.services.containers and not find_launcher(command):
            environment = TaskEnvironment(installs or "true", image)
            return self._execute_isolated(environment, rest, variables, log, stop)
        earlier = self.jobs_of(task)  # of attempts that failed
        with self._lock:
            if stop.is_set():
                return None
            if launcher := find_launcher(command):
                process = self._launch(task, launcher, command, log)
            else:
                process = self._start(task, image, command, variables, log)
            self._running.append(process)
        process.finished.wait()
        launched = [job for job in self.jobs_of(task) if job not in earlier]
        for job in launched:
            # Without its launcher, no process waits for the job.
            job.cancel()
            job.join()
        self._running.remove(process)
        if stop.is_set():
            return None
        # A launcher that receives SIGTERM cancels its job and exits with 0.
        failed = any(job.state != "SUCCEEDED" for job in launched)
        return process.returncode or int(failed)

    def _execute_isolated(
        self,
        environment: TaskEnvironment,
        command: list[str],
        variables: Json,
        log: pathlib.Path,
        stop: threading.Event,
    ) -> int | None:
        """Run a task in an environment and a working folder of its own, unless it is to stop."""
        with tempfile.TemporaryDirectory(prefix="task-") as folder:
            with environment.locked():
                if not environment.is_ready:
                    code = self._run(environment.creation(), folder, {}, log, stop)
                    if code != 0:
                        return code
                    environment.mark_ready()
            if self.in_bucket:
                command = bucket_executor.replace_executor(command, "bucket_executor")
                variables = {**variables, bucket_executor.FOLDER_VARIABLE: f"{folder}/gcs"}
            return self._run(environment.program(command), folder, variables, log, stop)

    def _run(
        self,
        program: Program,
        folder: str,
        variables: Json,
        log: pathlib.Path,
        stop: threading.Event,
    ) -> int | None:
        """Run a program in a folder; return its exit code, None if it was stopped."""
        with self._lock:
            if stop.is_set():
                return None
            process = Process(
                program.command,
                environment={**program.environment, **self._variables, **variables, "HOME": folder},
                log=log,
                guardian=self.services.guardian,
                folder=folder,
            )
            self._running.append(process)
        process.finished.wait()
        self._running.remove(process)
        return None if stop.is_set() else process.returncode

    def jobs_of(self, task: str = "") -> list[BackgroundJob]:
        """Return the jobs that a task of the run has launched, or all of the run's tasks."""
        label = label_of(task)
        return [
            job
            for service in self.services.jobs
            for job in service.jobs
            if job.launched_by[0] == self.run and label in ("", job.launched_by[1])
        ]

    def find_refusal(self, task: str) -> str:
        """Return why a job that a task wanted to launch was refused; empty if none was."""
        launcher = self.run, label_of(task)
        found = (service.refusals.get(launcher, "") for service in self.services.jobs)
        return next(filter(None, found), "")

    def cancel(self) -> None:
        """Cancel running jobs and tasks with a grace period; prevent new ones."""
        with self._lock:
            self.cancelled.set()
            jobs, running = self.jobs_of(), list(self._running)
        for job in jobs:
            job.cancel()
        for process in running:
            process.terminate(group=True)
        for job in jobs:
            job.join()
        for process in running:
            if not process.finished.wait(_CANCEL_GRACE_SECONDS):
                process.kill()

    def kill(self) -> None:
        """Kill running jobs and tasks; prevent new ones."""
        with self._lock:
            self.cancelled.set()
            self.killed.set()
        for job in self.jobs_of():
            job.kill()
        for process in list(self._running):
            process.kill()

    def close(self) -> None:
        """Kill a launcher that was never needed."""
        if self._warm:
            self._warm.kill()
            self._warm.finished.wait()

    def _start(
        self, task: str, image: str, command: Sequence[str], variables: Json, log: pathlib.Path
    ) -> Process:
        variables = {**self._variables, **variables}
        if containers := self.services.containers:
            return containers.start(task.rpartition("/")[2], command, variables, log)
        if self.in_bucket:
            command = bucket_executor.replace_executor(command)
            folder = tempfile.mkdtemp(prefix="gcs-")
            variables = {**variables, bucket_executor.FOLDER_VARIABLE: folder}
        program = self.services.program(image, command)
        environment = {**program.environment, **variables}
        return Process(
            program.command,
            environment=importing_vertex(environment) if self.in_bucket else environment,
            log=log,
            guardian=self.services.guardian,
        )

    def _launch(
        self, task: str, launcher: str, command: Sequence[str], log: pathlib.Path
    ) -> Process:
        process = None
        if launcher == self._launcher:
            process, self._warm = self._warm, None
        # The process is large, so it may have been killed for lack of memory.
        if process is None or process.finished.is_set():
            process = self._start_launcher(launcher)
        assert process.stdin
        arguments = list(command[command.index(launcher) + 1 :])
        # A file of an earlier attempt would make the launcher wait for that attempt's job.
        stale = arguments[arguments.index("--gcp_resources") + 1]
        pathlib.Path(stale).unlink(missing_ok=True)
        request = {
            "endpoint": self.services.emulator.socket,
            "labels": {RUN_LABEL: self.run, TASK_LABEL: label_of(task)},
            "log": str(log),
            "arguments": arguments,
        }
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        return process

    def _start_launcher(self, launcher: str) -> Process:
        return Process(
            [*_LAUNCHER, launcher],
            environment=importing_vertex({**child_environment(), **self._variables}),
            log=self.logs / "launcher.log",
            guardian=self.services.guardian,
            stdin=subprocess.PIPE,
        )


def label_of(task: str) -> str:
    """Return the label of the jobs that the task with this path launches."""
    return task.replace("/", "-")[-_LONGEST_LABEL:]


def find_launcher(command: Sequence[str]) -> str:
    """Return Google's module that a command runs to launch a job; empty if it runs none."""
    return next((word for word in command if word in LAUNCHERS), "")


def check_images(containers: Iterable[Json]) -> None:
    """Raise InputError if a task that installs packages needs a Python that this machine lacks."""
    for container in containers:
        image = container.get("image", "")
        installs, _ = split_installs(container.get("command", []))
        if installs and "{{" not in image:
            TaskEnvironment(installs, image).check()


def check_launchers(commands: Iterable[Sequence[str]]) -> None:
    """Raise InputError for a module of Google's that would call Google Cloud itself."""
    for word in itertools.chain.from_iterable(commands):
        if word.startswith(_LAUNCHER_PACKAGE) and word not in (*LAUNCHERS, MAIL_MODULE):
            name = word.removeprefix(_LAUNCHER_PACKAGE)
            raise InputError(
                f"a task runs Google's {name}, which calls Google Cloud, so it isn't run here; "
                "submit the pipeline to the emulator, which answers for Google Cloud"
            )


def link_artifacts(folder: pathlib.Path, outputs: Json) -> None:
    """Link a cached task's artifacts into this run's folder, if they are local and have files."""
    for name, artifact in outputs.items():
        uri = getattr(artifact, "uri", "")
        if uri and "://" not in uri and pathlib.Path(uri).exists():
            folder.mkdir(parents=True, exist_ok=True)
            link = folder / name
            if not link.exists() and link != pathlib.Path(uri):
                link.symlink_to(os.path.relpath(uri, folder))
