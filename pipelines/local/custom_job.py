"""A CustomJob on this machine: one process a replica, under Vertex AI's rules.

The job succeeds when its primary (replica 0 of pool 0) exits with 0; the others are then
shut down. A replica that fails is started again, up to 5 times, by itself or, with
restart_job_on_worker_restart, all replicas together; disable_retries rules that out.
https://cloud.google.com/vertex-ai/docs/training/overview#restarts

Two rules differ from the cloud's. A replica that exits with 2, a user's mistake, is not
started again: it could only say the same thing six times. And Vertex AI repeats a failed
job up to 3 times; here it has failed.
"""

import dataclasses
import json
import pathlib
import threading
import time
from typing import Any

from pipelines.local import containers as container_engine
from pipelines.local import environment
from pipelines.local.job_rules import is_empty
from pipelines.local.processes import Guardian, Process, reserve_port
from trainer.errors import EXIT_CODE

MAX_RESTARTS = 5
CANCEL_GRACE_SECONDS = 30.0
SHUTDOWN_GRACE_SECONDS = 5.0
STATE_FILE_NAME = "job.json"
TASK_LABEL = "vertex-ai-pipelines-task"
_POLL_SECONDS = 0.05


@dataclasses.dataclass
class Replica:
    """One replica: its place in the job, its process, and what became of it.

    `state` is PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED (shut down with the job).
    """

    pool: int
    index: int
    log: pathlib.Path
    command: list[str]
    address: str
    image: str
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    process: Process | None = None
    restarts: int = 0
    state: str = "PENDING"
    started: float = 0.0
    ended: float = 0.0
    peak_memory: int = 0

    @property
    def role(self) -> str:
        return environment.ROLES[self.pool]

    @property
    def name(self) -> str:
        """As Vertex AI's messages call it."""
        return f"workerpool{self.pool}-{self.index}"


