"""Numbers and values as the page shows them: the filters of the templates."""

import json
import math
from typing import Any

UNDEFINED = "–"  # noqa: RUF001 - a dash is what tables show for nothing
_CENT = 0.01


def percent(value: float | None, digits: int = 1) -> str:
    """Return 0.9722 as 97.2%, where 100% and 0% mean exactly that."""
    if value is None:
        return UNDEFINED
    step = 10.0 ** -(digits + 2)
    shown = value
    if 0 < value < 1:
        shown = min(max(value, step), 1 - step)
    return f"{100 * shown:.{digits}f}%" if value not in (0, 1) else f"{100 * value:.0f}%"


def decimal(value: float | None, digits: int = 3) -> str:
    """Return 0.99996 as 0.999, so that 1.000 means exactly that."""
    if value is None:
        return UNDEFINED
    return f"{min(value, 1 - 10.0**-digits) if 0.5 < value < 1 else value:.{digits}f}"


def count(value: float, noun: str, plural: str = "") -> str:
    """Return `1 example`, `1,797 examples`."""
    return f"{value:,.0f} {noun if value == 1 else plural or noun + 's'}"


def size(count: int) -> str:
    """Return bytes in the unit that leaves few digits."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"


def duration(seconds: float) -> str:
    """Return seconds as a person says them."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def money(amount: float) -> str:
    """Return an amount in US dollars."""
    return f"{amount:.2f} USD" if amount >= _CENT else "less than a cent"


def figure(value: float, form: str = ",") -> str:
    """Return a number by Python's format specification: 1,797."""
    return format(value, form)


def plain(value: Any) -> Any:
    """Return any JSON value as it reads in a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int)) for item in value):
        return ", ".join(map(str, value))
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value


def number(value: Any) -> float | None:
    """Return a finite number from a table of text or numbers; None for anything else."""
    try:
        parsed = float(value)
    except (TypeError, ValueError):
        return None
    return parsed if math.isfinite(parsed) else None
