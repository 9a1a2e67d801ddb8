"""Find the form in which a column's values are written, from a sample of them.

    find_numbers({"$177 B": 1, "$90 M": 1})      # units {"$": 1, "B": 1e9, "M": 1e6}
    find_dates({"03/12/2016": 2, "25/12/2016": 1})       # format "%d/%m/%Y"

A form is found only if it is the only one that fits. Where two forms fit and read different values,
both are returned as `readings`, for a person to choose.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import json
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from importlib.resources import files
from typing import Any

import numpy as np

from trainer import formats
from trainer.data.tables.dates import EPOCHS, DateForm
from trainer.data.tables.number_forms import (
    FORMATS,
    normalize,
    parse_number,
    split_number,
)
from trainer.data.tables.values import parse_list
from trainer.toml_reader import tomllib

_CRORES, _LAKH = ("cr", "cr.", "crore", "crores"), ("L", 1e5)
"""Beside crores, L stands for lakh."""
_MOST_UNITS, _LONGEST_UNIT = 30, 20
_FEW_WORDS, _MARKED = 5, 0.5
_MOST_WORDS, _RARE = 50, 0.05
"""A column of numbers has few words in at most half of its rows, or more words in 5% of them."""
_FITTING = 0.95
"""Share of the rows whose dates must fit a format."""
_UNIT = re.compile(r"(?![-\u2013~])\D*|.*?\b(?:[mckd]?m|ft|in|yd|mi)[23]")
_RANGE = re.compile(r"\s*(?:[-\u2013\u2014~\u301c]|\bto\b)\s*")
_UNREAD = re.compile(r"(.+) is not a (number|date|time): (['\"])(.*)\3", re.DOTALL)
"""The reason of a rejection that quotes a value; see cells.py and splits.py."""
_CLOCK = re.compile(r"time|date|stamp|epoch|created|updated|(^|_)(ts|at|when)$", re.IGNORECASE)
_SECONDS = (631_152_000, 2_208_988_800)
"""From 1990 to 2040: numbers that are taken for times if their column is named so."""
_SAMPLE = 2000
"""Number of texts by whose letters `are_sentences` decides."""


@functools.cache
def load_forms() -> dict[str, Any]:
    """Return the content of forms.toml."""
    return tomllib.loads(files(__package__).joinpath("forms.toml").read_text(encoding="utf-8"))


@dataclasses.dataclass
class Found:
    """The form of a column, and what a person should know of it."""

    settings: dict[str, Any]  # format, units, bounds and missing of a column, where not plain
    # Two or more settings that fit equally and read different values, in place of `settings`.
    readings: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    fits: bool = True  # False: only the notes count, as the values are in no form


def find_missing(texts: Iterable[str], kind: str = "missing") -> list[str]:
    """Return the texts that are spellings of a missing value; kind: missing, missing_names."""
    spellings = frozenset(load_forms()[kind])
    return [text for text in texts if text.lower() in spellings]


def find_numbers(rows: Mapping[str, int], *, decimal_comma: bool = False) -> Found | None:
    """Return the form of numbers; None if the column contains names or texts.

    Args:
        rows: the number of rows of each text, in NFC and without missing values.
        decimal_comma: another column of the table has decimal commas.
    """
    markers = find_missing(rows)
    texts = [text for text in rows if text not in markers]
    others = [text for text in texts if not _is_plain(text)]
    total = sum(rows[text] for text in texts)
    if not texts:
        return None
    if any(char.isdigit() for text in others for char in text):
        return _find_format(rows, texts, markers, decimal_comma)
    marked = sum(rows[text] for text in others)
    if len(others) == len(texts) or not _are_markers(len(others), marked, total):
        return None
    if readings := _read_points(texts, decimal_comma):
        return Found({}, readings)
    return Found(_drop_plain({"missing": [*others, *markers]}), notes=_tell_words(others, rows))


def _are_markers(words: int, marked: int, total: int) -> bool:
    """Return whether words in a column of numbers stand for missing values."""
    few = words <= _FEW_WORDS and marked <= _MARKED * total
    return few or (words <= _MOST_WORDS and marked <= _RARE * total)


class _Tried:
    """The texts of a column that a format reads, with any units."""

    def __init__(self, format: str, texts: list[str], rows: Mapping[str, int]) -> None:
        self.format, self.parts, self.ranges, self.bounded = format, dict[str, Any](), 0, 0
        for text in texts:
            ends = [_split(part, format) for part in (text, *_RANGE.split(text, maxsplit=1)[1:])]
            if part := next(filter(None, ends), None):
                self.parts[text] = part
                self.ranges += rows[text] * (ends[0] is None)
                self.bounded += rows[text] * part.is_bound
        self.covered = sum(rows[text] for text in self.parts)
        self.others = [text for text in texts if text not in self.parts]


def _find_format(
    rows: Mapping[str, int], texts: list[str], markers: list[str], decimal_comma: bool
) -> Found | None:
    """Return the form of texts of which some are more than plain numbers."""
    total = sum(rows[text] for text in texts)
    tried = [_Tried(format, texts, rows) for format in FORMATS]
    most = max(one.covered for one in tried)
    fitting = [one for one in tried if one.covered == most]
    best = fitting[0]
    left = total - most
    numbered = sum(rows[text] for text in best.others if any(map(str.isdigit, text)))
    if not _are_markers(len(best.others), left, total) or numbered > _RARE * total:
        return None
    counts: collections.Counter[str] = collections.Counter()
    for text, part in best.parts.items():
        for unit in filter(None, (part.prefix, part.suffix)):
            counts[unit] += rows[text]
    if len(counts) > min(_MOST_UNITS, max(_FEW_WORDS, len(texts) / 2)):
        return None
    if best.ranges > _MARKED * most:
        example = next(text for text in best.parts if _split(text, best.format) is None)
        note = f'most values are ranges, such as {example!r}; format = "{best.format}" reads means'
        return Found({}, notes=[note], fits=False)
    units, problem = _find_units(counts, {part.prefix for part in best.parts.values()})
    if problem:
        return Found({}, notes=[problem], fits=False)
    settings: dict[str, Any] = {"format": best.format, "units": units}
    if best.bounded > _MARKED * most:
        settings["bounds"] = "value"
    bare = {text: part for text, part in best.parts.items() if not (part.prefix or part.suffix)}
    shares = [part.number for part in bare.values() if part.number]
    readings = _read_points(texts, decimal_comma) if best.format == FORMATS[0] else []
    if {"1,234.56", "1234,56"} <= {one.format for one in fitting} and decimal_comma:
        readings = [{"format": "1,234.56"}, {"format": "1234,56"}]
    if shares and "%" in units and max(map(abs, shares)) <= 1:
        readings = [{"units": {"%": 1}}, {"units": {"%": 0.01}}]
    if readings:
        return Found({}, [_drop_plain({**settings, **reading}) for reading in readings])
    notes = []
    if shares and any(factor != 1 for factor in units.values()):
        count = sum(rows[text] for text, part in bare.items() if part.number)
        notes.append(f"{formats.number_of(count, 'rows')} without a unit: the factor is 1")
    if best.bounded:
        example = next(text for text, part in best.parts.items() if part.is_bound)
        read = "the bound itself" if "bounds" in settings else 'missing; bounds = "value" reads it'
        notes.append(f"{formats.number_of(best.bounded, 'rows')} such as {example!r}: {read}")
    notes += _tell_words(best.others, rows)
    return Found(_drop_plain(settings | {"missing": [*best.others, *markers]}), notes=notes)


def _drop_plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without those that are empty or, beside units, the plain format."""
    kept = {key: value for key, value in settings.items() if value}
    if kept.get("format") == FORMATS[0] and kept.get("units"):
        del kept["format"]
    return kept