class CustomJob:
    """Runs a CustomJob that `job_rules.check` has let pass.

    Attributes:
        state: PENDING, RUNNING, then SUCCEEDED, FAILED or CANCELLED.
        error: why it failed, as Vertex AI puts it; empty otherwise.
        failed_replica: the one that failed the job, if one did.
    """

    def __init__(
        self,
        job_id: str,
        request: Any,
        directory: pathlib.Path,
        guardian: Guardian,
        containers: container_engine.Containers | None = None,
    ) -> None:
        self._containers = containers
        self.request = request
        self.directory = directory
        self.state = "PENDING"
        self.error = ""
        self.failed_replica: Replica | None = None
        self._guardian = guardian
        self._cancelled = threading.Event()
        self._spec = request.job_spec
        self.replicas = _replicas(job_id, self._spec, directory, containers is not None)
        self._thread = threading.Thread(target=self._run, name=f"job-{job_id}", daemon=True)

    @property
    def launched_by(self) -> str:
        """The pipeline's task whose launcher created the job; empty if none did."""
        return self.request.labels.get(TASK_LABEL, "")

    def start(self) -> None:
        """Starts the replicas, in the background."""
        self._thread.start()

    def join(self) -> None:
        """Waits for a final state, in which no replica is left."""
        self._thread.join()

    def cancel(self) -> None:
        """SIGTERM to every replica, SIGKILL once the grace is over; returns at once."""
        self._cancelled.set()

    def _run(self) -> None:
        try:
            for replica in self.replicas:
                self._start(replica)
            self._set_state("RUNNING")
            state, self.error = self._watch()
        # Whatever it is: a job without a final state would be waited for without end.
        except Exception as error:
            state, self.error = "FAILED", f"a replica could not be started: {error}"
        cancelled = state == "CANCELLED"
        self._stop(CANCEL_GRACE_SECONDS if cancelled else SHUTDOWN_GRACE_SECONDS)
        self._set_state(state)

    def _watch(self) -> tuple[str, str]:
        """Blocks until the job is decided; returns its state and error."""
        seconds = self._spec.scheduling.timeout.total_seconds()
        deadline = time.monotonic() + seconds if seconds else float("inf")
        while not self._cancelled.wait(_POLL_SECONDS):
            if time.monotonic() > deadline:
                return "FAILED", (
                    f"The job ran longer than its timeout of {seconds:g} s. Raise the parameter "
                    "timeout, or max_cost where that is what shortened it."
                )
            for replica in self.replicas:
                assert replica.process
                if replica.state != "RUNNING" or not replica.process.finished.is_set():
                    continue
                self._note_end(replica)
                if replica.process.returncode == 0:
                    self._write_state()
                    if replica is self.replicas[0]:
                        return "SUCCEEDED", ""
                elif not self._restart(replica):
                    self.failed_replica = replica
                    return "FAILED", (
                        f"The replica {replica.name} exited with a non-zero status of "
                        f"{_status(replica.process.returncode)}."
                    )
        return "CANCELLED", ""

    def _restart(self, replica: Replica) -> bool:
        """Starts a failed replica again, where the rules allow it."""
        scheduling = self._spec.scheduling
        assert replica.process
        if (
            scheduling.disable_retries
            or replica.restarts >= MAX_RESTARTS
            or replica.process.returncode == EXIT_CODE
        ):
            return False
        replica.restarts += 1
        again = [replica]
        if scheduling.restart_job_on_worker_restart:
            self._stop(SHUTDOWN_GRACE_SECONDS)
            again = self.replicas
        for one in again:
            self._start(one)
        self._write_state()
        return True

    def _start(self, replica: Replica) -> None:
        if replica.restarts:
            with replica.log.open("a") as log:
                log.write(f"--- restart {replica.restarts} of {MAX_RESTARTS} ---\n")
        if self._containers:
            replica.process = self._containers.replica(
                replica.name, replica.image, replica.command, replica.environment, replica.log
            )
        else:
            replica.process = Process(
                replica.command,
                environment=replica.environment,
                log=replica.log,
                guardian=self._guardian,
            )
        replica.state, replica.started = "RUNNING", replica.started or time.monotonic()

    def _stop(self, grace_seconds: float) -> None:
        """Ends all replicas that run, together."""
        running = [r for r in self.replicas if r.state == "RUNNING"]
        for replica in running:
            assert replica.process
            replica.process.terminate()
        deadline = time.monotonic() + grace_seconds
        while running:
            if time.monotonic() > deadline:
                deadline = float("inf")
                for replica in running:
                    assert replica.process
                    replica.process.kill()
            # Whichever ends first is seen to have: a view may be looking on.
            running[0].process.finished.wait(_POLL_SECONDS)  # type: ignore[union-attr]
            for replica in list(running):
                assert replica.process
                if replica.process.finished.is_set():
                    self._note_end(replica, failed="STOPPED")
                    running.remove(replica)

    def _note_end(self, replica: Replica, *, failed: str = "FAILED") -> None:
        assert replica.process
        replica.ended = time.monotonic()
        replica.peak_memory = max(replica.peak_memory, replica.process.peak_memory)
        replica.state = failed if replica.process.returncode else "SUCCEEDED"

    def _set_state(self, state: str) -> None:
        self.state = state
        self._write_state()

    def _write_state(self) -> None:
        """job.json, for whoever wants to look at, or end, a replica from outside."""
        content = {
            "name": self.request.display_name,
            "state": self.state,
            "error": self.error,
            "replicas": [
                {
                    "role": replica.role,
                    "index": replica.index,
                    "state": replica.state,
                    "pid": replica.process.pid if replica.process else None,
                    "restarts": replica.restarts,
                    "log": str(replica.log),
                }
                for replica in self.replicas
            ],
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        half = self.directory / f".{STATE_FILE_NAME}"
        half.write_text(json.dumps(content, indent=1) + "\n")
        half.replace(self.directory / STATE_FILE_NAME)


def _replicas(
    job_id: str, spec: Any, directory: pathlib.Path, in_containers: bool
) -> list[Replica]:
    """All replicas, the primary first, each with its address and environment."""
    replicas: list[Replica] = []
    for pool, pool_spec in enumerate(spec.worker_pool_specs):
        container = pool_spec.container_spec
        for index in range(0 if is_empty(pool_spec) else pool_spec.replica_count):
            command = [*container.command, *container.args]
            name = f"workerpool{pool}-{index}"
            replicas.append(
                Replica(
                    pool=pool,
                    index=index,
                    log=directory / f"{environment.ROLES[pool]}-{index}.log",
                    command=command if in_containers else environment.here(command),
                    address=f"{name}:{container_engine.PORT}"
                    if in_containers
                    else f"127.0.0.1:{reserve_port()}",
                    image=container.image_uri,
                )
            )
    addresses = [
        [replica.address for replica in replicas if replica.pool == pool]
        for pool in range(len(spec.worker_pool_specs))
    ]
    job_spec = json.loads(type(spec).to_json(spec, always_print_fields_with_no_presence=False))
    inherited = environment.QUIET if in_containers else environment.of_component()
    for replica in replicas:
        pool_spec = spec.worker_pool_specs[replica.pool]
        replica.environment = {
            **inherited,
            **{variable.name: variable.value for variable in pool_spec.container_spec.env},
            **environment.of_replica(
                pool=replica.pool,
                index=replica.index,
                addresses=addresses,
                job_id=job_id,
                job_spec=job_spec,
                base_output_directory=spec.base_output_directory.output_uri_prefix,
                accelerators=pool_spec.machine_spec.accelerator_count,
            ),
        }
    return replicas


def _status(returncode: int | None) -> int:
    """An exit status as a container reports it: 128 + n for signal n."""
    assert returncode is not None
    return returncode if returncode >= 0 else 128 - returncode
