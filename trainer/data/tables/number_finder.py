"""Find the form in which a column's numbers are written, from a sample of them."""

from __future__ import annotations

import collections
import functools
import json
import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from trainer.data.tables.columns import FORM_KEYS
from trainer.data.tables.date_finder import find_dates
from trainer.data.tables.form_finder import Found, find_missing, load_forms, tell_words
from trainer.data.tables.number_forms import (
    CLOCK,
    FORMATS,
    RANGE,
    NumberForm,
    NumberWithUnits,
    is_number,
    normalize,
    split_amounts,
    split_number,
)
from vertex import formats

_PLAIN, _COMMAS, _DECIMAL_COMMA, _POINTS = FORMATS[:4]
_CRORES, _LAKH = ("cr", "cr.", "crore", "crores"), ("L", 1e5)
"""Beside crores, L stands for lakh."""
_MOST_UNITS, _LONGEST_UNIT = 30, 20
_LONGEST = 100
"""Characters that a number with its units has at most."""
_FEW_WORDS, _MARKED = 5, 0.5
_MOST_WORDS, _RARE = 100, 0.1
"""A column of numbers has few words in at most half of its rows, or more words in 10% of them."""
_NUMBERED = 0.05
"""Share of rows of words that have digits, and may be numbers in another form."""
_STRAY = 0.01
"""Share of rows of a unit that is a slip rather than a unit, where others are far more frequent."""
_SAMPLE = 200
"""Number of texts by which texts in no form are left soon."""
_UNIT = re.compile(r"(?![-~.,'])(?:\D*|.*[^\W\d_A-Z][23]|(?:/|out of|of|von|sur|de|di|из) ?\d+\D*)")
"""Pattern of a unit: km, with a power (m2), or the most that a rating can be (/5)."""
_MARK = re.compile(r"[.,']|\d \d")
"""Pattern of marks of groups and of decimals, in a normalized text."""
_UNREAD = re.compile(r"(.+) is not a (number|date|time): (['\"])(.*)\3", re.DOTALL)
"""The reason of a rejection that quotes a value; see cells.py and splits.py."""


