"""Runs of compiled pipelines, in this process or in one of their own."""

import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from kfp import compiler

from pipelines.local import execution
from pipelines.package import Package
from tests.child_processes import ROOT, started
from tests.pipelines.local.conftest import REPLICA, job_states, wait_for
from vertex import checked_json

TASKS = ("create-records", "plan", "custom-training-job", "collect", "evaluate", "record")
PRELOADED = ("kfp.dsl",)
"""Modules that the tasks of these pipelines import; they need no TensorFlow."""
_PROGRAM = f"""
import json, pathlib, sys
from pipelines.local import execution
from pipelines.package import Package
from pipelines.runs import run_folders
execution.PRELOADED = {PRELOADED!r}
directory = execution.run(
    Package(pathlib.Path(sys.argv[1])),
    parameters=json.loads(sys.argv[3]),
    runs_directory=pathlib.Path(sys.argv[2]),
)
print(run_folders.load(directory).state)
"""


@dataclasses.dataclass(frozen=True)
class EndedRun:
    """A run's folder and its summary.json."""

    directory: Path
    summary: dict[str, Any]

    @property
    def state(self) -> str:
        return self.summary["state"]


def read_ended(directory):
    """Return the ended run of a folder."""
    return EndedRun(directory, checked_json.parse((directory / "summary.json").read_text()))


def resume(directory):
    """Resume a run; return it as it has ended."""
    with mock.patch.object(execution, "PRELOADED", PRELOADED):
        return read_ended(execution.resume(directory))


def compile_to(folder, pipeline):
    """Compile a pipeline to a file of its name; return the path."""
    path = folder / f"{pipeline.name}.yaml"
    compiler.Compiler().compile(pipeline, str(path))
    return path


def run_package(package, runs, parameters, **options):
    """Run a compiled pipeline; return the result and what the console showed."""
    shown = io.StringIO()
    with (
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(shown),
        mock.patch.dict(os.environ, COLUMNS="100"),
        mock.patch.object(execution, "PRELOADED", PRELOADED),
    ):
        directory = execution.run(
            Package(package), parameters=parameters, runs_directory=runs, **options
        )
    return read_ended(directory), shown.getvalue()


def run_small(package, runs, **parameters):
    """Run the small pipeline; its replicas succeed by default."""
    return run_package(package, runs, {"replica": [str(REPLICA)], **parameters})


def states(summary):
    """Return the state of each task by name."""
    return {task["name"]: task["state"] for task in summary["tasks"]}


def started_process(package, folder, *actions):
    """Run the small pipeline in a process of its own, which is killed in the end."""
    (folder / "t").mkdir()
    parameters = json.dumps({"replica": [str(REPLICA), *actions]})
    command = [sys.executable, "-c", _PROGRAM, str(package), str(folder), parameters]
    environment = {**os.environ, "TMPDIR": str(folder / "t")}
    return started(command, stderr=subprocess.STDOUT, cwd=ROOT, env=environment)


def wait_for_replicas(folder):
    """Wait until the chief and the worker of the small pipeline have started, and are listed."""
    notes = folder / "latest" / "artifacts" / "plan" / "training"
    wait_for(lambda: len([*notes.glob("*-0.json")]) == 2)
    wait_for(
        lambda: all(
            replica["pid"] for job in job_states(folder / "latest") for replica in job["replicas"]
        )
    )


def descendants(process):
    """Return the process IDs of all processes that a process has started."""
    return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
