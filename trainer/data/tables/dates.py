"""Dates and times of a column of the type date, the same in files, requests and a SavedModel.

Records have 2024-03-01 or 2024-03-01T08:30:00, as written: an offset from UTC is left out.
"""

import datetime
import re
from collections.abc import Sequence

import numpy as np

FORM = (
    r"^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(?:(:\d{2})(?:\.\d+)?)?)?"
    r" ?(?:Z|UTC|[+-]\d{2}(?::?\d{2})?)?$"
)
"""Pattern of ISO 8601 dates and times, in the syntax of re and of RE2."""
PARTS = {"month": 12, "weekday": 7, "hour": 24}
"""The categories of a date: the number of values of each."""
_PATTERN = re.compile(FORM, re.ASCII)


def clean_date(text: str) -> str:
    """Return a date or time as in the records; raise ValueError if it is none."""
    match = _PATTERN.match(text)
    if not match:
        raise ValueError
    day, minute, second = match.groups()
    cleaned = f"{day}T{minute}{second or ':00'}" if minute else day
    datetime.datetime.fromisoformat(cleaned)
    return cleaned


def count_days(dates: Sequence[str]) -> np.ndarray:
    """Return the days since 1970 of cleaned dates, float64 [n]; NaN for empty text."""
    moments = np.array([date or "NaT" for date in dates], "datetime64[s]")
    seconds = moments.astype(np.int64).astype(np.float64)
    return np.where(np.isnat(moments), np.nan, seconds / 86_400)


def name_day(days: float) -> str:
    """Return the date of a number of days since 1970."""
    return str(np.datetime64(int(days), "D"))
