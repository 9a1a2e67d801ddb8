"""Printing of what is data, not markup."""

import sys

from rich.console import Console
from rich.text import Text

from trainer.errors import printable


def print_plain(console: Console, text: str) -> None:
    """Print text as it is: no brackets are markup, no numbers colored, no lines broken.

    What would control the terminal, as a stored name may, is spelled out.
    """
    lines = "\n".join(map(printable, text.split("\n")))
    console.print(lines, markup=False, highlight=False, soft_wrap=True)


def for_errors(console: Console) -> Console:
    """Return the console for what failed: the standard error, unless `console` has a file."""
    return Console(stderr=True) if console.file is sys.stdout else console


def cell(text: str, style: str = "") -> Text:
    """Return text for a table's cell, printed as `print_plain` prints it."""
    return Text(printable(text), style)
