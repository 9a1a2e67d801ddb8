"""Show a run on the console: a live table on a terminal, else a line for each change."""

import collections
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from pipelines.console import clock, print_plain

Row = tuple[str, str, float, str]
"""Name, state, seconds and last message of a task, or of a replica if its name is indented."""
STARTING = "starting"
"""The message of a task that has sent none yet."""

_REFRESHES_A_SECOND = 5
_PLAIN_SECONDS = 5.0
_ECHO = 3
"""Columns left free, so that the echo of a key such as ^C does not wrap."""
_CLOCK_WIDTH = 7
"""Minimum columns of a clock, enough for 9:59:59."""
_MAX_LINES = 3
_NARROW = 40
"""Width below which text moves under its row, indented by `_BELOW`."""
_BELOW = 4

_MARKS = {
    "PENDING": ("·", "dim"),
    "SUCCEEDED": ("✓", "green"),
    "CACHED": ("✓", "cyan"),
    "FAILED": ("✗", "red"),
    "CANCELLED": ("✗", "yellow"),
    "STOPPED": ("-", "dim"),
    "SKIPPED": ("-", "dim"),
    "NOT_TRIGGERED": ("-", "dim"),
}


def view_of(
    rows: Callable[[], Iterable[Row]], console: Console, title: str
) -> "LiveView | PlainView":
    """Return the view that suits the console; a terminal shows the title above the table."""
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveView(rows, console, title) if live else PlainView(rows, console)


class LiveView:
    """A table that is redrawn in place, with a row for each task and replica.

    Text that is too long for its row continues below. If the rows do not fit on the screen, only
    the chief and replicas that failed or were restarted have a row; a line counts the others.
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
        # The last table stays on the screen: with all rows, as it may scroll, and no clock.
        self._live.update(Group(*self._lines(list(self._rows()))), refresh=True)
        self._live.stop()

    def update(self) -> None:
        """Redraw the table, unless it was drawn a moment ago."""
        if time.monotonic() - self._drawn > 1 / _REFRESHES_A_SECOND:
            self._drawn = time.monotonic()
            rows = list(self._rows())
            room = self._live.console.height - 2
            head = f"{self._title}  {clock(self._drawn - self._started)}"
            lines = self._lines(rows)
            if len(lines) > room:
                lines = self._lines(list(_folded(rows)) if len(rows) > room else rows, most=1)
            title = Text(head, "dim", no_wrap=True)
            title.truncate(self._width, overflow="ellipsis")
            self._live.update(Group(title, *lines), refresh=True)

    def note(self, text: str) -> None:
        self._live.console.print(text, style="yellow", highlight=False)

    @property
    def _width(self) -> int:
        return max(20, self._live.console.width - _ECHO)

    def _lines(self, rows: list[Row], most: int = _MAX_LINES) -> list[Text]:
        """Lay out the rows, with at most `most` lines of text each; align replicas separately."""
        width = self._width
        names = {
            inner: max((len(row[0]) for row in rows if row[0].startswith(" ") == inner), default=0)
            for inner in (False, True)
        }
        clocks = [clock(seconds) if seconds else "" for _, _, seconds, _ in rows]
        clock_width = max([_CLOCK_WIDTH, *map(len, clocks)])
        lines = []
        for (name, state, _, text), took in zip(rows, clocks, strict=True):
            mark, style = self._mark(state, name)
            if state in ("CACHED", "SKIPPED", "NOT_TRIGGERED"):
                text = state.lower().replace("_", " ")
            first = f" {name:{names[name.startswith(' ')]}} "
            indent = 1 + len(first) + clock_width + 1
            wrapped = _wrapped(text, width - indent, most)
            if len(wrapped) > 1 and width - indent < _NARROW:
                indent = _BELOW
                wrapped = ["", *_wrapped(text, width - indent, most)]
            beside = f" {wrapped[0]}" if wrapped else ""
            lines.append(
                Text.assemble(mark, (first, style), (f"{took:>{clock_width}}{beside}", "dim"))
            )
            lines += [Text(" " * indent + rest, "dim") for rest in wrapped[1:]]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
            line.no_wrap = True
        return lines

    def _mark(self, state: str, name: str) -> tuple[Text, str]:
        """Return the symbol of a state, and the style of the name beside it."""
        if state == "RUNNING":
            frame = self._spinner.render(self._live.console.get_time())
            assert isinstance(frame, Text)
            return frame, "" if name.startswith(" ") else "bold"
        symbol, color = _MARKS.get(state, _MARKS["PENDING"])
        return Text(symbol, color), "dim" if color == "dim" else ""


def _wrapped(text: str, width: int, most: int) -> list[str]:
    """Wrap text into at most `most` lines of `width`; mark omitted text by "…"."""
    if most == 1:
        return [text if len(text) <= width else f"{text[: max(0, width - 1)]}…"]
    return textwrap.wrap(
        text, max(10, width), max_lines=most, placeholder=" …", break_on_hyphens=False
    )


class PlainView:
    """Lines for a log file: each change of a state, and the progress of tasks at intervals."""

    def __init__(self, rows: Callable[[], Iterable[Row]], console: Console) -> None:
        self._rows, self._console, self._started = rows, console, time.monotonic()
        self._states: dict[str, str] = {}
        self._lines: dict[str, tuple[float, str]] = {}

    def __enter__(self) -> "PlainView":
        return self

    def __exit__(self, *_: Any) -> None:
        self.update()

    def update(self) -> None:
        """Print what has changed."""
        now = time.monotonic()
        for name, state, seconds, text in self._rows():
            # Leave out tasks that never ran after a failure; they would hide the error.
            if state != self._states.get(name, "PENDING") and state != "NOT_TRIGGERED":
                took = f" in {clock(seconds)}" if state != "RUNNING" and seconds else ""
                detail = f": {text}" if state != "RUNNING" and text else ""
                self.note(f"{name.strip()} {state}{took}{detail}")
                # Show the first line of progress immediately.
                self._lines[name] = (0.0, "")
            elif state == "RUNNING" and text not in ("", STARTING):
                shown, last = self._lines[name]
                if text != last and now - shown >= _PLAIN_SECONDS:
                    self.note(f"{name.strip()}: {text}")
                    self._lines[name] = (now, text)
            self._states[name] = state

    def note(self, text: str) -> None:
        print_plain(self._console, f"[{clock(time.monotonic() - self._started)}] {text}")


def _folded(rows: list[Row]) -> Iterator[Row]:
    """Yield the rows, with replicas that run normally replaced by a row that counts them."""
    hidden: collections.Counter[str] = collections.Counter()
    for row in rows:
        name, state, _, text = row
        quiet = name.startswith(" ") and state != "FAILED" and not text.startswith("restart")
        if quiet and not name.startswith("  chief"):
            hidden[state] += 1
            continue
        if hidden and not name.startswith(" "):
            yield _count(hidden)
            hidden.clear()
        yield row
    if hidden:
        yield _count(hidden)


def _count(hidden: collections.Counter[str]) -> Row:
    listed = ", ".join(f"{times} {state.lower()}" for state, times in hidden.items())
    state = "RUNNING" if hidden["RUNNING"] else hidden.most_common(1)[0][0]
    return "  others", state, 0.0, listed
