"""The state of a run, as the live view shows it and summary.json records it."""

import dataclasses
import pathlib
import time
from collections.abc import Mapping
from typing import Any

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED", "CACHED", "NOT_TRIGGERED")


@dataclasses.dataclass
class Task:
    """A task of the run.

    Attributes:
        key: name in the YAML.
        state: PENDING, RUNNING, then one of `ENDED`: SKIPPED where its branch was not
            taken, NOT_TRIGGERED where an earlier task had failed.
        returncode: of the task's process, once it has ended.
        outputs: kfp artifacts and plain values, by name.
        started, ended: readings of time.monotonic; 0 before.
    """

    key: str
    display_name: str
    log: pathlib.Path
    state: str = "PENDING"
    returncode: int | None = None
    started: float = 0.0
    ended: float = 0.0
    outputs: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return seconds_between(self.started, self.ended)


class Board:
    """All tasks of a run, in the pipeline's order.

    Args:
        tasks: display names by key.
    """

    def __init__(self, tasks: Mapping[str, str], logs: pathlib.Path) -> None:
        self.tasks = {key: Task(key, name, logs / f"{key}.log") for key, name in tasks.items()}
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
        """Gives every task that has none a final state, `state` being the run's."""
        rest = {"SUCCEEDED": "SKIPPED", "FAILED": "NOT_TRIGGERED", "CANCELLED": "NOT_TRIGGERED"}
        for task in self.tasks.values():
            if task.state == "PENDING":
                self.set_state(task.key, rest[state])
            elif task.state == "RUNNING":
                self.set_state(task.key, "CANCELLED")

    @property
    def failed(self) -> Task | None:
        """The first task that failed, if one did."""
        return next((task for task in self.tasks.values() if task.state == "FAILED"), None)


def seconds_between(started: float, ended: float) -> float:
    """Seconds so far, or in all; 0 before the start."""
    return (ended or time.monotonic()) - started if started else 0.0
