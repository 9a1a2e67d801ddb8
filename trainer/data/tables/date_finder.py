"""Find the format in which a column's dates are written, from a sample of them."""

from __future__ import annotations

import datetime
import functools
import itertools
import re
from collections.abc import Mapping

from trainer.data.tables.columns import clean_text
from trainer.data.tables.dates import EPOCHS, DateForm
from trainer.data.tables.form_finder import FITTING, Found, find_missing, load_forms, tell_words
from trainer.data.tables.number_forms import try_parse

_FIRST = 20
"""Number of texts that decide which formats are tried."""
_MOST_COMPARED = 1000
"""Number of texts by which two formats that fit are compared."""
_FEW = 5
"""Least number of different texts that are numbers and may be dates."""
_LONGEST = 40
"""Characters that a date has at most."""
_CLOCK = re.compile(r"time|date|stamp|epoch|created|updated|(^|_)(ts|at|when)$", re.IGNORECASE)
_SECONDS = (631_152_000, 2_208_988_800)
"""From 1990 to 2040: numbers that are taken for times if their column is named so."""
_EXAMPLES = {"b": "Jan", "B": "Jan", "a": "Mon", "A": "Mon", "p": "PM", "z": "+00"}


def find_dates(rows: Mapping[str, int], name: str = "", format: str = "") -> Found | None:
    """Return the form of dates; None if the column has none.

    Args:
        rows: the number of rows of each text, in NFC and without empty ones.
        name: the column's name, which tells times that are numbers from other numbers.
        format: the only format to try; empty: all of forms.toml.
    """
    markers = find_missing(rows)
    texts = {text: clean_text(text) for text in rows if text not in markers}
    total = sum(rows[text] for text in texts)
    covered = {}
    for tried in [format] if format else _list_formats([*texts.values()], name):
        form = DateForm(tried)
        fitting = {text for text, cleaned in texts.items() if _is_date(form, cleaned)}
        covered[tried] = sum(rows[text] for text in fitting), fitting
    best = max((count for count, _ in covered.values()), default=0)
    if not best or best < FITTING * total:
        return None
    chosen = [tried for tried, (count, _) in covered.items() if count == best]
    dates = sorted(texts[text] for text in covered[chosen[0]][1])
    if "" not in chosen and _read_differently(chosen, dates):
        return Found({}, [{"format": tried} for tried in chosen])
    format = "" if "" in chosen else chosen[0]
    words = [text for text in texts if text not in covered[format][1]]
    settings = {"format": format, "missing": [*words, *markers]}
    kept = {key: value for key, value in settings.items() if value}
    notes = tell_words(words, rows)
    last = max(DateForm(format).parse(texts[text]) for text in covered[format][1])[:10]
    if last > datetime.date.today().isoformat():
        notes.append(f"the last date is {last}, in the future")
    return Found(kept, notes=notes)


def _list_formats(texts: list[str], name: str) -> list[str]:
    """Return the formats that texts may have, "" for ISO 8601."""
    first = texts[:: max(1, len(texts) // _FIRST)]
    if not any(map(str.isdigit, "".join(first))) or max(map(len, first)) > 2 * _LONGEST:
        return []
    numbers = [text for text in texts if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII)]
    if len(numbers) > len(texts) / 2:
        return _list_numbers(numbers, name)
    shapes = [_shape_of(text) for text in first if len(text) <= _LONGEST]
    common = {shape for shape in shapes if shapes.count(shape) > 1 or len(first) < _FEW}
    by_shape = _formats_by_shape()
    listed = [format for shape in sorted(common) for format in by_shape.get(shape, ())]
    is_iso = sum(_is_date(DateForm(), text) for text in first) > len(first) / 2
    return ([""] if is_iso else []) + listed


def _list_numbers(numbers: list[str], name: str) -> list[str]:
    """Return the formats of dates that are whole numbers."""
    lengths = {len(text) for text in numbers}
    if len(lengths) == 1 and len(numbers) >= _FEW:
        format = load_forms()["dates"]["digits"].get(str(*lengths))
        if format and all(1900 <= int(text[:4]) < 2100 for text in numbers):
            return [format]
    if _CLOCK.search(name):
        for format, units in EPOCHS.items():
            low, high = (bound * units for bound in _SECONDS)
            if all(low <= float(text) < high for text in numbers):
                return [format]
    return []


@functools.cache
def _formats_by_shape() -> dict[str, list[str]]:
    dates = load_forms()["dates"]
    by_shape: dict[str, list[str]] = {}
    for format in [*map("".join, itertools.product(dates["date"], dates["time"])), *dates["whole"]]:
        example = re.sub("%(.)", lambda match: _EXAMPLES.get(match[1], "1"), format)
        by_shape.setdefault(_shape_of(example), []).append(format)
    return by_shape


def _shape_of(text: str) -> str:
    """Return text with 9 for each number and a for each word: 9/9/9 9:9 a."""
    shape = re.sub(r"[^\W\d_]+\.?(?:m\.)?", "a", re.sub(r"\d+(?:(?:st|nd|rd|th)\b)?", "9", text))
    shape = re.sub(r"(:9:9)\.9", r"\1", shape)
    # An offset from UTC: Z, UTC, +00 or +00:00.
    return re.sub(r"(:9|a9) ?(?:[+-]9(?::9)?|a)$", r"\1 z", " ".join(shape.split()))


def _read_differently(formats: list[str], texts: list[str]) -> bool:
    """Return whether formats read different dates in texts that fit all of them."""
    forms = [DateForm(format) for format in formats]
    values = {tuple(form.parse(text) for text in texts[:_MOST_COMPARED]) for form in forms}
    return len(values) > 1


@functools.lru_cache(1 << 16)
def _is_date(form: DateForm, text: str) -> bool:
    return bool(try_parse(form.parse, text))
