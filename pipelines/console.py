"""How commands print what is data, not markup."""

from rich.console import Console


def print_plain(console: Console, text: str) -> None:
    """Prints text as it is: no brackets are markup, no numbers colored, no lines broken."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
