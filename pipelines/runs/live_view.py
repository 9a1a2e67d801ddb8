"""Show a run on the console: a live table on a terminal, else a line for each change."""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.constrain import Constrain
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pipelines.printing import print_plain
from pipelines.runs.run import SearchTrial
from vertex.formats import clock, decimal

STARTING = "starting"
"""The message of a task that has sent none yet."""

UNUSED = {"SKIPPED": "skipped", "NOT_TRIGGERED": "not run"}
"""The states of tasks that a run does not need or reach, which share a line, and their words."""

_REFRESHES_A_SECOND = 5
_PLAIN_SECONDS = 5.0
_ECHO = 3
"""Columns left free, so that the echo of a key such as ^C does not wrap."""
_CLOCK_WIDTH = 7
"""Minimum width of the durations' column, enough for 9:59:59."""

_MARKS = {
    "PENDING": ("·", "dim"),
    "SUCCEEDED": ("✓", "green"),
    "CACHED": ("✓", "cyan"),
    "FAILED": ("✗", "red"),
    "CANCELLED": ("✗", "yellow"),
    "STOPPED": ("-", "dim"),
}
_TRIAL_STATES = {
    "REQUESTED": "PENDING", "ACTIVE": "RUNNING", "STOPPING": "RUNNING", "INFEASIBLE": "FAILED"
}  # fmt: skip
_BARS = "▁▂▃▄▅▆▇█"
_CURVE = 12
"""Largest number of measurements that are drawn."""


class Row(NamedTuple):
    """A task, or one of the replicas that follow it, with its last message."""

    name: str
    state: str
    seconds: float  # since its start; 0 before
    text: str
    is_replica: bool = False


def choose_view(
    rows: Callable[[], Iterable[Row]], console: Console, title: str
) -> "LiveView | PlainView":
    """Return a live view for a terminal, with a title above the table, or else a plain view."""
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveView(rows, console, title) if live else PlainView(rows, console)


class LiveView:
    """A table that is redrawn in place, with a row for each task and replica.

    Text that is too long for its row is wrapped, or cut if the screen is not high enough for that.
    """

    def __init__(self, rows: Callable[[], Iterable[Row]], console: Console, title: str) -> None:
        self._rows, self._title = rows, title
        self._started, self._drawn = time.monotonic(), 0.0
        self._spinner = Spinner("dots", style="blue")
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        # The last table stays on the screen: whole, as it may scroll, and without a clock.
        self._live.vertical_overflow = "visible"
        self._live.update(self._table(wrap=True), refresh=True)
        self._live.stop()

    def update(self) -> None:
        """Redraw the table, unless it was drawn a moment ago."""
        if time.monotonic() - self._drawn > 1 / _REFRESHES_A_SECOND:
            self._drawn = time.monotonic()
            console, table = self._live.console, self._table(wrap=True)
            if len(console.render_lines(table)) > console.height - 2:
                table = self._table(wrap=False)
            clock_now = clock(self._drawn - self._started)
            title = Text(f"{self._title}  {clock_now}", "dim", no_wrap=True)
            title.truncate(console.width - _ECHO, overflow="ellipsis")
            self._live.update(Group(title, table), refresh=True)

    def note(self, text: str) -> None:
        self._live.console.print(text, style="yellow", highlight=False)

    def _table(self, *, wrap: bool) -> Constrain:
        """Lay out the rows; align replicas apart from tasks, whose names are longer."""
        every, tables = list(self._rows()), list[Table | Text]()
        rows = [row for row in every if row.state not in UNUSED]
        for is_replica, group in itertools.groupby(rows, key=lambda row: row.is_replica):
            indent = "  " if is_replica else ""
            longest = max(len(row.name) for row in rows if row.is_replica == is_replica)
            table = Table.grid(padding=(0, 1, 0, 0))
            table.add_column(width=1)
            table.add_column(min_width=len(indent) + longest)
            table.add_column(justify="right", min_width=_CLOCK_WIDTH, no_wrap=True)
            table.add_column()
            for row in group:
                mark, style = self._mark(row)
                text = row.text
                if row.state == "CACHED":
                    text = "cached"
                table.add_row(
                    mark,
                    Text(f"{indent}{row.name}", style),
                    Text(clock(row.seconds) if row.seconds else "", "dim"),
                    Text(text, "dim", no_wrap=not wrap, overflow="fold" if wrap else "ellipsis"),
                )
            tables.append(table)
        for line in _format_unused(every):
            tables.append(Text(f"- {line}", "dim", no_wrap=not wrap, overflow="ellipsis"))
        return Constrain(Group(*tables), self._live.console.width - _ECHO)

    def _mark(self, row: Row) -> tuple[Spinner | Text, str]:
        """Return the symbol of a row's state, and the style of its name."""
        if row.state == "RUNNING":
            return self._spinner, "" if row.is_replica else "bold"
        symbol, color = _MARKS.get(row.state, _MARKS["PENDING"])
        return Text(symbol, color), "dim" if color == "dim" else ""


