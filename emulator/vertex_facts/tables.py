"""Read the tables of this package; word the errors about values that are not in them."""

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def load(name: str) -> dict[str, Any]:
    """Return the content of <name>.toml."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def suggest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return `; did you mean 'x'?` for the closest of `known`; if none is close, `otherwise`."""
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else otherwise


def choices(names: Iterable[Any]) -> str:
    """Format a list of choices: `1, 2 or 4`."""
    *leading, last = map(str, names)
    return f"{', '.join(leading)} or {last}" if leading else last
