"""The content of job.json, in which a CustomJob shows its state to other processes."""

import dataclasses
import pathlib
from typing import Literal

from pipelines.json_form import read_json

FILE_NAME = "job.json"

Role = Literal["chief", "worker", "ps", "evaluator"]
State = Literal["QUEUED", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicaState:
    """A replica: its worker pool's role, its index there, and what became of it so far."""

    role: Role
    index: int
    state: str
    pid: int | None
    starts: int
    restarts: int
    log: str

    @property
    def name(self) -> str:
        """chief-0."""
        return f"{self.role}-{self.index}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobState:
    """A CustomJob: its display name, its state, and its replicas."""

    name: str
    state: State
    error: str
    retries: int
    replicas: list[ReplicaState]


def read(folder: pathlib.Path) -> JobState:
    """Read the state of the CustomJob of a folder that has one.

    Raises:
        InputError: it is not what a job writes.
    """
    state = read_json(folder / FILE_NAME, JobState)
    assert state
    return state
