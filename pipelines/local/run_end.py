"""The end of a run: the reason of a failure, and the lines that show the result."""

import dataclasses
import os
import pathlib
import signal
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from pipelines import local_runs
from pipelines.console import print_error, say, shorten_path
from pipelines.emulator.custom_job import CustomJob
from pipelines.emulator.replica_process import Replica
from pipelines.local import failures
from pipelines.local.run_state import RunState, Task
from pipelines.local.services import Services
from pipelines.run_history import resume_command
from trainer.errors import RETRY_EXIT_CODE

_COLORS = {"SUCCEEDED": "bold green", "FAILED": "bold red", "CANCELLED": "bold yellow"}
_DISK_ERROR_LINES = 30
"""Number of lines at the end of a log that are searched for the error of a full disk."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """The failure that ended a run."""

    message: str  # in one line
    log: pathlib.Path | None = None  # of the process that failed; None if no process failed
    expected: bool = True  # the message is complete, so that lines of the log would not help


def find_failure(run_state: RunState, services: Services, error: str) -> Failure:
    """Return why a run failed; `error` is kfp's own exception as text, if any."""
    task = run_state.failed
    failure = _find_reason(task, services, error) if task else Failure(error)
    lines = failures.read_tail(failure.log)[-_DISK_ERROR_LINES:] if failure.log else []
    if full := failures.find_full_disk([failure.message, *lines], run_state.folder):
        failure = Failure(full, failure.log)
    name = f"{task.display_name}: " if task else ""
    return dataclasses.replace(failure, message=f"{name}{failure.message}")


def _find_reason(task: Task, services: Services, error: str) -> Failure:
    jobs = services.launched_by(task.key)
    refusals = [reason for service in services.job_services for reason in service.refusals]
    if jobs and jobs[-1].error:
        replica = getattr(jobs[-1], "failed_replica", None)
        if not replica:
            return Failure(jobs[-1].error, task.log)
        message = failures.find_user_error(replica.log, replica.returncode)
        return Failure(
            message or _describe_kill(replica) or jobs[-1].error, replica.log, bool(message)
        )
    if not jobs and refusals:
        return Failure(f"the job was refused: {refusals[-1]}", task.log)
    ending = failures.describe_end(task.returncode)
    if jobs and jobs[-1].state == "CANCELLED":
        ending = ending or failures.describe_end(-signal.SIGTERM)
        return Failure(f"its job was cancelled, since the job's launcher {ending}", task.log)
    if ending:
        return Failure(f"the step {ending}", task.log, not ending.startswith("crashed"))
    message = failures.find_user_error(task.log, task.returncode)
    last = failures.read_last_lines(task.log, 1) or [error or "failed"]
    return Failure(message or last[0], task.log, bool(message))


def _describe_kill(replica: Replica) -> str:
    """Return a message about the signal that ended a replica; empty if none did."""
    ending = failures.describe_end(replica.returncode)
    if not ending or replica.returncode == RETRY_EXIT_CODE:
        return ""
    starts = f", started {replica.starts} times," if replica.starts > 1 else ""
    return f"{replica.role} {replica.index}{starts} {ending}"


def link_tensorboard(jobs: list[CustomJob], directory: pathlib.Path) -> None:
    """Link <run>/tensorboard to the logs of the run's last job that has any."""
    for job in reversed(jobs):
        base = job.message.job_spec.base_output_directory.output_uri_prefix
        logs = pathlib.Path(base, "logs")
        if base and logs.is_dir():
            (directory / "tensorboard").symlink_to(os.path.relpath(logs, directory))
            return


def show(summary: Mapping[str, Any], run_state: RunState, failure: Failure | None) -> None:
    """Print the run's result: its state, warnings and metrics, or the failure and its log."""
    state = summary["state"]
    line = Text(state, _COLORS[state])
    seconds = time.monotonic() - run_state.started
    Console().print(line.append(f" in {seconds:.1f} s", "default"))
    if failure:
        _show_failure(failure)
    for task in run_state.tasks.values():
        for warning in failures.find_warnings(task.log):
            say(f"warning   {warning}")
    local_runs.show_results(summary)
    say(f"run       {shorten_path(run_state.folder)}")
    if state == "CANCELLED":
        say(f"resume    {resume_command(run_state.folder)}")


def _show_failure(failure: Failure) -> None:
    """Print the failure: its message, last log lines unless expected, and the log's path."""
    print_error(f"error: {failure.message}")
    if failure.log:
        for line in [] if failure.expected else failures.read_last_lines(failure.log):
            print_error(f"  {line}")
        print_error(f"log       {shorten_path(failure.log)}")