def _is_plain(text: str) -> bool:
    try:
        return parse_number(text) == parse_number(text)
    except ValueError:
        return False


def _split(text: str, format: str) -> Any:
    """Return the number and units of a text; None if it is not a number with units."""
    try:
        part = split_number(normalize(text), format)
    except ValueError:
        return None
    return part if _are_units(part.prefix, part.suffix) else None


def _are_units(prefix: str, suffix: str) -> bool:
    """Return whether the text around a number may be a unit rather than a name.

    Before a number is a currency: T101 is a name. After it, digits are powers, as in m2.
    """
    currencies = load_forms()["currencies"]
    is_currency = all(
        word in currencies or {unicodedata.category(char) for char in word} == {"Sc"}
        for word in prefix.lower().split()
    )
    return is_currency and len(suffix) <= _LONGEST_UNIT and bool(_UNIT.fullmatch(suffix))


def _find_units(
    counts: collections.Counter[str], prefixes: Collection[str]
) -> tuple[dict[str, int], str]:
    """Return the factor of each unit; or why they can't be converted into one another.

    Args:
        counts: the number of rows of each unit.
        prefixes: those that precede numbers, which are currencies.
    """
    forms = load_forms()
    words = {word.lower() for unit in counts for word in unit.split()}
    is_scaled = any(prefixes) or not words.isdisjoint(("k", "bn", "mn"))
    factors = {}
    named: dict[bool, collections.Counter[str]] = {True: collections.Counter()}
    named[False] = collections.Counter()
    for unit, count in counts.most_common():
        factor, rest = 1.0, []
        for word in unit.split():
            letter = word.upper() if is_scaled else word
            known = forms["multipliers"].get(word.lower(), forms["letters"].get(letter))
            if not known and word == _LAKH[0] and not words.isdisjoint(_CRORES):
                known = _LAKH[1]
            factor *= known or 1.0
            rest += [] if known else [word]
        factors[unit] = int(factor)
        name = " ".join(rest).casefold().rstrip(".")
        # A year and years are one unit.
        named[unit in prefixes][name.removesuffix("s") if len(name) > 2 else name] += count
    for names in named.values():
        names.pop("", None)
        if len(names) > 1:
            shown = (f"{name} ({count:,})" for name, count in names.most_common(3))
            return {}, f"numbers have several units, {', '.join(shown)}; units can convert them"
    return factors, ""


