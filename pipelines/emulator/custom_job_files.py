"""The CustomJobs of all processes of an emulator, by the files in their folders."""

import datetime
import hashlib
import json
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from pipelines.emulator import environment, job_state
from pipelines.emulator.api_error import ApiError
from pipelines.emulator.custom_job import CANCEL_FILE_NAME, REQUEST_FILE_NAME
from pipelines.emulator.job_service import JobService
from pipelines.emulator.processes import Guardian
from trainer.errors import InputError

_WRITTEN_SECONDS = 5.0
_DELETED = "deleted"
_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


class CustomJobFiles:
    """Finds the CustomJobs that runs have launched, and runs those that are created here.

    Args:
        folder: of the emulator; a run's jobs lie in runs/<run>/logs, others in jobs/.
    """

    def __init__(self, folder: pathlib.Path, guardian: Guardian) -> None:
        self._folder = folder
        self.service = JobService(folder / "jobs" / str(time.time_ns()), guardian)

    def jobs(self) -> dict[str, Any]:
        """Return the CustomJobs by their ID."""
        present = [one for one in self._folders() if not (one / _DELETED).exists()]
        return {number_of(one): _message(one) for one in present}

    def create(self, request: Any) -> Any:
        """Start a CustomJob; return it."""
        message = self.service.create_custom_job(request)
        folder = self.service.jobs[-1].directory
        deadline = time.monotonic() + _WRITTEN_SECONDS
        while not (folder / job_state.FILE_NAME).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        message.name = f"{request.parent}/customJobs/{number_of(folder)}"
        return message

    def cancel(self, job_id: str) -> None:
        """Ask for the end of a CustomJob, in whichever process it runs."""
        (self._folder_of(job_id) / CANCEL_FILE_NAME).touch()

    def delete(self, job_id: str) -> None:
        """End a CustomJob and show it no more; its log stays."""
        self.cancel(job_id)
        (self._folder_of(job_id) / _DELETED).touch()

    def log_entries(self) -> list[dict[str, Any]]:
        """Return the lines of all replicas, as Cloud Logging has them."""
        entries = []
        for folder in self._folders():
            for path in sorted(folder.glob("*-*.log")):
                role, _, index = path.stem.rpartition("-")
                replica = f"workerpool{environment.ROLES.index(role)}-{index}"
                labels = {"job_id": number_of(folder), "task_name": replica}
                entries += [
                    {"resource": {"type": "ml_job", "labels": labels}, "textPayload": line}
                    for line in path.read_text(errors="replace").splitlines()
                ]
        return entries

    def _folders(self) -> Iterator[pathlib.Path]:
        for pattern in ("runs/*/logs/*", "jobs/*/*"):
            for path in sorted(self._folder.glob(f"{pattern}/{job_state.FILE_NAME}")):
                yield path.parent

    def _folder_of(self, job_id: str) -> pathlib.Path:
        return next(one for one in self._folders() if number_of(one) == job_id)


def number_of(folder: pathlib.Path) -> str:
    """Return the ID of the CustomJob of a folder."""
    return str(int(hashlib.sha256(str(folder).encode()).hexdigest()[:15], 16))


def time_of(path: pathlib.Path) -> datetime.datetime:
    """Return when a file was last written."""
    return datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc)


def _message(folder: pathlib.Path) -> Any:
    from google.cloud.aiplatform_v1 import types

    message = types.CustomJob.from_json((folder / REQUEST_FILE_NAME).read_text())
    try:
        state = job_state.read(folder)
    except InputError as error:
        raise ApiError("FAILED_PRECONDITION", str(error)) from None
    parent = message.name.partition("/customJobs/")[0]
    request = folder.parents[1] / "request.json"
    if request.exists():
        # A run's own service knows the job as one of this machine.
        run = json.loads(request.read_text())
        parent = f"projects/{run['project']}/locations/{run['location']}"
    message.name = f"{parent}/customJobs/{number_of(folder)}"
    message.state = types.JobState[f"JOB_STATE_{state.state}"]
    message.create_time = message.start_time = time_of(folder / REQUEST_FILE_NAME)
    if state.state in _ENDED:
        message.end_time = time_of(folder / job_state.FILE_NAME)
    if state.error:
        message.error.code, message.error.message = 3, state.error
    elif state.state == "CANCELLED":
        message.error.code = 1
    return message
