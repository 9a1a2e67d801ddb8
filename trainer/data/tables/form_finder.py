"""Find the form in which a column's values are written, from a sample of them.

    find_numbers({"$177 B": 1, "$90 M": 1})      # units {"$": 1, "B": 10**9, "M": 10**6}
    find_dates({"03/12/2016": 2, "25/12/2016": 1})       # format "%d/%m/%Y"

number_finder.py and date_finder.py find those of numbers and dates. Where two forms fit and read
different values, both are `readings`, for a person to choose.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import numpy as np

from trainer.data.tables.number_forms import try_parse
from trainer.data.tables.values import parse_list

FITTING = 0.95
"""Share of the rows that must fit a format of dates or of lists."""
_SAMPLE = 2000
"""Number of texts by whose letters `are_sentences` decides."""
_INFORMATION = 0.25
"""Bits that a letter tells of the next one in a language: words have 0.4 or more, keys 0.1."""


@dataclasses.dataclass
class Found:
    """The form of a column, and what a person should know of it."""

    settings: dict[str, Any]  # format, units, bounds and missing of a column, where not plain
    # Two or more settings that fit equally and read different values, in place of `settings`.
    readings: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    # Other settings that are less likely.
    alternatives: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    fits: bool = True  # False: only the notes count, as the values are in no form
    has_decimal_commas: bool = False  # for sure
    unread: int = 0  # rows of words that are no spelling of a missing value


@functools.cache
def load_forms() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("forms.toml").read_text(encoding="utf-8"))


def find_missing(texts: Iterable[str], kind: str = "missing") -> list[str]:
    """Return the texts that are spellings of a missing value; kind: missing, missing_names."""
    spellings = frozenset(load_forms()[kind])
    return [text for text in texts if text.lower() in spellings]


def tell_words(words: list[str], rows: Mapping[str, int]) -> list[str]:
    """Return a note about words that become missing values; none without words."""
    if not words:
        return []
    shown = ", ".join(f"{word[:40]!r} ({rows.get(word, 0):,})" for word in words[:3])
    more = f" and {len(words) - 3} more" if len(words) > 3 else ""
    return [f"missing where it is {shown}{more}"]


def are_lists(rows: Mapping[str, int]) -> bool:
    """Return whether texts are lists, such as ['a', 'b']."""
    markers = set(find_missing(rows))
    given = {text: count for text, count in rows.items() if text and text not in markers}

    def is_list(text: str) -> bool:
        # Numbers may be in parentheses, too.
        is_open = text[0] in "[{" or (text[0] == "(" and ("'" in text or '"' in text))
        return is_open and try_parse(parse_list, text) is not None

    fitting = sum(count for text, count in given.items() if is_list(text))
    return bool(given) and fitting >= FITTING * sum(given.values())


def are_sentences(texts: Iterable[str]) -> bool:
    """Return whether different texts are in a language, rather than keys.

    In a language, a letter tells much of the next one (their mutual information); in keys it does
    not, beyond what letters tell that are drawn at random from the same texts. Digits, and a
    beginning that all texts share, count as no letters.
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
    return _measure_information(letters) - _measure_information(drawn) > _INFORMATION


def _measure_information(texts: Iterable[str]) -> float:
    """Return the mutual information of adjacent letters, in bits."""
    pairs = collections.Counter(text[at : at + 2] for text in texts for at in range(len(text) - 1))
    first, second = collections.Counter[str](), collections.Counter[str]()
    for pair, count in pairs.items():
        first[pair[0]] += count
        second[pair[1]] += count
    total = pairs.total()
    return sum(
        count / total * math.log2(count * total / (first[pair[0]] * second[pair[1]]))
        for pair, count in pairs.items()
    )
