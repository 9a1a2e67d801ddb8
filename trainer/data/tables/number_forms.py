"""Numbers as files and requests write them.

    parse_number("7e0")                                               # 7.0
    NumberForm("1,234.56").parse("4,25,000")                          # 425000.0
    NumberForm("1.234,56", {"€": 1}).parse("(1.250,00 €)")            # -1250.0
    NumberForm("1234.56", {"$": 1, "B": 1e9}).parse("$177 B")         # 177000000000.0
    NumberForm("", {"h": 60, "m": 1}).parse("2h 50m")                 # 170.0
    NumberForm("1:23:45").parse("01:32:10")                           # 5530.0

A column has one form, which its recipe names. A form never guesses: text that is not written in it
is not a number.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

MAX_FLOAT = 3.4028234663852886e38
"""The largest float32."""
BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
"""The meaning of each form of a boolean, in lower case."""
BOOLEAN_WORDS = ("true", "false")
"""Booleans of Parquet, BigQuery and JSON as text."""
CLOCK = "1:23:45"
"""The format of durations: 1:23:45 and 83:45 in seconds, or 1:23 in minutes."""
FORMATS = (
    *("1234.56", "1,234.56", "1234,56", "1.234,56", "1 234,56", "1 234.56", "1'234.56"),
    CLOCK,
)
"""The formats of numbers: the marks of groups and of decimals in 1234.56; and durations."""
BOUNDS = ("missing", "value")
"""The readings of a number that is only bounded, such as <5."""

_SIGNS = str.maketrans(
    {**dict.fromkeys("\u2212\u2013\u2014", "-"), "\u2019": "'", "\u066b": ".", "\u066c": ","}
)
_BOUND = re.compile(r"^(?:<=?|>=?|≤|≥)\s*")
_BOUND_AFTER = re.compile(
    r"^\+ ?| ?(?:\+|(以下|未満|以内|이하|미만|or less|and under)|以上|이상|or more|and over)$"
)
"""Pattern of what follows a number that is a bound; the group is of upper bounds."""
RANGE = re.compile(r"\s*(?:[-~\u301c]|\bto\b)\s*")
"""Pattern of what separates the ends of a range, in a normalized text."""
_CLOCK = re.compile(
    r"(?:(\d+) days?,? )?(\d+):([0-5]\d)(?::([0-5]\d))?(\.\d+)?(?![.:]?\d| ?[ap]\.?m)",
    re.ASCII | re.IGNORECASE,
)
_UNIT_BEFORE_NUMBER = re.compile(r"(\D*?[^\d\s.,:(+-]\.?)(?:,|\s+and\b)?\s*(?=\d)")


def parse_number(text: str) -> float:
    """Return text as a number; empty text and "nan" are NaN, "true" and "false" are 1 and 0.

    Otherwise as Python's float does, but without underscores. Raise ValueError for text that is not
    a number, or a number that is too large for a float32.
    """
    text = text.strip()
    if text.lower() in BOOLEAN_WORDS:
        return float(BOOLEANS[text.lower()])
    number = float(text) if text else math.nan
    if "_" in text or abs(number) > MAX_FLOAT:
        raise ValueError
    return number


def is_number(text: str) -> bool:
    """Return whether `parse_number` reads text as a number that is not missing."""
    try:
        return not math.isnan(parse_number(text))
    except ValueError:
        return False


class NumberWithUnits(NamedTuple):
    """A number with the units before and after it."""

    number: float
    prefix: str
    suffix: str
    bound: str  # "<" or ">" if the number is only a bound, else empty


@dataclasses.dataclass(frozen=True)
class NumberForm:
    """The form of a column's numbers: a format, units, and the reading of bounds.

    Text in parentheses is negative, `a - b` is a range and stands for its mean, amounts such as
    `2h 50m` are added, and a number without a unit has the factor 1. Text may have full-width
    characters and any kind of space.

    Args:
        format: one of FORMATS; empty: as `parse_number`, or as 1234.56 if there are units.
        units: the factor of each text before or after a number, such as {"k": 1000, "€": 1}.
        bounds: one of BOUNDS. `<5` and `10+` are missing, or the number 5 and 10.
    """

    format: str = ""
    units: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)
    bounds: str = BOUNDS[0]

    @property
    def is_plain(self) -> bool:
        """Return whether numbers are those of `parse_number`."""
        return not (self.format or self.units)

    def parse(self, text: str) -> float:
        """Return text as a number, NaN if it is empty, "nan" or a bound that is missing.

        Raise ValueError for text in another form, or a number that is too large for a float32.
        """
        if self.is_plain:
            return parse_number(text)
        text = normalize(text)
        if not text or text.lower() == "nan":
            return math.nan
        try:
            number = self._scale(self._split(text))
        except ValueError:
            number = self._parse_several(text)
        if abs(number) > MAX_FLOAT:
            raise ValueError
        return number

    def _parse_several(self, text: str) -> float:
        with contextlib.suppress(ValueError):
            return self._parse_amounts(text)
        return self._parse_range(text)

    def _parse_amounts(self, text: str) -> float:
        """Return the sum of amounts, each in a smaller unit than the one before."""
        parts = split_amounts(text, self.format or FORMATS[0])
        scales = [{"": 1.0, **self._factors}.get(part.suffix, 0.0) for part in parts]
        if any(first <= second for first, second in itertools.pairwise(scales)):
            raise ValueError
        # The sign of -2h 50m is that of the sum.
        amounts = [self._scale(part._replace(number=abs(part.number))) for part in parts]
        return math.copysign(1.0, parts[0].number) * sum(amounts)

    def _parse_range(self, text: str) -> float:
        for mark in RANGE.finditer(text, 1):
            try:
                low, high = self._split(text[: mark.start()]), self._split(text[mark.end() :])
            except ValueError:
                continue
            # In "5 - 10 lakh" and "$5 - 10", one unit holds for both.
            low = low._replace(suffix=low.suffix or high.suffix)
            high = high._replace(prefix=high.prefix or low.prefix)
            ends = self._scale(low), self._scale(high)
            if ends[0] <= ends[1]:
                return sum(ends) / 2
        raise ValueError

    def _scale(self, part: NumberWithUnits) -> float:
        factors = self._factors
        for unit in filter(None, (part.prefix, part.suffix)):
            if unit not in factors:
                raise ValueError
        number = part.number * factors.get(part.prefix, 1.0) * factors.get(part.suffix, 1.0)
        return math.nan if part.bound and self.bounds == "missing" else number

    @functools.cached_property
    def _factors(self) -> dict[str, float]:
        return {normalize(unit): float(factor) for unit, factor in self.units.items()}

    def _split(self, text: str) -> NumberWithUnits:
        return split_number(text, self.format or FORMATS[0])


def normalize(text: str) -> str:
    """Return text with ASCII digits, signs and single spaces, without space around it."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_SIGNS)
        text = re.sub(r"[^\D0-9]", lambda digit: str(unicodedata.decimal(digit[0])), text)
    return " ".join(text.split())


