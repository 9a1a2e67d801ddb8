"""Replicas of a training job as real processes, for tests."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def free_addresses(count: int) -> list[str]:
    """Loopback addresses with ports that nobody had a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


@contextlib.contextmanager
def started(
    module: str, arguments: list[str], roles: list[tuple[str, int]], logs: Path
) -> Iterator[list[subprocess.Popen]]:
    """Starts `python -m module` once a role, as a cluster; ends what is left of it.

    Each replica's output goes to `<logs>/<role>-<index>.log`.
    """
    logs.mkdir(parents=True, exist_ok=True)
    cluster: dict[str, list[str]] = {}
    for (role, _), address in zip(roles, free_addresses(len(roles)), strict=True):
        cluster.setdefault(role, []).append(address)
    processes = []
    try:
        for role, index in roles:
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
            environment.pop("TF_CONFIG", None)
            environment.pop("CLUSTER_SPEC", None)
            if len(roles) > 1:
                task = {"type": role, "index": index}
                environment["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
            with (logs / f"{role}-{index}.log").open("a") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", module, *arguments],
                        cwd=REPOSITORY,
                        env=environment,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


CHIEF_AND_WORKER = [("chief", 0), ("worker", 0)]
ALONE = [("chief", 0)]


def run(
    module: str,
    arguments: list[str],
    roles: list[tuple[str, int]],
    logs: Path,
    seconds: float = 120,
) -> None:
    """Runs a cluster to its end; fails with the logs where a replica does not exit with 0."""
    with started(module, arguments, roles, logs) as processes:
        codes = [process.wait(seconds) for process in processes]
    if any(codes):
        texts = "\n".join(path.read_text()[-3000:] for path in sorted(logs.glob("*.log")))
        raise AssertionError(f"exit codes {codes}\n{texts}")
