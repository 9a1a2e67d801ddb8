"""What the console shows of a run: a live table on a terminal, else a line a change."""

import os
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pipelines.local.board import Board, seconds_between
from pipelines.local.custom_job import MAX_RESTARTS, CustomJob
from pipelines.local.failures import progress

_REFRESHES_A_SECOND = 5
_PLAIN_SECONDS = 5.0
_MARKS = {
    "PENDING": ("·", "dim"),
    "SUCCEEDED": ("✓", "green"),
    "CACHED": ("✓", "cyan"),
    "FAILED": ("✗", "red"),
    "CANCELLED": ("✗", "yellow"),
    "STOPPED": ("✓", "dim"),
    "SKIPPED": ("-", "dim"),
    "NOT_TRIGGERED": ("-", "dim"),
}


def view_of(board: Board, jobs: list[CustomJob], console: Console) -> "LiveView | PlainView":
    """The view that suits the console."""
    live = console.is_terminal and not console.is_dumb_terminal
    return (LiveView if live else PlainView)(board, jobs, console)


class LiveView:
    """A table that is drawn anew in its place: a row a task, and a row a replica."""

    def __init__(self, board: Board, jobs: list[CustomJob], console: Console) -> None:
        self._board = board
        self._jobs = jobs
        self._spinners: dict[str, Spinner] = {}
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=False,
        )
        self._drawn = 0.0

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._live.update(self._table(), refresh=True)
        self._live.stop()

    def update(self) -> None:
        """Draws the table, unless it was drawn just now."""
        if time.monotonic() - self._drawn > 1 / _REFRESHES_A_SECOND:
            self._drawn = time.monotonic()
            self._live.update(self._table(), refresh=True)

    def note(self, text: str) -> None:
        self._live.console.print(text, style="yellow", highlight=False)

    def _table(self) -> Group:
        table = Table.grid(padding=(0, 1))
        table.add_column(width=1)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        table.expand = True
        for name, state, seconds, text in _rows(self._board, self._jobs):
            mark: Spinner | Text
            if state == "RUNNING":
                mark = self._spinners.setdefault(name, Spinner("dots", style="blue"))
                style = "bold" if not name.startswith(" ") else ""
            else:
                symbol, color = _MARKS[state]
                mark, style = Text(symbol, color), "dim" if color == "dim" else ""
            clock = _clock(seconds) if seconds else ""
            if state in ("CACHED", "SKIPPED", "NOT_TRIGGERED"):
                text = state.lower().replace("_", " ")
            table.add_row(mark, Text(name, style), Text(clock, "dim"), Text(text, "dim"))
        return Group(table)


class PlainView:
    """Lines for a log file: every change of a state, and now and then how far a task is."""

    def __init__(self, board: Board, jobs: list[CustomJob], console: Console) -> None:
        self._board = board
        self._jobs = jobs
        self._console = console
        self._states: dict[str, str] = {}
        self._lines: dict[str, tuple[float, str]] = {}

    def __enter__(self) -> "PlainView":
        return self

    def __exit__(self, *_: Any) -> None:
        self.update()

    def update(self) -> None:
        """Prints what has changed."""
        now = time.monotonic()
        for name, state, seconds, text in _rows(self._board, self._jobs):
            if state != self._states.get(name, "PENDING"):
                took = f" in {_clock(seconds)}" if state != "RUNNING" and seconds else ""
                detail = f": {text}" if state != "RUNNING" and text else ""
                self.note(f"{name.strip()} {state}{took}{detail}")
                # The first line of progress may come at once.
                self._lines[name] = (0.0, "")
            elif state == "RUNNING" and text:
                shown, last = self._lines[name]
                if text != last and now - shown >= _PLAIN_SECONDS:
                    self.note(f"{name.strip()}: {text}")
                    self._lines[name] = (now, text)
            self._states[name] = state

    def note(self, text: str) -> None:
        line = f"[{_clock(time.monotonic() - self._board.started)}] {text}"
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


def _rows(board: Board, jobs: list[CustomJob]) -> Iterator[tuple[str, str, float, str]]:
    """Name, state, seconds and last word of every task, and below a job's of its replicas."""
    waiting = list(jobs)
    for task in list(board.tasks.values()):
        text = progress(task.log) if task.state == "RUNNING" else ""
        own = [job for job in waiting if job.launched_by == task.key]
        if own:
            text = ""
        yield task.display_name, task.state, task.seconds, text
        for job in own:
            yield from _replica_rows(job)


def _replica_rows(job: CustomJob) -> Iterator[tuple[str, str, float, str]]:
    for replica in job.replicas:
        text = progress(replica.log) if replica.state in ("RUNNING", "SUCCEEDED") else ""
        if replica.restarts:
            text = f"restart {replica.restarts} of {MAX_RESTARTS}  {text}".rstrip()
        if replica.state == "STOPPED":
            text = "shut down with the job" if job.state == "SUCCEEDED" else ""
        seconds = seconds_between(replica.started, replica.ended)
        yield f"  {replica.role} {replica.index}", replica.state, seconds, text


def _clock(seconds: float) -> str:
    """12.3 s below a minute, then 1:02, 1:02:03."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def relative(path: Any) -> str:
    """A path as short as it can be typed from here."""
    try:
        short = os.path.relpath(path)
    except ValueError:
        return str(path)
    return short if len(short) < len(str(path)) else str(path)
