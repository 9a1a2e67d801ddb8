"""Format numbers, durations, names and values for people; templates use them as filters."""

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any

UNDEFINED = "–"  # noqa: RUF001 - a dash in tables
_CENT = 0.01
_LARGE = 1000
"""Smallest number that is shown without decimals."""


def percent(value: float | None, digits: int = 1) -> str:
    """Format 0.9722 as 97.2%; only exactly 1 and 0 become 100% and 0%."""
    if value is None:
        return UNDEFINED
    step = 10.0 ** -(digits + 2)
    shown = value
    if 0 < value < 1:
        shown = min(max(value, step), 1 - step)
    return f"{100 * shown:.{digits}f}%" if value not in (0, 1) else f"{100 * value:.0f}%"


def decimal(value: float | None, digits: int = 3) -> str:
    """Format 0.99996 as 0.999; only exactly 1 becomes 1.000. Format 48291.5 as 48,292."""
    if value is None:
        return UNDEFINED
    if abs(value) >= _LARGE:
        return f"{value:,.0f}"
    return f"{min(value, 1 - 10.0**-digits) if 0.5 < value < 1 else value:.{digits}f}"


def number(value: float | None) -> str:
    """Format a number of any unit with four digits: 0.01235, 12.35; without decimals from 1,000."""
    if value is None:
        return UNDEFINED
    return f"{value:,.0f}" if abs(value) >= _LARGE else f"{value:.4g}"


def count(value: float, noun: str, plural: str = "") -> str:
    """Format a count with its noun: `1 example`, `1,797 examples`."""
    return f"{value:,.0f} {noun if value == 1 else plural or noun + 's'}"


def number_of(value: float, plural: str) -> str:
    """Format a count as `count` does, with a noun in the plural: `1 row`, `2 rows`."""
    return count(value, plural.removesuffix("s"), plural)


def choices(names: Iterable[Any]) -> str:
    """Format a list of choices: `1, 2 or 4`."""
    *leading, last = map(str, names)
    return f"{', '.join(leading)} or {last}" if leading else last


def listing(names: Iterable[str], width: int = 300) -> str:
    """Format names in one line, `a, b, c`; leave out those beyond `width` characters: `a, ...`."""
    text = ", ".join(names)
    shown = text[:width]
    return text if text == shown else f"{shown.rpartition(', ')[0] or shown}, ..."


def suggest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return `; did you mean 'x'?` for the closest of `known`, ignoring case.

    If there is no close name, return `otherwise`; default: the list of `known`.
    """
    by_lower_case = {choice.lower(): choice for choice in known}
    given = name.lower()
    # Typing errors are rarely in the first letter, which most words alike by chance differ in.
    alike = [lower for lower in by_lower_case if lower[:1] == given[:1]]
    close = (
        difflib.get_close_matches(given, by_lower_case, n=1, cutoff=0.8)
        # The user may have given a part of a name: T4 for NVIDIA_TESLA_T4.
        or sorted((lower for lower in by_lower_case if given in re.split("[_-]", lower)), key=len)
        or difflib.get_close_matches(given, alike, n=1, cutoff=0.6)
    )
    if close:
        return f"; did you mean {by_lower_case[close[0]]!r}?"
    return f"; known: {listing(sorted(by_lower_case.values()))}" if otherwise is None else otherwise


def size(count: int) -> str:
    """Format a number of bytes in kB, MB or GB."""
    if count >= 1e9:
        return f"{count / 1e9:,.1f} GB"
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"


def clock(seconds: float) -> str:
    """Format the time of a running task: `12.3 s`, `1:02`, `1:02:03`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def duration(seconds: float) -> str:
    """Format a duration for a sentence: `12.3 s`, `1 min 15 s`, `48 min`, `2 h 5 min`."""
    if seconds < 59.95:
        return f"{round(seconds, 1):g} s"
    minutes, rest = divmod(round(seconds), 60)
    parts = (minutes // 60, "h"), (minutes % 60, "min"), (rest if minutes < 60 else 0, "s")
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def money(amount: float) -> str:
    """Format an amount in US dollars."""
    return f"{amount:.2f} USD" if amount >= _CENT else "less than a cent"


def figure(value: float, form: str = ",") -> str:
    """Format a number by a Python format specification: 1,797."""
    return format(value, form)


def plain(value: Any) -> Any:
    """Format any JSON value for a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int)) for item in value):
        return ", ".join(map(str, value))
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value
