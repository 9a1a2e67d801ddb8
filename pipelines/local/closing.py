"""The end of a run: why it failed, and what is shown last."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from pipelines.local import failures
from pipelines.local.board import Board
from pipelines.local.custom_job import CustomJob
from pipelines.local.vertex_service import VertexService
from pipelines.local.view import relative

_COLORS = {"SUCCEEDED": "bold green", "FAILED": "bold red", "CANCELLED": "bold yellow"}


def reason(state: str, board: Board, service: VertexService | None, error: str) -> str:
    """One line that says what ended the run; empty where it succeeded or was cancelled.

    Args:
        error: what kfp itself raised, if it did.
    """
    if state != "FAILED":
        return ""
    task = board.failed
    if not task:
        return error
    job = _failed_job(task.key, service.jobs if service else [])
    if job:
        log = job.failed_replica.log if job.failed_replica else None
        said = failures.user_error(log) if log else ""
        return f"{task.display_name}: {said or job.error}"
    if service and service.refusals and not any(j.launched_by == task.key for j in service.jobs):
        return f"{task.display_name}: the job was refused: {service.refusals[-1]}"
    said = failures.user_error(task.log)
    lines = failures.last_lines(task.log, 1)
    return f"{task.display_name}: {said or (lines[0] if lines else error or 'failed')}"


def link_tensorboard(jobs: list[CustomJob], directory: pathlib.Path) -> None:
    """Links <run>/tensorboard to the logs of the run's last job that has some."""
    for job in reversed(jobs):
        base = job.request.job_spec.base_output_directory.output_uri_prefix
        logs = pathlib.Path(base, "logs")
        if base and logs.is_dir():
            (directory / "tensorboard").symlink_to(os.path.relpath(logs, directory))
            return


def show(
    console: Console,
    summary: Mapping[str, Any],
    board: Board,
    jobs: list[CustomJob],
    directory: pathlib.Path,
) -> None:
    """Prints the run's result: the figures, or what failed and where its log is."""
    state = summary["state"]
    seconds = sum(task.seconds for task in board.tasks.values())
    line = Text(state, _COLORS[state])
    console.print(line.append(f" in {seconds:.1f} s", "default"))
    if state == "FAILED":
        _show_failure(console, summary["error"], board, jobs)
    figures = [
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in summary["metrics"].items()
        if isinstance(value, (int, float, str))
    ]
    if figures:
        _print(console, "test set  " + ", ".join(figures[:6]))
    if "verdict" in summary:
        _print(console, f"verdict   {summary['verdict']}")
    if summary["report"]:
        _print(console, f"report    {relative(summary['report'])}")
    _print(console, f"run       {relative(directory)}")


def _show_failure(console: Console, error: str, board: Board, jobs: list[CustomJob]) -> None:
    """The reason; unless it is the user's mistake, the last lines; the log's place."""
    _print(console, f"error: {error}")
    task = board.failed
    if not task:
        return
    job = _failed_job(task.key, jobs)
    log = job.failed_replica.log if job and job.failed_replica else task.log
    if not failures.user_error(log) and (not job or job.failed_replica):
        for line in failures.last_lines(log):
            _print(console, f"  {line}")
    _print(console, f"log       {relative(log)}")


def _failed_job(task: str, jobs: list[CustomJob]) -> CustomJob | None:
    failed = [job for job in jobs if job.launched_by == task and job.state == "FAILED"]
    return failed[-1] if failed else None


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
