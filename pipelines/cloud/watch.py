"""Waiting for a run: a live table on a terminal, else a line for each change."""

import contextlib
import datetime
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from components.cloud_errors import CloudError
from pipelines.cloud import runs
from pipelines.cloud.connection import Connection
from pipelines.console import cell, print_plain
from trainer.errors import InputError

POLLING_SECONDS = 10.0
_POLLS_BETWEEN_JOBS = 6
_PATIENT_SECONDS = 900.0
_COLORS = {
    "SUCCEEDED": "green",
    "CACHED": "cyan",
    "FAILED": "red",
    "CANCELLED": "yellow",
    "RUNNING": "blue",
}


def wait(connection: Connection, run_id: str, console: Console) -> Any:
    """Show a run until it ends, or its training job has expired; return the PipelineJob then.

    A broken connection and a server's faults are waited out for minutes.

    Raises:
        CloudError: there was no answer for longer than that, and the run goes on; or the run
            was deleted.
    """
    with _view(console) as (show, note):
        patient = connection.retrying(note, _PATIENT_SECONDS)
        for poll in itertools.count(1):
            try:
                job = runs.get(connection, run_id, patient)
            except InputError:
                raise CloudError(
                    f"the run {run_id!r} was started, but is no longer there: somebody has "
                    "deleted it"
                ) from None
            show(job)
            looked_after = poll % _POLLS_BETWEEN_JOBS == 0
            if runs.state_of(job) in runs.ENDED or (looked_after and runs.expiry(connection, job)):
                return job
            time.sleep(POLLING_SECONDS)


def table(job: Any) -> Table:
    """Return the state of each task."""
    grid = Table.grid(padding=(0, 2))
    now = datetime.datetime.now(datetime.timezone.utc)
    tasks = runs.tasks_of(job, now)
    for task in tasks:
        state = Text(task.state, _COLORS.get(task.state, "dim"))
        error = cell(task.error, "red")
        grid.add_row(state, cell(task.name), Text(clock(task.seconds), "dim"), error)
    if not tasks:
        grid.add_row(Text(runs.state_of(job), "dim"), "no task has started yet")
    return grid


def clock(seconds: float) -> str:
    """Return 1:02 or 1:02:03; empty for 0."""
    if not seconds:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextlib.contextmanager
def _view(console: Console) -> Iterator[tuple[Callable[[Any], None], Callable[[str], None]]]:
    if console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield (
                lambda job: live.update(table(job), refresh=True),
                lambda line: live.console.print(cell(line, "yellow")),
            )
        return
    seen: dict[str, str] = {}

    def note(line: str) -> None:
        stamp = f"[{time.strftime('%H:%M:%S')}]"
        print_plain(console, f"{stamp} {line}")

    def show(job: Any) -> None:
        now = datetime.datetime.now(datetime.timezone.utc)
        for task in runs.tasks_of(job, now):
            if seen.get(task.name) != task.state and task.state != "PENDING":
                took = f" in {clock(task.seconds)}" if task.state in runs.ENDED else ""
                note(f"{task.name} {task.state}{took}{f': {task.error}' if task.error else ''}")
            seen[task.name] = task.state
        state = runs.state_of(job)
        if seen.get("") != state:
            note(f"run {state}")
        seen[""] = state

    yield show, note
