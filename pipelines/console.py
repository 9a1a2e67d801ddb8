"""Printing of what is data, not markup."""

import os
import sys
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainer.errors import printable


def print_plain(console: Console, text: str) -> None:
    """Print text as it is: no brackets are markup, no numbers colored, no lines broken.

    What would control the terminal, as a stored name may, is spelled out.
    """
    lines = "\n".join(map(printable, text.split("\n")))
    console.print(lines, markup=False, highlight=False, soft_wrap=True)


def say(*lines: str) -> None:
    """Print lines to the standard output as `print_plain` does."""
    for line in lines:
        print_plain(Console(), line)


def show_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[str] = ()
) -> None:
    """Print rows of text below their titles, those of `right` aligned there; nothing is cut off."""
    table = Table(box=None)
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row))
    Console().print(table)


def complain(line: str) -> None:
    """Print a line to the standard error as `print_plain` does."""
    print_plain(Console(stderr=True), line)


def clock(seconds: float) -> str:
    """Return 12.3 s, 1:02 or 1:02:03."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def relative(path: object) -> str:
    """Return a path as short as it can be typed from here."""
    short = os.path.relpath(str(path))
    return short if len(short) < len(str(path)) else str(path)


def for_errors(console: Console) -> Console:
    """Return the console for what failed: the standard error, unless `console` has a file."""
    return Console(stderr=True) if console.file is sys.stdout else console


def cell(text: str, style: str = "") -> Text:
    """Return text for a table's cell, printed as `print_plain` prints it."""
    return Text(printable(text), style)