class PlainView:
    """Lines for a log file: each change of a state, and the progress of tasks at intervals."""

    def __init__(self, rows: Callable[[], Iterable[Row]], console: Console) -> None:
        self._rows, self._console, self._started = rows, console, time.monotonic()
        self._states: dict[tuple[str, str], str] = {}
        self._lines: dict[tuple[str, str], tuple[float, str]] = {}

    def __enter__(self) -> "PlainView":
        return self

    def __exit__(self, *_: Any) -> None:
        self.update()
        for line in _format_unused([*self._rows()]):
            self.note(line)

    def update(self) -> None:
        """Print what has changed."""
        now, task = time.monotonic(), ""
        for name, state, seconds, text, is_replica in self._rows():
            task = task if is_replica else name
            row = task, name  # Jobs of several tasks may have equal replicas.
            if state != self._states.get(row, "PENDING") and state not in UNUSED:
                took = f" in {clock(seconds)}" if state != "RUNNING" and seconds else ""
                detail = f": {text}" if state != "RUNNING" and text else ""
                self.note(f"{name} {state}{took}{detail}")
                # Show the first line of progress immediately.
                self._lines[row] = (0.0, "")
            elif state == "RUNNING" and text not in ("", STARTING):
                shown, last = self._lines[row]
                if text != last and now - shown >= _PLAIN_SECONDS:
                    self.note(f"{name}: {text}")
                    self._lines[row] = (now, text)
            self._states[row] = state

    def note(self, text: str) -> None:
        print_plain(self._console, f"[{clock(time.monotonic() - self._started)}] {text}")


def _format_unused(rows: list[Row]) -> list[str]:
    """Return a line for each state of UNUSED with the names of its tasks."""
    by_state = {state: [row.name for row in rows if row.state == state] for state in UNUSED}
    return [f"{UNUSED[state]}: {', '.join(names)}" for state, names in by_state.items() if names]


def make_trial_row(trial: SearchTrial) -> Row:
    """Return the row of a trial: its newest measurement, its values, and its curve."""
    state = _TRIAL_STATES.get(trial.state, trial.state)
    text = trial.error or f"{_describe_trial(trial)}  {draw_curve(trial.curve)}".strip()
    return Row(f"trial {trial.name}", state, trial.seconds, text, is_replica=True)


def format_trial(trial: SearchTrial) -> str:
    """Return a trial's number, measurement and values, or why it has failed."""
    return f"{trial.name}: {trial.error or _describe_trial(trial)}"


def draw_curve(values: Sequence[float]) -> str:
    """Draw a curve in characters, one for each of the last values; empty if it has one point."""
    shown = values[-_CURVE:]
    low, spread = min(shown, default=0), max(shown, default=0) - min(shown, default=0)
    if not spread:
        return ""
    return "".join(_BARS[round((len(_BARS) - 1) * (value - low) / spread)] for value in shown)


def _describe_trial(trial: SearchTrial) -> str:
    parts = [f"{name} {decimal(value, 4)}" for name, value in trial.metrics.items()]
    for name, value in trial.values.items():
        parts.append(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}")
    return ", ".join(parts)
