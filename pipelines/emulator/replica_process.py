"""A replica of a CustomJob on this machine: its place in the job, and its process."""

import dataclasses
import json
import pathlib
import signal
import time
from typing import Any

from pipelines.emulator import containers as container_engine
from pipelines.emulator import environment
from pipelines.emulator.job_rules import is_empty
from pipelines.emulator.processes import Guardian, Process, reserve_port
from pipelines.emulator.restart_rules import MAX_RESTARTS, out_of_memory_kills


@dataclasses.dataclass
class Replica:
    """A replica and its state.

    Attributes:
        state: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED (shut down with the job).
        started: first, on the clock of time.monotonic(), as `ended`.
        peak_memory: of all its processes, the largest resident set in bytes.
        starts: of its process, in all attempts of the job.
        restarts: in its place, in this attempt.
    """

    pool: int
    index: int
    log: pathlib.Path
    command: list[str]
    address: str
    image: str
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    process: Process | None = None
    starts: int = 0
    restarts: int = 0
    state: str = "PENDING"
    started: float = 0.0
    ended: float = 0.0
    peak_memory: int = 0
    _memory_kills: int = 0

    @property
    def role(self) -> str:
        return environment.ROLES[self.pool]

    @property
    def name(self) -> str:
        """As Vertex AI's messages call it."""
        return f"workerpool{self.pool}-{self.index}"

    @property
    def returncode(self) -> int:
        """Of its process, which has ended: -n where signal n ended it."""
        assert self.process
        assert self.process.returncode is not None
        return self.process.returncode

    @property
    def status(self) -> int:
        """The return code as a container reports it: 128 + n for signal n."""
        return self.returncode if self.returncode >= 0 else 128 - self.returncode

    @property
    def out_of_memory(self) -> bool:
        """Return whether the kernel has ended its process for lack of memory, as far as known."""
        return self.status == 128 + signal.SIGKILL and out_of_memory_kills() > self._memory_kills

    @property
    def is_over(self) -> bool:
        """Return whether it was running, as far as is noted, and its process has ended."""
        return (
            self.state == "RUNNING" and self.process is not None and self.process.finished.is_set()
        )

    def start(self, guardian: Guardian, containers: container_engine.Containers | None) -> None:
        """Starts its process, or a container for it."""
        if self.starts:
            with self.log.open("a") as log:
                in_place = f"restart {self.restarts} of {MAX_RESTARTS}"
                log.write(f"--- {in_place if self.restarts else 'restart of the job'} ---\n")
        self.starts += 1
        self._memory_kills = out_of_memory_kills()
        if containers:
            self.process = containers.replica(
                self.name, self.image, self.command, self.environment, self.log
            )
        else:
            self.process = Process(
                self.command, environment=self.environment, log=self.log, guardian=guardian
            )
        self.state, self.started = "RUNNING", self.started or time.monotonic()

    def note_end(self, *, failed: str = "FAILED") -> None:
        """Keeps what became of its process, which has ended.

        Args:
            failed: the state where it did not exit with 0.
        """
        assert self.process
        self.ended = time.monotonic()
        self.peak_memory = max(self.peak_memory, self.process.peak_memory)
        self.state = failed if self.process.returncode else "SUCCEEDED"


def replicas_of(
    job_id: str, spec: Any, directory: pathlib.Path, in_containers: bool
) -> list[Replica]:
    """Return all replicas, the primary first, each with its address and environment."""
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
