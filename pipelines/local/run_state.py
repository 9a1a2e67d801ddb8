"""The state of a run, as the live view shows it and summary.json records it."""

import dataclasses
import pathlib
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.local.failures import read_progress
from pipelines.run_view import STARTING, Row
from vertex_emulator.custom_job import CustomJob
from vertex_facts.restart_rules import MAX_RESTARTS

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED", "CACHED", "NOT_TRIGGERED")


@dataclasses.dataclass
class Task:
    """A task of the run."""

    key: str  # name in the YAML
    display_name: str
    log: pathlib.Path
    # PENDING, RUNNING, then one of `ENDED`: SKIPPED if its branch was not taken, NOT_TRIGGERED if
    # an earlier task failed.
    state: str = "PENDING"
    returncode: int | None = None  # of the task's process, after its end
    started: float = 0.0  # time.monotonic(); 0 if it has not started
    ended: float = 0.0  # time.monotonic(); 0 if it has not ended
    # kfp artifacts and plain values, by name.
    outputs: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return seconds_between(self.started, self.ended)


class RunState:
    """All tasks of a run, in the pipeline's order."""

    def __init__(self, display_names: Mapping[str, str], logs: pathlib.Path) -> None:
        self.tasks = {
            key: Task(key, name, logs / f"{key}.log") for key, name in display_names.items()
        }
        self.started = time.monotonic()
        self.folder = logs.parent

    def set_state(self, key: str, state: str) -> None:
        task = self.tasks[key]
        if state == "RUNNING" and not task.started:
            task.started = time.monotonic()
        if state in ENDED and task.started:
            task.ended = time.monotonic()
        task.state = state

    def close(self, state: str) -> None:
        """Set a final state for every task that has none; `state` is the run's."""
        rest = {"SUCCEEDED": "SKIPPED", "FAILED": "NOT_TRIGGERED", "CANCELLED": "NOT_TRIGGERED"}
        for task in self.tasks.values():
            if task.state == "PENDING":
                self.set_state(task.key, rest[state])
            elif task.state == "RUNNING":
                self.set_state(task.key, "CANCELLED")

    @property
    def failed(self) -> Task | None:
        """Return the first task that failed, if any."""
        return next((task for task in self.tasks.values() if task.state == "FAILED"), None)


def seconds_between(started: float, ended: float) -> float:
    """Return the seconds from start to end, or so far; 0 before the start."""
    return (ended or time.monotonic()) - started if started else 0.0


def make_rows(run_state: RunState, jobs: list[CustomJob]) -> Iterator[Row]:
    """Yield a row for each task, followed by rows for the replicas of its jobs."""
    waiting = list(jobs)
    for task in list(run_state.tasks.values()):
        text = read_progress(task.log) or STARTING if task.state == "RUNNING" else ""
        own_jobs = [job for job in waiting if job.launched_by == task.key]
        if own_jobs:
            text = ""
        yield Row(task.display_name, task.state, task.seconds, text)
        for job in own_jobs:
            yield from _replica_rows(job, f"{run_state.folder}/")


def _replica_rows(job: CustomJob, folder: str) -> Iterator[Row]:
    for replica in job.replicas:
        name = f"{replica.role} {replica.index}"
        text = read_progress(replica.log) if replica.state != "FAILED" else ""
        text = re.sub(rf"^({name}:? |{replica.role}: )", "", text)
        if replica.state == "STOPPED" and "told to stop" not in text:
            text = "shut down with the job"
        elif replica.state == "RUNNING" and replica is job.replicas[0] and not text:
            others = len(job.replicas) - 1
            text = "starting: loads TensorFlow"
            if others:
                awaited = f"{others} replicas" if others > 1 else "replica"
                text += f", then waits for the other {awaited}"
        if replica.restarts and replica.state != "STOPPED":
            text = f"restart {replica.restarts} of {MAX_RESTARTS}  {text}".rstrip()
        # The view shows the run's folder above the table.
        seconds = seconds_between(replica.started, replica.ended)
        yield Row(name, replica.state, seconds, text.replace(folder, ""), is_replica=True)
