"""Replicas of a training job as real processes, for tests.

They are forked from a process that has imported TensorFlow, as those of a run on this machine are.
"""

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from pipelines.local.local_programs import PRELOADED
from tests.child_processes import ROOT
from trainer.data.schema import Dataset
from vertex.emulator.fork_server import Child, ForkServer


def _environment() -> dict[str, str]:
    """Return this process's environment without what TensorFlow has set in it."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    for name in ("TF_CONFIG", "CLUSTER_SPEC", "GRPC_FAIL_FAST"):
        environment.pop(name, None)
    # The fork server keeps the working folder of its first use.
    environment["PYTHONPATH"] = f"{ROOT}:{environment.get('PYTHONPATH', '')}"
    return environment


def free_addresses(count: int) -> list[str]:
    """Return loopback addresses with ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{opened.getsockname()[1]}" for opened in sockets]


@functools.cache
def _fork_server() -> ForkServer:
    server = ForkServer(PRELOADED, _environment()).__enter__()
    atexit.register(server.__exit__)
    return server


class Replica:
    """A forked process, with the methods of a Popen that tests use."""

    def __init__(self, child: Child) -> None:
        self.pid, self._child = child.pid, child
        self._code: int | None = None

    def poll(self) -> int | None:
        return self.wait() if self._child.has_exited() else None

    def wait(self, seconds: float = 240) -> int:
        if self._code is None:
            deadline = time.monotonic() + seconds
            while not self._child.has_exited():
                if time.monotonic() > deadline:
                    raise subprocess.TimeoutExpired(str(self.pid), seconds)
                time.sleep(0.01)
            self._code = self._child.wait()
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Cluster:
    """Replicas of a job, each `python -m module`, each started, and restarted, on its own.

    Each replica's output is appended to `<logs>/<role>-<index>.log`. All addresses are chosen
    up front, so that a replica can come back to its own. A context manager: it ends the replicas
    that still run.
    """

    def __init__(
        self, module: str, arguments: list[str], roles: list[tuple[str, int]], logs: Path
    ) -> None:
        self.roles = roles
        self.logs = logs
        self.processes: dict[tuple[str, int], Replica] = {}
        self._command = [sys.executable, "-m", module, *arguments]
        self._addresses: dict[str, list[str]] = {}
        for (role, _), address in zip(roles, free_addresses(len(roles)), strict=True):
            if role != "evaluator":  # TF_CONFIG never lists it.
                self._addresses.setdefault(role, []).append(address)
        self._all: list[Replica] = []
        logs.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            process.kill()
        for process in self._all:
            process.wait()

    def start(self, role: str, index: int = 0) -> Replica:
        """Start a replica; return its process, also found in `processes`."""
        environment = _environment()
        if len(self.roles) > 1:
            task = {"type": role, "index": index}
            environment["TF_CONFIG"] = json.dumps({"cluster": self._addresses, "task": task})
        server = _fork_server()
        server.wait()
        child = server.fork(self._command, environment, self.logs / f"{role}-{index}.log")
        assert child, f"{self._command} can't be forked with {environment}"
        process = Replica(child)
        self._all.append(process)
        self.processes[role, index] = process
        return process

    def start_all(self) -> None:
        for role, index in self.roles:
            self.start(role, index)

    def kill(self, role: str, index: int = 0) -> None:
        """Kill a replica and remove it from `processes`."""
        process = self.processes.pop((role, index))
        process.kill()
        process.wait(60)

    def wait_for(self, condition: Callable[[], bool], seconds: float = 180) -> None:
        """Wait until a condition holds; fail if the chief ends before."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain\n{self.tails()}"
            assert self.processes["chief", 0].poll() is None, f"it ended early\n{self.tails()}"
            time.sleep(0.05)

    def tails(self) -> str:
        """Return the last lines of each replica, for a message."""
        paths = sorted(self.logs.glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in paths)


def flags(dataset: Dataset, folder: Path, options: str = "") -> list[str]:
    """Return trainer.task's flags: what to read, where to write, and `options` word by word."""
    return [f"--dataset={dataset.uri}", f"--base_output_directory={folder}", *options.split()]


CHIEF_AND_WORKER = [("chief", 0), ("worker", 0)]
ALONE = [("chief", 0)]


def run(
    module: str,
    arguments: list[str],
    roles: list[tuple[str, int]],
    logs: Path,
    seconds: float = 240,
) -> None:
    """Run a cluster to its end; fail with the logs if a replica does not exit with 0."""
    with Cluster(module, arguments, roles, logs) as cluster:
        cluster.start_all()
        codes = [process.wait(seconds) for process in cluster.processes.values()]
        assert not any(codes), f"exit codes {codes}\n{cluster.tails()}"


def position(run: Path) -> tuple[int, int]:
    """Return a run's epochs before its newest checkpoint, and the steps of the next."""
    newest = tf.train.latest_checkpoint(str(run / "checkpoints"))
    return divmod(int(newest.rpartition("-")[2]), 10**9) if newest else (0, 0)
