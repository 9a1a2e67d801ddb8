"""A replica of a CustomJob on this machine: its position in the job and its process."""

import contextlib
import dataclasses
import json
import pathlib
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from vertex.emulator import containers as container_engine
from vertex.emulator import messages
from vertex.emulator.environment import PROJECT, Program
from vertex.emulator.job_rules import is_empty
from vertex.emulator.job_state import ReplicaState, Role
from vertex.emulator.processes import Guardian, Process, reserve_port
from vertex.facts.jobs import ROLES
from vertex.facts.restart_rules import MAX_RESTARTS

METRICS_SUFFIX = ".metrics"
"""End of the name of the file in which a replica of a trial reports metrics."""
_KERNEL_COUNTERS = pathlib.Path("/proc/vmstat")


@dataclasses.dataclass(kw_only=True)
class Replica(ReplicaState):
    """A replica with its process."""

    pool: int
    command: list[str]
    environment: dict[str, str]
    image: str
    process: Process | None = None
    _memory_kills: int = 0

    @property
    def pool_name(self) -> str:
        """Return the replica's name in Vertex AI's messages."""
        return f"workerpool{self.pool}-{self.index}"

    @property
    def returncode(self) -> int:
        """Return the return code of its process, which has ended; -n if signal n ended it."""
        assert self.process
        assert self.process.returncode is not None
        return self.process.returncode

    @property
    def status(self) -> int:
        """Return the return code as a container reports it: 128 + n for signal n."""
        return self.returncode if self.returncode >= 0 else 128 - self.returncode

    @property
    def out_of_memory(self) -> bool:
        """Return whether the kernel probably killed its process for lack of memory."""
        return (
            self.status == 128 + signal.SIGKILL and count_out_of_memory_kills() > self._memory_kills
        )

    @property
    def has_ended(self) -> bool:
        """Return whether its process has ended while `state` is still RUNNING."""
        return (
            self.state == "RUNNING" and self.process is not None and self.process.finished.is_set()
        )

    def start(self, guardian: Guardian, containers: container_engine.Containers | None) -> None:
        """Start the replica as a process or a container."""
        if self.starts:
            with self.log.open("a") as log:
                in_place = f"restart {self.restarts} of {MAX_RESTARTS}"
                log.write(f"--- {in_place if self.restarts else 'restart of the job'} ---\n")
        self.starts += 1
        self._memory_kills = count_out_of_memory_kills()
        if containers:
            self.process = containers.start(
                self.pool_name, self.command, self.environment, self.log, self.image
            )
        else:
            if guardian.fork_server:
                guardian.fork_server.wait()
            self.process = Process(
                self.command, environment=self.environment, log=self.log, guardian=guardian
            )
        self.state, self.pid = "RUNNING", self.process.pid
        self.started = self.started or time.time()

    def note_end(self, *, failed: str = "FAILED") -> None:
        """Record the end of its process; `failed` is the state if it did not exit with 0."""
        assert self.process
        self.ended = time.time()
        self.peak_memory = max(self.peak_memory, self.process.peak_memory)
        self.state = failed if self.process.returncode else "SUCCEEDED"


