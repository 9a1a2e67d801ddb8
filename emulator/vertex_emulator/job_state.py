"""The content of job.json, by which other processes read a CustomJob's state."""

import dataclasses
import json
import pathlib
from typing import Any, Literal

from pipelines.json_files import read_json
from trainer import checked_json
from trainer.data import storage

FILE_NAME = "job.json"

Role = Literal["chief", "worker", "ps", "evaluator"]


@dataclasses.dataclass(kw_only=True)
class ReplicaState:
    """A replica and its state."""

    role: Role
    index: int  # in its worker pool
    log: pathlib.Path
    state: str = "PENDING"  # or RUNNING, SUCCEEDED, FAILED, STOPPED (shut down with the job)
    pid: int | None = None  # of its last process
    starts: int = 0  # in all attempts of the job
    restarts: int = 0  # in this attempt

    @property
    def name(self) -> str:
        """Return the role and index, such as chief-0."""
        return f"{self.role}-{self.index}"


@dataclasses.dataclass(kw_only=True)
class JobFile:
    """A CustomJob in the JSON of the REST API, with what the API does not tell of its replicas."""

    job: dict[str, Any]
    retries: int
    replicas: list[ReplicaState]


def read(folder: pathlib.Path) -> JobFile:
    """Read the state of the CustomJob in a folder; raise InputError for a damaged file."""
    content = read_json(folder / FILE_NAME, JobFile)
    assert content
    return content


def write(folder: pathlib.Path, content: JobFile) -> None:
    """Write the state of a CustomJob atomically."""
    from pydantic import TypeAdapter

    plain = TypeAdapter(JobFile).dump_python(content, mode="json")
    text = json.dumps(checked_json.with_checksum(plain), indent=1) + "\n"
    storage.write_atomically(str(folder / FILE_NAME), text.encode())