def split_number(text: str, format: str) -> NumberWithUnits:
    """Return the number in a normalized text, and the text before and after it.

    Raise ValueError if it has no number in that format.
    """
    is_negative = text.startswith("(") and text.endswith(")")
    if is_negative:
        text = text[1:-1].strip()
    bound = ""
    if sign_before := _BOUND.match(text):
        bound = "<" if text[0] in "<≤" else ">"
        text = text[sign_before.end() :]
    start = re.search(r"\d", text)
    if not start:
        raise ValueError
    pattern, group, decimal = _compile(format)
    head, rest = text[: start.start()], text[start.start() :]
    # The point of "$.50" belongs to the number, that of "Rs.500" to the unit.
    if head.endswith(decimal) and not head[:-1].rstrip(".")[-1:].isalpha():
        head, rest = head[:-1], f"0{decimal}{rest}"
    head = head.strip()
    for sign in (head[:1], head[-1:]):
        if sign in ("-", "+") and sign in (head[:1], head[-1:]):
            is_negative ^= sign == "-"
            head = (head[1:] if head[:1] == sign else head[:-1]).strip()
            break
    match = pattern.match(rest)
    if not match:
        raise ValueError
    number = _sum_clock(match) if format == CLOCK else _to_float(match[0], group, decimal)
    suffix = rest[match.end() :].strip()
    if suffix == "-":  # Accountants write 1,250.00-.
        is_negative, suffix = not is_negative, ""
    if suffix and (words := _BOUND_AFTER.search(suffix)):
        bound = "<" if words[1] else ">"
        suffix = suffix[: words.start()] + suffix[words.end() :]
    return NumberWithUnits(-number if is_negative else number, head, suffix, bound)


def _to_float(text: str, group: str, decimal: str) -> float:
    digits = text.replace(group, "") if group else text
    return float(digits.rstrip("-").replace(decimal, "."))


def _sum_clock(match: re.Match[str]) -> float:
    """Return a duration in units of its last part."""
    days, first, second, third, fraction = match.groups()
    whole = (24 * int(days or 0) + int(first)) * 60 + int(second)
    return (whole if third is None else 60 * whole + int(third)) + float(fraction or 0)


def split_amounts(text: str, format: str) -> list[NumberWithUnits]:
    """Return the amounts in a normalized text such as 2h 50m or 2h50, with the unit after each.

    Raise ValueError if it has only one.
    """
    first = split_number(text, format)
    unit = _UNIT_BEFORE_NUMBER.match(first.suffix)
    if not unit:
        raise ValueError
    rest = first.suffix[unit.end() :]
    try:
        others = split_amounts(rest, format)
    except ValueError:
        others = [split_number(rest, format)]
    return [first._replace(suffix=unit[1]), *others]


@functools.cache
def _compile(format: str) -> tuple[re.Pattern[str], str, str]:
    """Return the pattern of numbers in a format, and its marks of groups and of decimals."""
    if format == CLOCK:
        return _CLOCK, "", "."
    group = format[1] if not format[1].isdigit() else ""
    decimal = format[-3]
    mark = re.escape(group)
    # No cents are a dash: 1.250,-.
    cents = rf"(?:{re.escape(decimal)}(?:-{{1,2}}|\d*))?"
    pattern = rf"\d+{cents}(?:[eE][+-]?\d+)?"
    if group:
        least = 2 if group == "," else 3  # Of lakhs and crores: 4,25,000.
        grouped = rf"[1-9]\d{{0,2}}(?:{mark}\d{{{least},3}})*{mark}\d{{3}}(?!\d)"
        # The mark before an exponent is that of decimals: 8,038E+01.
        pattern = rf"(?:{grouped}{cents}(?![eE][+-]?\d)|{pattern})"
    # A number is not the head of a longer one, as 1 is of 1,5.
    return re.compile(rf"{pattern}(?![.,']?\d)", re.ASCII), group, decimal
