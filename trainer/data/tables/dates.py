"""Dates and times of a column of the type date, the same in files, requests and a SavedModel.

    DateForm("%d/%m/%Y").parse("3/12/2016")      # "2016-12-03"

Records have 2024-03-01 or 2024-03-01T08:30:00, as written: an offset from UTC is left out. A column
whose dates are not in ISO 8601 names their format, in directives of strptime; ISO 8601 is read
beside it. A time without a date is on the first day of 1970, and a month begins on its first day.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

FORM = (
    r"^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(?:(:\d{2})(?:\.\d+)?)?)?"
    r" ?(?:Z|UTC|[+-]\d{2}(?::?\d{2})?)?$"
)
"""Pattern of ISO 8601 dates and times, in the syntax of re and of RE2."""
EPOCHS = {"seconds since 1970": 1, "milliseconds since 1970": 1000}
"""Formats of times that are numbers, and the units that a second has."""
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
AFTERNOON = "pm|p.m.|下午|午後|오후"
_MORNING = "am|a.m.|上午|午前|오전"
PARTS = {"month": 12, "weekday": 7, "hour": 24}
"""The categories of a date: the number of values of each."""
_ISO = re.compile(FORM, re.ASCII)
_FULL = ("uary", "ruary", "ch", "il", "", "e", "y", "ust", "t(?:ember)?", "ober", "ember", "ember")
_MONTH = "|".join(f"{name}(?:{rest})?" for name, rest in zip(MONTHS, _FULL, strict=True))
_DIRECTIVES = {
    "Y": r"(\d{4})",
    "y": r"(\d{2})",
    "m": r"(\d{1,2})",
    "d": r"(\d{1,2})(?:st|nd|rd|th)?",
    "b": rf"({_MONTH})\.?",
    "H": r"(\d{1,2})",
    "I": r"(\d{1,2})",
    "M": r"(\d{2})",
    "S": r"(\d{2})(?:\.\d+)?",
    "p": f"({_MORNING}|{AFTERNOON})".replace(".", r"\."),
    "a": r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?",
    "z": r"(?:z|utc|gmt|[+-]\d{2}(?::?\d{2})?)",
}
_SAME = {"B": "b", "A": "a"}
_FIRST = {"Y": 1970, "m": 1, "d": 1, "M": 0, "S": 0}
"""The value of a part that a format lacks."""
PIVOT = 69
"""Two digits of a year from here are in the 20th century, as for strptime of POSIX."""


def is_date_format(format: str) -> bool:
    """Return whether a format is one of dates rather than of numbers."""
    return "%" in format or format in EPOCHS


def clean_date(text: str) -> str:
    """Return a date or time of ISO 8601 as in the records; raise ValueError if it is none."""
    match = _ISO.match(text)
    if not match:
        raise ValueError
    day, minute, second = match.groups()
    cleaned = f"{day}T{minute}{second or ':00'}" if minute else day
    datetime.datetime.fromisoformat(cleaned)
    return cleaned


@dataclasses.dataclass(frozen=True)
class DateForm:
    """The form of a column's dates.

    Args:
        format: a key of EPOCHS, or directives of strptime: %Y, %y, %m, %d, %b or %B (English), %H,
            %I, %M, %S, %p, %a, %z. Case, leading zeros, fractions of a second
            and the ending of 3rd do not matter.
            Empty: ISO 8601.

    Raises:
        ValueError: a format has another directive, has one twice, or no date and no hour; or it
            is written like ISO 8601, but means another date.
    """

    format: str = ""

    def __post_init__(self) -> None:
        if not self.format or self.is_epoch:
            return
        known = self._names
        if unknown := [name for name in known if name not in _DIRECTIVES]:
            raise ValueError(f"%{unknown[0]} is not one of %{', %'.join(_DIRECTIVES)}")
        meanings = {"b": "m", "y": "Y", "I": "H"}
        if len({meanings.get(name, name) for name in known}) < len(known):
            raise ValueError("a directive occurs twice")
        if not {"Y", "y"} & {*known} and not {"H", "I"} & {*known}:
            raise ValueError("it has neither a year nor an hour")
        if ("I" in known) != ("p" in known):
            raise ValueError("%I and %p go together")
        if re.match("%Y-%d-%m", self.format):
            raise ValueError("ISO 8601 reads such dates as %Y-%m-%d")

    @property
    def is_epoch(self) -> bool:
        return self.format in EPOCHS

    @property
    def _names(self) -> list[str]:
        return [_SAME.get(name, name) for name in re.findall("%(.)", self.format, re.DOTALL)]

    @functools.cached_property
    def parts(self) -> list[str]:
        """Return the directives whose text the groups of `pattern` hold, in their order."""
        return [name for name in self._names if name not in "az"]

    @functools.cached_property
    def pattern(self) -> str:
        """Return the pattern of dates in the format, in the syntax of re and of RE2."""
        if self.is_epoch:
            return r"^(-?\d{1,14})(?:\.\d+)?$"
        made, is_compact = "", re.search("%[YymdHM]%[YymdHM]", self.format)
        for literal, name in re.findall(r"([^%]*)(?:%(.))?", self.format, re.DOTALL):
            made += re.sub(r"\s+", r"\\s+", _escape(literal))
            part = _DIRECTIVES.get(_SAME.get(name, name), "")
            # Without a mark between them, numbers have leading zeros: 20240131.
            made += part.replace("{1,2}", "{2}") if is_compact else part
        return f"(?i)^{made}$"

    def parse(self, text: str) -> str:
        """Return a date or time as in the records; raise ValueError if it is none."""
        match = re.match(self.pattern, text, re.ASCII) if self.format else None
        if not match:
            return clean_date(text)
        if self.is_epoch:
            seconds = int(match[1]) // EPOCHS[self.format]
            try:
                moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
            except OverflowError:
                raise ValueError from None
            return moment.isoformat()
        given = dict(zip(self.parts, map(str.lower, match.groups()), strict=True))
        if "b" in given:
            given["m"] = str(MONTHS.index(given["b"][:3]) + 1)
        if "y" in given:
            year = int(given["y"])
            given["Y"] = str(year + (1900 if year >= PIVOT else 2000))
        hour = int(given.get("H", given.get("I", 0)))
        if "p" in given:
            if not 1 <= hour <= 12:
                raise ValueError
            hour = hour % 12 + 12 * (given["p"] in AFTERNOON.split("|"))
        year, month, day, minute, second = (
            int(given.get(name, first)) for name, first in _FIRST.items()
        )
        moment = datetime.datetime(year, month, day, hour, minute, second)
        has_time = not {"H", "I"}.isdisjoint(given)
        return moment.isoformat() if has_time else moment.date().isoformat()


def _escape(literal: str) -> str:
    """Return a pattern for text, in the syntax of re and of RE2."""
    return re.sub(r"([^\w\s])", r"\\\1", literal, flags=re.ASCII) if literal.isascii() else literal


def count_days(dates: Sequence[str]) -> np.ndarray:
    """Return the days since 1970 of cleaned dates, float64 [n]; NaN for empty text."""
    import numpy as np  # Commands that only read a recipe need none.

    moments = np.array([date or "NaT" for date in dates], "datetime64[s]")
    seconds = moments.astype(np.int64).astype(np.float64)
    return np.where(np.isnat(moments), np.nan, seconds / 86_400)


def name_day(days: float) -> str:
    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=int(days))).isoformat()