def create_replicas(
    spec: Any,
    directory: pathlib.Path,
    program: Callable[[str, Sequence[str]], Program] | None,
    trial: str = "",
    local: Callable[[str], str] = str,
) -> list[Replica]:
    """Return all replicas, the primary first, each with its environment.

    `program` returns what runs in place of an image with a command; None: containers run. `trial`
    is the ID of the trial whose job it is; empty: it is no trial's. `local` returns the path of a
    file in Cloud Storage.
    """
    addresses = {
        pool: [
            f"127.0.0.1:{reserve_port()}"
            if program
            else f"workerpool{pool}-{index}:{container_engine.PORT}"
            for index in range(pool_spec.replica_count)
        ]
        for pool, pool_spec in enumerate(spec.worker_pool_specs)
        if not is_empty(pool_spec)
    }
    job_spec = json.loads(type(spec).to_json(spec, always_print_fields_with_no_presence=False))
    base = spec.base_output_directory.output_uri_prefix.rstrip("/")
    replicas: list[Replica] = []
    for pool, listed in addresses.items():
        pool_spec = spec.worker_pool_specs[pool]
        container = pool_spec.container_spec
        if pool_spec.python_package_spec.python_module:
            container = _install_package(pool_spec.python_package_spec, local)
        for index in range(len(listed)):
            run = Program([*container.command, *container.args], {})
            if program:
                run = program(container.image_uri, run.command)
            log = directory / f"{ROLES[pool]}-{index}.log"
            environment = {
                **run.environment,
                **{variable.name: variable.value for variable in container.env},
                **_cluster_variables(pool, index, addresses, job_spec, trial),
                **_folder_variables(base),
                **_trial_variables(log, trial),
                "CLOUD_ML_PROJECT_ID": PROJECT,
            }
            if count := pool_spec.machine_spec.accelerator_count:
                # Logical CPU devices stand in for GPUs that this machine lacks.
                environment["LOGICAL_CPUS"] = str(count)
            else:
                environment["CUDA_VISIBLE_DEVICES"] = ""
            replicas.append(
                Replica(
                    role=cast(Role, ROLES[pool]),
                    pool=pool,
                    index=index,
                    log=log,
                    command=run.command,
                    environment=environment,
                    image=container.image_uri,
                )
            )
    return replicas


def _install_package(spec: Any, local: Callable[[str], str]) -> Any:
    """Return the container that installs a PythonPackageSpec's packages and runs its module.

    They are installed into a temporary folder, not into the environment of this process.
    """
    packages = shlex.join([local(uri) for uri in spec.package_uris])
    script = (
        "folder=$(mktemp -d) && trap 'rm -rf \"$folder\"' EXIT && "
        f'"$0" -m pip install --quiet --no-build-isolation --target "$folder" {packages} && '
        'PYTHONPATH="$folder:$PYTHONPATH" "$0" "$@"'
    )
    return messages.ContainerSpec(
        image_uri=spec.executor_image_uri,
        command=["sh", "-c", script, sys.executable, "-m", spec.python_module],
        args=spec.args,
        env=spec.env,
    )


def _cluster_variables(
    pool: int,
    index: int,
    addresses: Mapping[int, Sequence[str]],
    job_spec: Mapping[str, Any],
    trial: str,
) -> dict[str, str]:
    """Return the variables that describe the cluster to a replica, as Vertex AI sets them.

    `addresses` has the host:port of every replica by worker pool.
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/distributed-training
    """

    def describe(cluster: Mapping[str, Sequence[str]], kind: str) -> str:
        task = {"type": kind, "index": index, **({"trial": trial} if trial else {})}
        return json.dumps(
            {"cluster": cluster, "environment": "cloud", "task": task, "job": job_spec}
        )

    by_pool = {f"workerpool{n}": listed for n, listed in addresses.items()}
    variables = {"CLUSTER_SPEC": describe(by_pool, f"workerpool{pool}")}
    if sum(map(len, addresses.values())) > 1:
        # The evaluator is not part of the cluster.
        by_role = {ROLES[n]: listed for n, listed in addresses.items()}
        by_role.pop("evaluator", None)
        variables["TF_CONFIG"] = describe(by_role, ROLES[pool])
    return variables


def _folder_variables(base: str) -> dict[str, str]:
    """Return the variables that name the folders of a base output directory; {} if it is empty."""
    names = {"MODEL_DIR": "model", "CHECKPOINT_DIR": "checkpoints", "TENSORBOARD_LOG_DIR": "logs"}
    return {f"AIP_{name}": f"{base}/{folder}/" for name, folder in names.items() if base}


def _trial_variables(log: pathlib.Path, trial: str) -> dict[str, str]:
    """Return the variables that cloudml-hypertune reads; {} if the job is no trial's."""
    if not trial:
        return {}
    metrics = str(log.with_suffix(METRICS_SUFFIX))
    return {"CLOUD_ML_TRIAL_ID": trial, "CLOUD_ML_HP_METRIC_FILE": metrics}


def count_out_of_memory_kills() -> int:
    """Return the number of processes that the kernel has killed for lack of memory since boot."""
    with contextlib.suppress(OSError):
        for line in _KERNEL_COUNTERS.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0
