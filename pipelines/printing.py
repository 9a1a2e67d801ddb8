"""Print text to the console as data, not as markup."""

import os
import pathlib
from collections.abc import Collection, Iterable, Sequence

import rich.console
from rich.table import Table
from rich.text import Text

from vertex.errors import escape_controls


class Console(rich.console.Console):
    """A console that drops its output once the reader has left, such as `head`."""

    def on_broken_pipe(self) -> None:
        """Write to nowhere from now on; by default, Rich ends the process."""
        with pathlib.Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), self.file.fileno())


def print_plain(console: rich.console.Console, text: str) -> None:
    """Print text without markup, colors or line breaks.

    Escapes control characters, which a stored name may contain.
    """
    lines = "\n".join(map(escape_controls, text.split("\n")))
    console.print(lines, markup=False, highlight=False, soft_wrap=True)


def say(*lines: str) -> None:
    """Print lines to the standard output as `print_plain` does."""
    for line in lines:
        print_plain(Console(), line)


def show_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[str] = ()
) -> None:
    """Print rows of text below their titles, uncut; columns in `right` are aligned right."""
    table = Table(box=None)
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(make_cell, row))
    Console().print(table)


def print_error(line: str) -> None:
    """Print a line to the standard error as `print_plain` does."""
    print_plain(Console(stderr=True), line)


def shorten_path(path: object) -> str:
    """Return a path relative to the working folder, if that is shorter."""
    short = os.path.relpath(str(path))
    return short if len(short) < len(str(path)) else str(path)


def make_cell(text: str, style: str = "") -> Text:
    """Return text for a table's cell, printed as `print_plain` prints it."""
    return Text(escape_controls(text), style)