def _read_points(texts: Iterable[str], decimal_comma: bool) -> list[dict[str, Any]]:
    """Return two readings of numbers whose points may separate thousands; empty: they do not.

    All points are before three digits, and the numbers without a point are below 1,000; or another
    column of the table has decimal commas.
    """
    whole = [text for text in map(str.strip, texts) if text.lstrip("+-").isdigit()]
    pointed = [text for text in map(str.strip, texts) if "." in text]
    thousands = all(re.search(r"(?<![\d.])[1-9]\d{0,2}\.\d{3}(?![\d.])", text) for text in pointed)
    if len(pointed) < _FEW_WORDS or not thousands:
        return []
    is_doubtful = whole and all(abs(int(text)) < 1000 for text in whole)
    return [{"format": "1.234,56"}, {}] if is_doubtful or decimal_comma else []


def _tell_words(words: list[str], rows: Mapping[str, int]) -> list[str]:
    if not words:
        return []
    shown = ", ".join(f"{word[:40]!r} ({rows[word]:,})" for word in words[:3])
    more = f" and {len(words) - 3} more" if len(words) > 3 else ""
    return [f"missing where it is {shown}{more}"]


def find_dates(rows: Mapping[str, int], name: str = "") -> Found | None:
    """Return the form of dates; None if the column has none.

    Args:
        rows: the number of rows of each text, in NFC and without missing values.
        name: the column's name, which tells times that are numbers from other numbers.
    """
    markers = find_missing(rows)
    texts = [text for text in rows if text not in markers]
    if not texts:
        return None
    total = sum(rows[text] for text in texts)
    first = texts[:: max(1, len(texts) // 20)]
    covered = {}
    for format in _list_formats(texts, name):
        form = DateForm(format)
        if sum(_is_date(form, text) for text in first) < _MARKED * len(first):
            continue
        fitting = {text for text in texts if _is_date(form, text)}
        covered[format] = sum(rows[text] for text in fitting), fitting
    best = max((count for count, _ in covered.values()), default=0)
    if best < _FITTING * total:
        return None
    chosen = [format for format, (count, _) in covered.items() if count == best]
    if len(chosen) > 1 and not any(not format for format in chosen):
        values = {
            tuple(DateForm(format).parse(text) for text in texts[:1000])
            for format in chosen
            if covered[format][1] == covered[chosen[0]][1]
        }
        if len(values) > 1:
            return Found({}, [{"format": format} for format in chosen])
    format = "" if "" in chosen else chosen[0]
    others = [text for text in texts if text not in covered[format][1]]
    settings = {"format": format} if format else {}
    missing = {"missing": [*others, *markers]}
    return Found(_drop_plain(settings | missing), notes=_tell_words(others, rows))


def _list_formats(texts: list[str], name: str) -> list[str]:
    """Return the formats that texts may have; numbers have few."""
    numbers = [text.removesuffix(".0") for text in texts]
    if not all(text.isdigit() for text in numbers):
        digits = sum(text.isdigit() for text in numbers)
        if digits > _MARKED * len(numbers):
            numbers = [text for text in numbers if text.isdigit()]
        else:
            dates = load_forms()["dates"]
            dated = map("".join, itertools.product(dates["date"], dates["time"]))
            return ["", *dated, *dates["whole"]]
    lengths = {len(text) for text in numbers}
    if len(lengths) == 1 and len(numbers) >= _FEW_WORDS:
        (length,) = lengths
        format = load_forms()["dates"]["digits"].get(str(length))
        if format and all(1900 <= int(text[:4]) < 2100 for text in numbers):
            return [format]
    if _CLOCK.search(name):
        for format, units in EPOCHS.items():
            low, high = (bound * units for bound in _SECONDS)
            if all(low <= int(text) < high for text in numbers):
                return [format]
    return []


def _is_date(form: DateForm, text: str) -> bool:
    try:
        return bool(form.parse(text))
    except ValueError:
        return False


def suggest_forms(reasons: Iterable[str]) -> str:
    """Return how a recipe can read the values that rejections name, to append to a message.

    Empty if `reasons` name no value in a known form, and no word, such as '?'.
    """
    quoted: dict[tuple[str, str], dict[str, int]] = {}
    for reason in reasons:
        if match := _UNREAD.fullmatch(reason):
            quoted.setdefault((match[1], match[2]), {})[match[4]] = 1
    hints = []
    for (name, kind), texts in quoted.items():
        found = find_numbers(texts) if kind == "number" else find_dates(texts, name)
        first = next(iter(texts))
        for settings in [found.settings, *found.readings] if found else []:
            options = " and ".join(f"{key} = {_to_toml(value)}" for key, value in settings.items())
            hints += [f"; to read {first!r} in {name}, add {options} to it"] if options else []
        words = [text for text in texts if not any(map(str.isdigit, text))]
        if not found and words:
            hints.append(
                f"; if {' and '.join(map(repr, words))} in {name} mean that the value is missing, "
                f"add missing = {_to_toml(words)} to it"
            )
    return "".join(hints)


def _to_toml(value: Any) -> str:
    """Return text, or a list or a table of texts and numbers, in TOML."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace('": ', '" = ') if isinstance(value, dict) else text


def are_lists(rows: Mapping[str, int]) -> bool:
    """Return whether texts are lists, such as ['a', 'b']."""
    texts = [text for text in rows if text]

    def is_list(text: str) -> bool:
        try:
            return text[0] in "[{" and parse_list(text) is not None
        except ValueError:
            return False

    return bool(texts) and sum(map(is_list, texts)) >= _FITTING * len(texts)


def are_sentences(texts: Iterable[str]) -> bool:
    """Return whether different texts are in a language, rather than keys.

    In a language, some pairs of letters are far more frequent than letters that are drawn at random
    from the same texts; in keys they are not. Digits, and a beginning that all texts share, count
    as no letters.
    """
    sample = list(itertools.islice(texts, _SAMPLE))
    shared = len(os.path.commonprefix(sample))  # noqa: RUF071
    letters = ["".join(filter(str.isalpha, text[shared:].lower())) for text in sample]
    joined, written = "".join(letters), sum(len("".join(text.split())) for text in sample)
    if not written or len(joined) < 0.5 * written:
        return False
    shuffled = "".join(np.random.default_rng(0).permutation(list(joined)))
    stops = itertools.accumulate(map(len, letters))
    drawn = [shuffled[end - len(text) : end] for end, text in zip(stops, letters, strict=True)]
    return _count_pairs(letters) < 0.8 * _count_pairs(drawn)


def _count_pairs(texts: Iterable[str]) -> int:
    return len({text[at : at + 2] for text in texts for at in range(len(text) - 1)})