def find_numbers(
    rows: Mapping[str, int],
    *,
    decimal_comma: bool | None = False,
    given: Mapping[str, Any] | None = None,
) -> Found | None:
    """Return the form of numbers; None if the column contains names or texts.

    Args:
        rows: the number of rows of each text, in NFC and without empty ones.
        decimal_comma: other columns of the table have decimal commas, which decides where points
            and commas can be read in two ways. None if only semicolons between fields suggest it.
        given: settings that are known.
    """
    markers = find_missing(rows)
    texts = [text for text in rows if text not in markers]
    if given:
        return _complete(dict(given), texts, markers, rows)
    others = [text for text in texts if not is_number(text)]
    if len(others) < len(texts) and not any(map(str.isdigit, "".join(others))):
        found = Found({})
        _decide_points(found, {}, texts, decimal_comma)
        return found if found.readings else _complete(found.settings, texts, markers, rows, found)
    if not texts or not _Tried.best(texts[:: max(1, len(texts) // _SAMPLE)], rows):
        return None
    tried = _Tried.best(texts, rows)
    return _find_form(tried, texts, markers, rows, decimal_comma) if tried else None


class _Tried:
    """The texts of a column that a format reads, with any units."""

    def __init__(self, format: str, texts: list[str], rows: Mapping[str, int]) -> None:
        self.format, self.rows, self.bounded = format, rows, 0
        self.parts: dict[str, list[NumberWithUnits]] = {}
        self.ranges: list[str] = []
        for text in texts:
            if len(text) > _LONGEST:
                continue
            if parts := _split(text, format) or self._split_range(text):
                self.parts[text] = parts
                self.bounded += rows[text] * bool(parts[0].bound)
        self.covered = sum(rows[text] for text in self.parts)
        self.ties: list[str] = []  # formats that read as many rows

    def _split_range(self, text: str) -> list[NumberWithUnits]:
        """Return the second end of a range, whose unit holds for both ends."""
        ends = [_split(end, self.format) for end in RANGE.split(normalize(text), maxsplit=1)]
        if len(ends) < 2 or not all(len(end) == 1 for end in ends):
            return []
        low, high = ends[0][0], ends[1][0]
        if low.number > high.number:
            return []
        self.ranges.append(text)
        return [high._replace(prefix=low.prefix or high.prefix)]

    @classmethod
    def best(cls, texts: list[str], rows: Mapping[str, int]) -> _Tried | None:
        """Return the first format that reads most rows; None if that is less than half of them."""
        tried = [cls(format, texts, rows) for format in FORMATS]
        most = max(one.covered for one in tried)
        if most < _MARKED * sum(rows[text] for text in texts):
            return None
        first, *others = (one for one in tried if one.covered == most)
        first.ties = [one.format for one in others]
        return first

    @property
    def bare(self) -> dict[str, float]:
        """Return the numbers without a unit that are not 0, by text."""
        first = {text: parts[0] for text, parts in self.parts.items() if parts[0].number}
        return {text: part.number for text, part in first.items() if not part.prefix + part.suffix}

    def find_opposite_bounds(self) -> str:
        """Return what is wrong with bounds such as <18 and 18+, which have one number."""
        texts: dict[tuple[float, str], dict[str, str]] = {}
        for text, (part, *_) in self.parts.items():
            if part.bound:
                texts.setdefault((part.number, part.suffix), {})[part.bound] = text
        both = next((one for one in texts.values() if len(one) > 1), None)
        return f"{both['<']!r} and {both['>']!r} are names" if both else ""

    def count_units(self) -> collections.Counter[tuple[str, str]]:
        """Return the number of rows of each pair of texts before and after a number."""
        counts: collections.Counter[tuple[str, str]] = collections.Counter()
        for text, parts in self.parts.items():
            for part in parts:
                if part.prefix or part.suffix or len(parts) > 1:
                    counts[part.prefix, part.suffix] += self.rows[text]
        return counts


def _find_form(
    tried: _Tried,
    texts: list[str],
    markers: list[str],
    rows: Mapping[str, int],
    decimal_comma: bool | None,
) -> Found | None:
    """Return the form of texts of which some are more than plain numbers."""
    counts = tried.count_units()
    frequent = collections.Counter(
        {unit: count for unit, count in counts.items() if count >= _STRAY * tried.covered}
    )
    is_bare = sum(rows[text] for text in tried.bare) > (1 - _RARE) * tried.covered
    units, problem = _find_units(frequent if is_bare else counts)
    if problem and frequent:
        units, problem = _find_units(frequent)
    if len(units) > min(_MOST_UNITS, max(_FEW_WORDS, len(texts) / 2)):
        return None
    ranged = sum(rows[text] for text in tried.ranges)
    if not problem and ranged > _MARKED * tried.covered:
        problem = (
            f"most values are ranges, such as {tried.ranges[0]!r}; a format reads each as its mean"
        )
    if not problem and tried.bounded > _MARKED * tried.covered:
        problem = tried.find_opposite_bounds()
    if problem:
        other = _drop_plain({"format": tried.format, "units": units})
        is_text = len(frequent or counts) > _FEW_WORDS
        return None if is_text else Found({}, notes=[problem], alternatives=[other], fits=False)
    settings: dict[str, Any] = {"format": tried.format, "units": units}
    is_comma = all(format.endswith(",56") for format in (tried.format, *tried.ties))
    found = Found({}, has_decimal_commas=is_comma)
    if tried.bounded > _MARKED * tried.covered:
        settings["bounds"] = "value"
    if tried.format == _PLAIN:
        _decide_points(found, settings, tried.parts, decimal_comma)
    elif tried.format == _COMMAS and _DECIMAL_COMMA in tried.ties and decimal_comma:
        _choose(found, settings, _DECIMAL_COMMA, "the comma is the decimal separator")
    elif tried.format == _COMMAS:
        doubtful = [_POINTS] if any("." in one for one in tried.parts) else []
        doubtful += [_DECIMAL_COMMA] if decimal_comma is None else []
        if second := next((one for one in doubtful if one in tried.ties), ""):
            found.readings = [_drop_plain({**settings, "format": one}) for one in (_COMMAS, second)]
    if "%" in units and tried.bare and max(map(abs, tried.bare.values())) <= 1:
        found.readings = [_drop_plain({**settings, "units": {"%": one}}) for one in (1, 0.01)]
    if found.readings:
        return found
    if tried.format == CLOCK:
        found.notes.append("durations: each part counts 60 of the next")
    if tried.bare and units:
        count = sum(rows[text] for text in tried.bare)
        found.notes.append(f"{formats.number_of(count, 'rows')} without a unit: the factor is 1")
    form = NumberForm(tried.format, units)
    if example := next((text for text in tried.ranges if _reads(form, text)), ""):
        means = formats.number_of(ranged, "rows")
        found.notes.append(f"{means} such as {example!r}: the mean, {form.parse(example):.15g}")
    if tried.bounded:
        example = next(text for text, parts in tried.parts.items() if parts[0].bound)
        read = "the bound itself" if "bounds" in settings else 'missing; bounds = "value" reads it'
        bounded = formats.number_of(tried.bounded, "rows")
        found.notes.append(f"{bounded} such as {example!r}: {read}")
    return _complete(found.settings or settings, texts, markers, rows, found)


def _complete(
    settings: dict[str, Any],
    texts: list[str],
    markers: list[str],
    rows: Mapping[str, int],
    found: Found | None = None,
) -> Found | None:
    """Add the words that become missing values; return None if these are too many."""
    found = found or Found({})
    known = {key: settings[key] for key in FORM_KEYS if key in settings}
    form = NumberForm(**known)
    words = [text for text in texts if not _reads(form, text)]
    total = sum(rows[text] for text in texts)
    odd = [word for word in words if any(map(str.isdigit, word))]
    found.unread = sum(rows[word] for word in words)
    numbered = sum(rows[word] for word in odd)
    few = len(words) <= _FEW_WORDS and found.unread <= _MARKED * total
    rare = len(words) <= _MOST_WORDS and found.unread <= _RARE * total
    if not (few or rare) or len(words) == len(texts) or numbered > _NUMBERED * total:
        return None
    named = [word for word in words if word not in odd]
    missing = [*settings.get("missing", []), *named, *markers]
    infinite = [text for text in markers if "inf" in text.lower()]
    found.settings = _drop_plain(settings | {"missing": list(dict.fromkeys(missing))})
    found.notes += tell_words([*infinite, *named], rows)
    if odd:
        count = formats.number_of(numbered, "rows")
        found.notes.append(f"{count} in another form, such as {odd[0][:40]!r}: they are rejected")
    return found


def _reads(form: NumberForm, text: str) -> bool:
    try:
        form.parse(text)
    except ValueError:
        return False
    return True


def _drop_plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without those that are empty or, beside units, the plain format."""
    kept = {key: value for key, value in settings.items() if value}
    if kept.get("format") == _PLAIN and kept.get("units"):
        del kept["format"]
    return kept


def _split(text: str, format: str) -> list[NumberWithUnits]:
    """Return the numbers and units of a text, several for 2h 50m; none if it has other words."""
    text = normalize(text)
    if format == CLOCK or _MARK.search(text):
        return _split_normal(text, format) if format != CLOCK or ":" in text else []
    return _split_normal(text, _PLAIN)  # Without a mark, all formats read the same.


@functools.lru_cache(1 << 16)
def _split_normal(text: str, format: str) -> list[NumberWithUnits]:
    try:
        part = split_number(text, format)
        if _are_units(part.prefix, part.suffix):
            return [part]
        parts = split_amounts(text, format)
    except ValueError:
        return []
    units, problem = _find_units(collections.Counter((part.prefix, part.suffix) for part in parts))
    return parts if not problem and _reads(NumberForm(format, units), text) else []


def _are_units(prefix: str, suffix: str) -> bool:
    """Return whether the text around a number may be a unit rather than a name.

    Before a number is a currency or a word such as about: T101 is a name.
    """
    before = ("%", *load_forms()["before"])
    is_amount = all(_is_currency(word) or word in before for word in prefix.split())
    is_amount &= prefix != "PT" or bool(suffix)  # PT100 is a name, PT45S a duration.
    return is_amount and len(suffix) <= _LONGEST_UNIT and bool(_UNIT.fullmatch(suffix))


def _is_currency(word: str) -> bool:
    signs = {unicodedata.category(char) for char in word}
    return word.lower() in load_forms()["currencies"] or signs == {"Sc"}


def _find_units(counts: collections.Counter[tuple[str, str]]) -> tuple[dict[str, int], str]:
    """Return the factor of each unit; and what is wrong if no factor is known.

    Args:
        counts: the number of rows of each pair of texts before and after a number.
    """
    if measured := _find_measure(counts):
        return measured, ""
    words = {word for pair in counts for unit in pair for word in unit.split()}
    has_scale = any(_scale_of(word.lower(), words, False) for word in words)
    is_amount = has_scale or any(map(_is_currency, words))
    factors: dict[str, int] = {}
    named: collections.Counter[tuple[str, ...]] = collections.Counter()
    written: dict[tuple[str, ...], str] = {}
    for pair, count in counts.most_common():
        names = []
        for unit, words_of_unit in _list_words(pair):
            factor = 1.0
            for word in words_of_unit:
                known = _scale_of(word, words, is_amount)
                factor *= known or 1.0
                names.append(_cut_scale(word)[1] if known else _name_unit(word))
            factors[unit] = int(factor)
        key = tuple(sorted(filter(None, names)))
        named[key] += count
        written.setdefault(key, " ".join(filter(None, pair)))
    if all(_is_currency(name) and not name.isascii() for key in named for name in key):
        del named[()]  # 5万 beside 3000円 is an amount of the same currency, but not 5m beside 5ft.
    if len(named) > 1:
        shown = (f"{written[key]} ({count:,})" for key, count in named.most_common(3))
        problem = f"numbers have several units, {', '.join(shown)}, whose factors are unknown"
        return factors, problem
    return factors, ""


def _find_measure(counts: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the factor of each unit of one measure, such as h and min; empty if they are none."""
    words = {unit: words for pair in counts for unit, words in _list_words(pair)}
    names = {unit: tuple(map(_name_unit, words)) for unit, words in words.items()}
    used = {name for several in names.values() for name in several}
    for units in load_forms()["measures"].values():
        measure = {name: factor for factor, written in units for name in written}
        if len(used) > 1 and used <= measure.keys():
            least = min(measure[name] for name in used)
            factors = {
                unit: math.prod(measure[name] // least for name in several)
                for unit, several in names.items()
            }
            # In 1h30, the number without a unit has the factor 1.
            return factors if factors.pop("", 1) == 1 else {}
    return {}


def _list_words(pair: tuple[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the units before and after a number, and the words of each that have a meaning."""
    for unit, silent in zip(pair, ("before", "after"), strict=True):
        if unit:
            yield unit, [word for word in unit.split() if word not in load_forms()[silent]]
    if not any(pair):
        yield "", [""]


def _name_unit(word: str) -> str:
    """Return the name of a unit: a year and years are one, and so are C. and c."""
    name = word.casefold().rstrip(".").removesuffix("(s)")
    return name.removesuffix("s") if len(name) > 2 else name


def _scale_of(word: str, words: Collection[str], is_amount: bool) -> float:
    """Return the factor of a word such as k or million, 0 if it is none.

    Args:
        words: all words around the numbers of the column.
        is_amount: some of them are a currency or a factor, which tells B from bytes.
    """
    forms, bare = load_forms(), _cut_scale(word)[0]
    if bare.lower() not in forms["multipliers"]:
        bare = bare.rstrip(".")
    if bare == _LAKH[0] and not {one.lower() for one in words}.isdisjoint(_CRORES):
        return _LAKH[1]
    needs_context = {bare, bare.lower()} & {*forms["need_context"]}
    if needs_context and not is_amount:
        return 0.0
    factor = forms["multipliers"].get(bare.lower())
    return factor or forms["letters"].get(bare.upper() if is_amount else bare, 0.0)


def _cut_scale(word: str) -> tuple[str, str]:
    """Return the factor and the unit of which a word consists: 万 and km of 万km, k and € of k€."""
    for at in range(len(word) - 1, 0, -1):
        scale, unit = word[:at], word[at:]
        is_sign = len(unit) == 1 and not unit.isascii() and _is_currency(unit)
        # Only in the scripts of East Asia, words have no blanks between them.
        if is_sign or (scale[0] > "\u2e80" and scale in load_forms()["multipliers"]):
            return scale, unit
    return word, ""


def _decide_points(
    found: Found, settings: dict[str, Any], texts: Iterable[str], decimal_comma: bool | None
) -> None:
    """Set the readings or the settings of numbers whose points may separate thousands.

    All points are before three digits, and no number without a point has more than three. Then
    points separate thousands if other columns have decimal commas; otherwise that is doubtful.
    """
    number_pattern = re.compile(r"\d[\d.]*(?:[eE][+-]?\d+)?")  # No group has an exponent.
    numbers = [number for text in texts for number in number_pattern.findall(normalize(text))]
    pointed = [number for number in numbers if "." in number]
    whole = [number for number in numbers if "." not in number]
    are_groups = all(re.fullmatch(r"[1-9]\d{0,2}\.\d{3}", number) for number in pointed)
    if len(pointed) < _FEW_WORDS or not are_groups or any(len(number) > 3 for number in whole):
        return
    if decimal_comma:
        _choose(found, settings, _POINTS, "the point is the thousands separator")
    else:
        thousands = _drop_plain({**settings, "format": _POINTS})
        found.readings = [thousands, _drop_plain({**settings, "format": _PLAIN})]


def _choose(found: Found, settings: dict[str, Any], format: str, why: str) -> None:
    """Set the format that the other columns of the table suggest."""
    found.settings = {**settings, "format": format}
    found.notes.append(f"{why}, as other columns have decimal commas")
    found.alternatives.append(_drop_plain(settings) or {"format": _PLAIN})


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
