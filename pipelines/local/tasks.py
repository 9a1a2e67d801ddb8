"""Execution of kfp.local's tasks, components and launchers, as processes."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from components.artifact_metadata import TASK_BYTES, size
from pipelines import local_programs
from pipelines.local import bucket_executor
from pipelines.local.cache import Journal
from pipelines.local.run_state import RunState
from pipelines.local.services import Services
from pipelines.package import MAIL_MODULE, find_launcher
from trainer.data.storage import is_object
from vertex_emulator.processes import Process
from vertex_facts.jobs import TASK_LABEL

_CANCEL_GRACE_SECONDS = 10.0
_LAUNCHER = [sys.executable, "-u", "-m", "pipelines.local.launcher"]


@dataclasses.dataclass(eq=False)
class ProcessTasks:
    """The runner of a run's tasks, called by `kfp_patches`."""

    run_state: RunState  # the state of the run, which this class updates
    services: Services  # the Vertex AI services that tasks use
    launcher: str  # Google's module that launches the pipeline's jobs; empty if it launches none
    artifacts: str  # path or URI of the folder of the run's artifacts

    def __post_init__(self) -> None:
        self.journal = Journal(self.run_state.folder)
        self._variables = self.services.emulator.environment
        self._environment = {**local_programs.component_environment(), **self._variables}
        self._lock = threading.Lock()
        self._running: list[Process] = []
        self._cancelled = False
        # Started early: its imports take less time than the first tasks.
        self._warm = self._start_launcher(self.launcher) if self.launcher else None

    def image_of(self, image: str) -> str:
        """Return the ID of the image that tasks run in; without containers, its name."""
        containers = self.services.containers
        return containers.image_id(image) if containers else image

    def execute(self, task: str, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Run a task's container to its end; return whether it succeeded."""
        self.run_state.set_state(task, "RUNNING")
        log = self.run_state.tasks[task].log
        if MAIL_MODULE in command:
            log.write_text("Nothing is sent: e-mails are a service of Vertex AI\n")
            return True
        with self._lock:
            if self._cancelled:
                return False
            if launcher := find_launcher(command):
                process = self._launch(task, launcher, command)
            else:
                process = self._start(task, command, log, environment)
            self._running.append(process)
        process.finished.wait()
        launched = self.services.launched_by(task)
        for job in launched:
            # Without its launcher, no process waits for the job.
            job.cancel()
            job.join()
        self._running.remove(process)
        self.run_state.tasks[task].returncode = process.returncode
        # A launcher that receives SIGTERM cancels its job and exits with 0.
        succeeded = process.returncode == 0 and all(job.state == "SUCCEEDED" for job in launched)
        return succeeded and not self._cancelled

    def end(self, task_path: str, outputs: Mapping[str, Any] | None) -> bool:
        """Record the end of a task; return whether it succeeded and its outputs are small enough.

        `outputs` are kfp artifacts and plain values by name; None if it failed.
        """
        task = task_path.rpartition("/")[2]
        entry = self.run_state.tasks[task]
        entry.outputs = dict(outputs or {})
        error = find_size_problem(entry.outputs)
        if error:
            with entry.log.open("a") as log:
                log.write(f"InputError: {error}\n")
        if error or outputs is None:
            self.run_state.set_state(task, "CANCELLED" if self._cancelled else "FAILED")
            return False
        self.journal.put(task_path, outputs)
        if entry.state == "RUNNING":
            self.run_state.set_state(task, "SUCCEEDED")
        else:
            self.run_state.set_state(task, "CACHED")
            self._link(task_path, outputs)
        return True

    def cancel(self) -> None:
        """Cancel running jobs and tasks with a grace period; prevent new ones."""
        with self._lock:
            self._cancelled = True
        for service in self.services.job_services:
            service.cancel()
        for process in list(self._running):
            process.terminate(group=True)
        for service in self.services.job_services:
            service.join()
        for process in list(self._running):
            if not process.finished.wait(_CANCEL_GRACE_SECONDS):
                process.kill()

    def kill(self) -> None:
        """Kill running jobs and tasks; prevent new ones."""
        with self._lock:
            self._cancelled = True
        for service in self.services.job_services:
            service.kill()
        for process in list(self._running):
            process.kill()

    def close(self) -> None:
        """Kill a launcher that was never needed."""
        if self._warm:
            self._warm.kill()
            self._warm.finished.wait()

    def _start(
        self, task: str, command: Sequence[str], log: pathlib.Path, variables: Mapping[str, str]
    ) -> Process:
        if containers := self.services.containers:
            return containers.start(task, command, {**self._variables, **variables}, log)
        process_variables = {**self._environment, **variables}
        if is_object(self.artifacts):
            command = bucket_executor.replace_executor(command)
            process_variables[bucket_executor.FOLDER_VARIABLE] = tempfile.mkdtemp(prefix="gcs-")
        return Process(
            local_programs.component_program("", command).command,
            environment=process_variables,
            log=log,
            guardian=self.services.guardian,
        )

    def _launch(self, task: str, launcher: str, command: Sequence[str]) -> Process:
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
            "labels": {TASK_LABEL: task},
            "log": str(self.run_state.tasks[task].log),
            "arguments": arguments,
        }
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        return process

    def _start_launcher(self, launcher: str) -> Process:
        return Process(
            [*_LAUNCHER, launcher],
            environment=self._environment,
            log=self.run_state.folder / "logs" / "launcher.log",
            guardian=self.services.guardian,
            stdin=subprocess.PIPE,
        )

    def _link(self, task_path: str, outputs: Mapping[str, Any]) -> None:
        """Link a cached task's artifacts into this run's folder, if they are local."""
        folder = pathlib.Path(self.artifacts, task_path)
        for name, artifact in outputs.items():
            uri = getattr(artifact, "uri", "")
            if uri and "://" not in uri:
                folder.mkdir(parents=True, exist_ok=True)
                link = folder / name
                if not link.exists() and link != pathlib.Path(uri):
                    link.symlink_to(os.path.relpath(uri, folder))


def find_size_problem(outputs: Mapping[str, Any]) -> str:
    """Return an error message if a task's outputs are too large for Vertex AI; else "".

    The limit is "Maximum size of JSON payload containing output parameters and artifacts per
    pipeline task" in machine-learning/quotas.
    """
    total = size(
        [vars(output) if hasattr(output, "metadata") else output for output in outputs.values()]
    )
    if total <= TASK_BYTES:
        return ""
    return (
        f"its output parameters and the metadata of its artifacts are {total:,} bytes as JSON, "
        f"but Vertex AI allows {TASK_BYTES:,}; write them to an artifact's file"
    )
