"""The files and locks by which other processes read the states of jobs."""

import dataclasses
import fcntl
import os
import pathlib
from typing import Any, Literal, TypeVar

from vertex.emulator import files
from vertex.errors import InputError

FILE_NAME = "job.json"
TUNING_FILE_NAME = "tuning_job.json"
"""File of a HyperparameterTuningJob."""
BATCH_FILE_NAME = "batch_job.json"
"""File of a BatchPredictionJob."""
_LOCK_FILE_NAME = ".lock"

T = TypeVar("T")
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
    peak_memory: int = 0  # the largest resident set of all its processes, in bytes
    started: float = 0.0  # seconds since 1970, of the first start; 0 before
    ended: float = 0.0  # seconds since 1970, of the last end; 0 before

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
    content = _read(folder / FILE_NAME, JobFile)
    for replica in content.replicas:
        # The folder may have been moved.
        replica.log = folder / replica.log.name
    return content


def read_message(path: pathlib.Path) -> dict[str, Any]:
    """Read the job of another kind in a file, in the JSON of the REST API.

    Raise InputError for a damaged file. If the job's process was killed, the state is not final.
    """
    return _read(path, dict[str, Any])


def _read(path: pathlib.Path, form: type[T]) -> T:
    try:
        return files.read_checked(path, form)
    except FileNotFoundError as error:
        raise InputError(f"{path} can't be read ({error.strerror})") from None


def write(folder: pathlib.Path, content: JobFile) -> None:
    """Write the state of a CustomJob atomically."""
    from pydantic import TypeAdapter

    plain = TypeAdapter(JobFile).dump_python(content, mode="json")
    files.write_checked(folder / FILE_NAME, plain)


def lock(folder: pathlib.Path) -> int:
    """Lock the folder of a job for the process that runs it; return a descriptor that unlocks."""
    descriptor = os.open(folder / _LOCK_FILE_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def is_locked(folder: pathlib.Path) -> bool:
    """Return True while the process that runs the job lives."""
    try:
        with (folder / _LOCK_FILE_NAME).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:  # No process has run the job.
        pass
    return False
