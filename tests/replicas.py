"""Replicas of a training job as real processes, for tests."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from tests.child_processes import ROOT
from trainer.data.schema import Dataset


def free_addresses(count: int) -> list[str]:
    """Return loopback addresses with ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{opened.getsockname()[1]}" for opened in sockets]


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
        self.processes: dict[tuple[str, int], subprocess.Popen] = {}
        self._command = [sys.executable, "-m", module, *arguments]
        self._addresses: dict[str, list[str]] = {}
        for (role, _), address in zip(roles, free_addresses(len(roles)), strict=True):
            if role != "evaluator":  # TF_CONFIG never lists it.
                self._addresses.setdefault(role, []).append(address)
        self._all: list[subprocess.Popen] = []
        logs.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            process.kill()
        for process in self._all:
            process.wait()

    def start(self, role: str, index: int = 0) -> subprocess.Popen:
        """Start a replica; return its process, also found in `processes`."""
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        environment.pop("TF_CONFIG", None)
        environment.pop("CLUSTER_SPEC", None)
        if len(self.roles) > 1:
            task = {"type": role, "index": index}
            environment["TF_CONFIG"] = json.dumps({"cluster": self._addresses, "task": task})
        with (self.logs / f"{role}-{index}.log").open("a") as log:
            out = {"stdout": log, "stderr": subprocess.STDOUT}
            process = subprocess.Popen(self._command, cwd=ROOT, env=environment, **out)
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
