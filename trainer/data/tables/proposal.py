"""Propose how to learn a column of a table from its other columns.

    proposal = propose(opened, "source='csv:homes.csv'", "price")
    proposal.label, proposal.columns     # as a recipe has them
    proposal.left_out                    # {"id": "different in each row"}

The first rows of the table decide, up to `SAMPLE_ROWS`, without those that a run tests on. A
proposal is a start, which its reader can correct; `described` says what is doubtful about it.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer import formats
from trainer.data.digests import draw_splits
from trainer.data.schema import SPLITS
from trainer.data.source_options import SourceOptions
from trainer.data.tables import csv_text
from trainer.data.tables.cells import clean_texts, is_list, to_texts
from trainer.data.tables.columns import FORM_KEYS, LISTS, Column, clean_text, fold_text
from trainer.data.tables.date_finder import find_dates
from trainer.data.tables.dates import is_date_format
from trainer.data.tables.form_finder import (
    Found,
    are_lists,
    are_sentences,
    find_missing,
    tell_words,
)
from trainer.data.tables.number_finder import find_numbers
from trainer.data.tables.number_forms import BOOLEANS, FORMATS, NumberForm, parse_number
from trainer.data.tables.parsing import find_headers
from trainer.data.tables.rows import Block, Rows
from trainer.data.tables.values import parse_list
from trainer.errors import InputError
from trainer.fields import suggest

SAMPLE_ROWS = 200_000
_FRACTIONS = SourceOptions().split_fractions
SEPARATORS = (";", "|", ",", "、", "，")  # noqa: RUF001
"""Texts between several labels."""
_FEWEST = 10
"""Rows that a table must have."""
FEW_CLASSES, FEW_ROWS, MOST_CLASSES = 20, 5, 1000
"""More different whole numbers are a quantity; each class must have that many rows on average."""
MOST_QUANTILES = 64
MOST_INDICATORS, MOST_VALUES = 32, 1000
"""Different texts up to which a column has indicators, and a vocabulary."""
_KEY = re.compile(r"(^|_|(?<=[a-z]))(id|key|uuid|guid|index)$", re.IGNORECASE)
_LIKE_A_KEY = "differs from row to row, like a key"
_LARGE = 1e8
"""Larger whole numbers that all differ are phone numbers and the like."""
_CODE = re.compile(r"code|zip|type|class|(^|_)(id|no|nr)$", re.IGNORECASE)
"""Names of columns whose whole numbers may be names."""
_WORDS = 6
"""Words of texts that may come back, on average."""
_LONG = 10
"""Characters that texts without spaces have on average."""
_MARKED, _RARE = 0.5, 0.05
"""Share of rows of words in a column of few numbers from which all its values are names."""
_SKEWED = 1.5
"""Skewness above which the logarithm is learned, if its skewness is lower."""
_DISGUISED = 0.99
"""Share of a label's variation from which a column that explains it alone is the answer."""
_BUCKETS = 256
EXAMPLES, _SHOWN = 3, 40
"""Number of values of a column that are shown, and of their characters."""


@dataclasses.dataclass
class Described:
    """What is proposed for a column, and what a person should know of it."""

    name: str
    column: dict[str, Any]  # as in a recipe; empty if the column is left out
    reason: str = ""  # why it is left out
    examples: list[str] = dataclasses.field(default_factory=list)  # values as they are read
    notes: list[str] = dataclasses.field(default_factory=list)  # what is doubtful
    # Other entries for the column, one of which may be right instead.
    alternatives: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    rows: int = 0
    distinct: int = 0
    missing: int = 0  # rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
    """Values that a recipe sets for the columns of a table."""

    rows: int  # of the sample, without those of the test split
    is_whole: bool  # whether the sample is the whole table
    label: dict[str, Any]
    target: Described  # the label
    described: list[Described]  # all other columns, in the order of the table
    unlabeled: float  # share of rows without a label, which are rejected
    longest: tuple[int, int]  # the first line of the row with most lines, and their number

    @property
    def columns(self) -> list[dict[str, Any]]:
        """Return the columns as a recipe has them."""
        return [one.column for one in self.described if one.column]

    @property
    def left_out(self) -> dict[str, str]:
        """Return the columns that are not used, with the reason."""
        return {one.name: one.reason for one in self.described if not one.column}


class _Values:
    """A column of the sample.

    `distinct` are its different texts, "" where they are missing, and `numbers` float64 [n], NaN
    where missing; None if the column contains names, texts or dates.
    """

    def __init__(
        self,
        name: str,
        texts: pa.Array,
        entry: Mapping[str, Any],
        *,
        decimal_comma: bool = False,
    ) -> None:
        self.name, self.rows = name, len(texts)
        self.is_list = False  # Whether the texts are lists, joined by the first of SEPARATORS.
        written = texts.dictionary_encode()
        counts = zip(*(part.to_pylist() for part in pc.value_counts(texts).flatten()), strict=True)
        # As they are written, the most frequent first.
        self.given: dict[str, int] = {
            text: rows for text, rows in sorted(counts, key=lambda item: -item[1]) if text
        }
        coded = clean_texts(texts).dictionary_encode()
        self.codes = coded.indices.to_numpy()
        self.distinct: list[str] = coded.dictionary.to_pylist()
        self.counts = np.bincount(self.codes, minlength=len(self.distinct))
        self.entry = entry
        form = {key: entry[key] for key in (*FORM_KEYS, "missing") if key in entry}
        format = str(form.get("format", ""))
        is_date = is_date_format(format)
        self.dates = find_dates(self.given, name, format if is_date else "")
        self.found = find_numbers(
            self.given, decimal_comma=decimal_comma, given={} if is_date else form
        )
        if form and not (self.dates if is_date else self.found):
            odd = next((text for text in self.given if not find_missing([text])), "")
            raise InputError(
                f"column {name!r}: too few of its values are in the form that is given, "
                f"{_list_form(entry)}; one of them is {odd[:_SHOWN]!r}"
            )
        padded = [text for text in self.given if re.fullmatch(r"0\d+", text)]
        self.is_padded = sum(self.given[text] for text in padded) > 1
        self._read_as(self.found if self._are_numbers() else None, written)

    def _are_numbers(self) -> bool:
        """Return whether values are numbers rather than names or codes."""
        found = self.found
        if not found or not found.fits or found.readings or self.is_padded:
            return False
        # With frequent words among few numbers, such as non-stop, 1 stop, 2 stops, all are names.
        return found.unread <= _RARE * self.rows or len(self.given) > MOST_INDICATORS

    def _read_as(self, found: Found | None, written: pa.DictionaryArray) -> None:
        form = self.dates if self.dates and not self.dates.readings else found
        self.markers: list[str] = find_missing(self.given, "missing_names")
        if form:
            self.markers = form.settings.get("missing", [])
        unknown = {"", *self.markers}
        is_missing = np.array([text in unknown for text in self.distinct], bool)
        self.numbers = None
        if found:
            numbers = Column(type="numeric", **found.settings).number_form
            missing = {"", *found.settings.get("missing", [])}
            values = [_parse(numbers, text, missing) for text in written.dictionary.to_pylist()]
            self.numbers = np.array(values)[written.indices.to_numpy()]
        self.is_missing = is_missing[self.codes] if self.numbers is None else np.isnan(self.numbers)

    @property
    def named_missing(self) -> list[str]:
        """Return the spellings of a missing name, such as None, which may also be a name."""
        return self.markers if self.numbers is None and not self.dates else []

    @property
    def present(self) -> np.ndarray:
        """Return the codes of the rows that have a value."""
        return self.codes[~self.is_missing]

    @functools.cached_property
    def names(self) -> list[str]:
        """Return the different values, the most common first."""
        codes, counts = np.unique(self.present, return_counts=True)
        return [self.distinct[code] for code in codes[np.argsort(-counts, kind="stable")]]


def _parse(form: NumberForm, text: str, missing: Collection[str]) -> float:
    """Return a number, NaN if it is missing or in another form."""
    try:
        return math.nan if text in missing else form.parse(text)
    except ValueError:
        return math.nan


def propose(
    opened: Any,
    place: str,
    label: str,
    hidden: Collection[str] = (),
    entries: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Proposal:
    """Return columns for a label; raise InputError for a table or a label that can't be learned.

    Args:
        opened: a `TableKind`.
        place: what was opened, for messages.
        hidden: names of columns that must not be inputs.
        entries: what a person says of some columns, as in a recipe, by name.
    """
    sample = _Sample(opened, label)
    sample.check(place)
    values = sample.read_values(entries)
    for name in entries:
        if name not in values:
            raise InputError(f"{place} has no column {name!r}{suggest(name, values)}")
    own = values.pop(label)
    described_label, target, notes = _describe_label(f"{place}: label column {label!r}", own)
    has_label = ~own.is_missing
    described = []
    for name, column in values.items():
        if name in hidden:
            continue
        one = _describe_column(column)
        if one.column and _explain(column, target, has_label) > _DISGUISED:
            one.column, one.reason = {}, f"says {label} almost alone: an answer in disguise?"
        described.append(one)
    described += [Described(name, {}, reason) for name, reason in sample.unreadable.items()]
    if not any(one.column for one in described):
        reasons = "; ".join(f"{one.name} {one.reason}" for one in described)
        raise InputError(f"{place} has no column to learn {label!r} from: {reasons}")
    is_set = described_label.get("type") == "multilabel"
    return Proposal(
        rows=own.rows,
        is_whole=sample.is_whole and sample.rows <= SAMPLE_ROWS,
        label=described_label,
        target=_show(own, Described(label, described_label, notes=notes)),
        described=described,
        unlabeled=0.0 if is_set else float(own.is_missing.mean()),
        longest=sample.longest,
    )


def describe_label(opened: Any, place: str, label: str) -> dict[str, Any]:
    """Return a column of a table as a recipe's label; raise InputError as `propose`."""
    sample = _Sample(opened, label)
    sample.check(place)
    values = sample.read_values({})[label]
    return _describe_label(f"{place}: label column {label!r}", values)[0]


def list_labels(opened: Any, place: str) -> dict[str, str]:
    """Return the columns that can be predicted, with the type of the label, the last first."""
    labels = {}
    for name, values in reversed(_Sample(opened, "").read_values({}).items()):
        with contextlib.suppress(InputError):
            described = _describe_label(place, values)[0]
            labels[name] = described.get("type") or f"{len(values.names)} classes"
    return labels


class _Sample:
    """The first rows of a table, without those that a run tests on."""

    def __init__(self, opened: Any, label: str) -> None:
        self._parts: dict[str, list[pa.Array]] = collections.defaultdict(list)
        self.unreadable: dict[str, str] = {}
        self._first_rejection = ""
        self._lists: set[str] = set()
        self.longest = (0, 0)
        self.rows, self._read, self.is_whole = 0, 0, True
        files: dict[int, list[str]] = {}
        for block in (block for file in range(len(opened.names)) for block in opened.blocks(file)):
            if self.rows >= SAMPLE_ROWS:
                self.is_whole = False
                break
            if block.file not in files:
                files[block.file] = self._list_names(block, label)
            read, columns = self._read_columns(block, files[block.file], label)
            if read.rejections and not self._first_rejection:
                self._first_rejection = f": {read.rejections[0][1]}"
            if isinstance(block, csv_text.Block):
                self.longest = max(self.longest, block.find_longest_row(), key=itemgetter(1))
            self._read += len(read.numbers)
            is_learned = draw_splits(read.halves[:, 1], _FRACTIONS) < SPLITS.index("test")
            is_learned[find_headers(columns)] = False
            learned = pa.array(is_learned)
            for name, column in columns.items():
                if is_list(column):
                    self._lists.add(name)
                texts = _join_lists(column) if is_list(column) else to_texts(column)
                self._parts[name].append(texts.filter(learned))
            self.rows += len(learned.filter(learned))
        for name in {name for names in files.values() for name in names}:
            for file, names in files.items():
                if name not in names and name not in self.unreadable:
                    self.unreadable[name] = f"is not a column of {opened.names[file]}"

    def check(self, place: str) -> None:
        """Raise InputError if no row can be read."""
        if not self._read:
            raise InputError(f"{place} has no rows that can be read{self._first_rejection}")
        if self._read < _FEWEST:
            rows = formats.number_of(self._read, "rows")
            raise InputError(f"{place} has only {rows}, too few to learn from")

    def _list_names(self, block: Block, label: str) -> list[str]:
        """Return the columns of a file that have one name each; note the others."""
        names = list(block.names)
        if label and label not in names:
            raise InputError(f"the table has no column {label!r}{suggest(label, names)}")
        twice = {name for name in names if names.count(name) > 1}
        self.unreadable |= dict.fromkeys(filter(None, twice), "appears twice in the header")
        for place, name in enumerate(names, 1):
            if not name:
                self.unreadable[f"column {place}"] = "has no name"
        return [name for name in names if name and name not in twice]

    def _read_columns(
        self, block: Block, names: list[str], label: str
    ) -> tuple[Rows, dict[str, pa.Array]]:
        """Return the rows of a block, and their columns that can be read."""
        names = [name for name in names if name not in self.unreadable]
        try:
            read = block.read(names, [label])
            return read, read.columns
        except InputError:
            read, columns = block.read([label] if label else [], [label]), dict[str, pa.Array]()
            for name in names:
                try:
                    columns |= block.read([name], [label]).columns
                except InputError:
                    self.unreadable[name] = "has values that are neither numbers nor text"
            return read, columns

    def read_values(self, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, _Values]:
        """Return the columns that all files have."""
        texts = {
            name: pa.concat_arrays(arrays)[:SAMPLE_ROWS]
            for name, arrays in self._parts.items()
            if name not in self.unreadable
        }
        values = {
            name: _Values(name, column, entries.get(name, {})) for name, column in texts.items()
        }
        if any(one.found and one.found.has_decimal_commas for one in values.values()):
            for name, one in values.items():
                if one.found:
                    values[name] = _Values(name, texts[name], one.entry, decimal_comma=True)
        for name in self._lists & values.keys():
            values[name].is_list = True
        return values


def _join_lists(lists: pa.Array) -> pa.Array:
    """Return lists as text with the first of SEPARATORS."""
    return pc.fill_null(pc.binary_join(lists.cast(pa.list_(pa.string())), SEPARATORS[0]), "")


def _describe_label(
    place: str, values: _Values
) -> tuple[dict[str, Any], np.ndarray | None, list[str]]:
    """Return the label of a recipe, what `_explain` gets, and notes.

    `_explain` gets ranks of numbers, or 1 in the column of a row's class.
    """
    name, names, rows, found = values.name, values.names, len(values.present), values.found
    if len(names) < 2:
        only = f"only one value, {names[0]!r}" if names else "no value"
        raise InputError(f"{place} has {only}; there is nothing to learn")
    if "type" in values.entry:
        given = {key: value for key, value in values.entry.items() if key != "name"}
        return {"column": name, **given}, None, []
    if values.is_list:
        folded, told = _fold({part for text in names for part in text.split(SEPARATORS[0])})
        return {"column": name, "type": "multilabel", **folded}, None, told
    if found and found.readings:
        readings = [{"type": "numeric", **reading} for reading in found.readings]
        raise InputError(
            f"{place} can be read in two ways: {_show_readings(values.given, readings)}; add "
            f"{_show_entry(name, found.readings[0])} or another"
        )
    if found and not found.fits and len(names) > FEW_CLASSES:
        raise InputError(
            f"{place}: {found.notes[0]}; write the factors: add "
            f"{_show_entry(name, found.alternatives[0])}"
        )
    numbers, missing = values.numbers, {"missing": values.markers} if values.markers else {}
    notes = list(found.notes) if found and (numbers is not None or not found.fits) else []
    notes += tell_words(values.named_missing, values.given)
    if numbers is not None:
        distinct = len(np.unique(numbers[~np.isnan(numbers)]))
        if distinct > FEW_CLASSES or (distinct > 2 and not _is_whole(numbers)):
            assert found
            ranks = np.unique(numbers, return_inverse=True)[1].astype(float)
            return {"column": name, "type": "numeric", **found.settings}, ranks[:, None], notes
        notes = notes[len(found.notes) if found else 0 :]  # Those of numbers.
    meanings = {BOOLEANS.get(text.lower()) for text in names}
    if None not in meanings and len(names) > 2:
        raise InputError(
            f"{place} writes booleans in several ways, {', '.join(map(repr, names[:4]))}; write "
            "them in one"
        )
    several = _find_labels(place, names, values.given)
    if several:
        settings, labels = several
        folded, told = _fold(labels)
        return {"column": name, "type": "multilabel", **settings, **folded, **missing}, None, told
    ignore_case, told = _fold(names)
    notes += told
    count = len(set(map(fold_text, names))) if ignore_case else len(names)
    if count > MOST_CLASSES or rows < FEW_ROWS * count:
        notes += _tell_form(values)
        raise InputError(
            f"{place} has {count:,} different texts in {rows:,} rows, too many for classes; "
            "name a column of numbers, or of classes that have more rows"
            + "".join(f" ({note})" for note in notes[:1])
        )
    counts = np.bincount(values.present)
    rarest = int(np.where(counts > 0, counts, rows).argmin())
    if counts[rarest] < _RARE * rows:
        share = f"{counts[rarest] / rows:.1%} of the rows"
        notes.append(f"{values.distinct[rarest]!r} has only {share}")
    target = values.codes[:, None] == np.argsort(-values.counts, kind="stable")[:FEW_CLASSES]
    return {"column": name, **ignore_case, **missing}, target.astype(float), notes


def _find_labels(
    place: str, names: list[str], rows: Mapping[str, int]
) -> tuple[dict[str, Any], set[str]] | None:
    """Return the settings of several labels in a text, and the labels; None for one class."""
    if are_lists(rows):
        return {"format": LISTS}, {item for text in rows for item in _try_list(text)}
    cut = [text for text in names if text[0] in "[{(" and "," in text]
    if sum(rows.get(text, 1) for text in cut) > _MARKED * sum(rows.values()):
        raise InputError(
            f"{place} has texts that look like lists, but are in no known form, such as "
            f"{cut[0][:_SHOWN]!r}; write ['a', 'b'] or a;b"
        )
    separator = _find_separator(names, rows)
    if not separator:
        return None
    labels = {part.strip() for text in names for part in text.split(separator)}
    return {} if separator == SEPARATORS[0] else {"separator": separator}, labels


def _fold(names: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the option that makes names one that differ in case and blanks, and a note."""
    by_folded = collections.defaultdict[str, list[str]](list)
    for text in sorted(names):
        by_folded[fold_text(text)].append(text)
    variants = {folded: same for folded, same in by_folded.items() if len(same) > 1}
    if not variants:
        return {}, []
    shown = (f"{', '.join(map(repr, same))} are {folded!r}" for folded, same in variants.items())
    return {"ignore_case": True}, [formats.listing(shown)]


def _try_list(text: str) -> list[str]:
    try:
        return parse_list(text)
    except ValueError:
        return []


def _tell_form(values: _Values) -> list[str]:
    """Return a note if most texts begin with digits, but are in no form of numbers or dates."""
    numbered = [text for text in values.given if re.match(r"\W{0,2}\d.{,25}$", text)]
    if values.found or values.dates or len(numbered) <= _MARKED * len(values.given):
        return []
    example = next((text for text in numbered if not _is_number(text)), numbered[0])
    return [f"is in no known form of numbers or dates, such as {example[:_SHOWN]!r}"]


def _show_entry(name: str, settings: Mapping[str, Any]) -> str:
    """Return the option of `recipes new` that says how a column is read."""
    entry = {"name": name, **(settings or {"format": FORMATS[0]})}
    return f"--column {json.dumps(json.dumps(entry, ensure_ascii=False), ensure_ascii=False)}"


def _find_separator(names: list[str], rows: Mapping[str, int]) -> str:
    """Return the text between several labels; empty if a row has one class.

    Labels come back in other rows and combinations, and are not numbers.
    """
    for separator in SEPARATORS:
        parts: collections.Counter[str] = collections.Counter()
        for text in names:
            parts.update({part.strip(): rows.get(text, 1) for part in text.split(separator)})
        several = sum(separator in text for text in names)
        numbers = sum(map(_is_number, parts))
        is_cut = any(part[:1] in "[({" or part[-1:] in "])}" for part in parts if part)
        is_few = len(parts) <= min(len(names), MOST_CLASSES) and numbers <= 0.2 * len(parts)
        if several > 1 and is_few and not is_cut and parts.total() >= 2 * len(parts):
            return separator
    return ""


def _is_number(text: str) -> bool:
    try:
        return bool(text) and not math.isnan(parse_number(text))
    except ValueError:
        return False


def _describe_column(values: _Values) -> Described:
    """Return a column of a recipe, or the reason to leave it out."""
    described = Described(values.name, {})
    column, described.reason = _choose_type(values, described)
    if not described.reason:
        missing = {"missing": values.markers} if values.markers else {}
        described.column = {"name": values.name, **missing, **column}
        if "missing" in described.column:  # Last, as it is long.
            described.column["missing"] = described.column.pop("missing")
    return _show(values, described)


def _choose_type(values: _Values, described: Described) -> tuple[dict[str, Any], str]:
    """Return the type and settings of a column, or the reason to leave it out."""
    present, names, found, dates = values.present, values.names, values.found, values.dates
    if len(present) < 0.02 * values.rows:
        return {}, "is almost always missing"
    if len(names) < 2 and len(present) == values.rows:
        return {}, f"is always {names[0]!r}"
    repeated = len(names) / len(present)
    if values.entry.get("type") == "date" and not dates:
        raise InputError(f"column {values.name!r} has no dates, such as {names[0][:_SHOWN]!r}")
    if "type" in values.entry:
        return dict(values.entry), ""
    if dates and dates.readings:
        described.alternatives = [
            {"name": values.name, "type": "date", "quantiles": 16, **reading}
            for reading in dates.readings
        ]
        return {}, _show_readings(values.given, described.alternatives)
    if dates:
        described.notes += dates.notes
        if values.numbers is not None:
            described.alternatives = [{"name": values.name, "type": "numeric"}]
        return {"type": "date", "quantiles": 16, **dates.settings}, ""
    if found and found.readings:
        described.alternatives = [
            {"name": values.name, "type": "numeric", **reading} for reading in found.readings
        ]
        return {}, _show_readings(values.given, described.alternatives)
    if found:
        described.notes += found.notes
        described.alternatives = [
            {"name": values.name, "type": "numeric", **other} for other in found.alternatives
        ]
    if values.numbers is not None:
        assert found
        return _describe_numbers(values, values.numbers, repeated, found.settings, described)
    if found and found.fits and not values.is_padded:
        described.notes = ["names, not numbers, as words are frequent among few values"]
        described.alternatives = [{"name": values.name, "type": "numeric", **found.settings}]
    if values.is_padded:
        described.notes.append("codes with leading zeros are names, not numbers")
    spaces = np.mean([text.count(" ") for text in names])
    is_text = bool(repeated > 0.5 and spaces >= 2) or bool(
        len(names) > MOST_VALUES and spaces >= _WORDS
    )
    is_long = np.mean([len(text) for text in names]) >= _LONG
    if not is_text and len(present) > 100 and (repeated > 0.9 or (repeated > 0.5 and is_long)):
        is_text = are_sentences(names)
    if is_text or (repeated > 0.5 and are_lists(values.given)):
        return {"type": "text"}, ""
    if not values.is_padded:
        described.notes += _tell_form(values)
    return _describe_names(values, repeated, described)


def _describe_names(
    values: _Values, repeated: float, described: Described
) -> tuple[dict[str, Any], str]:
    """Return the type and settings of a column of names, or the reason to leave it out."""
    names = values.names
    if repeated > 0.9 and len(values.present) > 100:
        return {}, described.notes[0] if described.notes else _LIKE_A_KEY
    described.notes += tell_words(values.named_missing, values.given)
    if len(names) > MOST_VALUES:
        buckets = int(2 ** np.ceil(np.log2(2 * len(names))))
        return {"type": "hashed", "buckets": buckets, "embedding": 8}, ""
    if len(names) > MOST_INDICATORS:
        return {"type": "vocabulary", "minimum_count": 2, "embedding": 8}, ""
    return {"type": "vocabulary"}, ""


def _describe_numbers(
    values: _Values,
    numbers: np.ndarray,
    repeated: float,
    settings: dict[str, Any],
    described: Described,
) -> tuple[dict[str, Any], str]:
    present, is_whole = values.present, _is_whole(numbers)
    span = np.nanmax(numbers) - np.nanmin(numbers)
    counts_rows = span < 1.5 * len(present) or _KEY.search(values.name)
    counts_rows = counts_rows or (repeated > 0.99 and np.nanmin(numbers) > _LARGE)
    if repeated > 0.95 and is_whole and not settings and counts_rows and len(present) > 100:
        return {}, _LIKE_A_KEY
    known = np.unique(numbers[~np.isnan(numbers)])
    if is_whole and len(np.unique(known.astype(np.float32))) < 0.5 * len(known):
        names, reason = _describe_names(values, repeated, described)
        note = "names, as a model can't tell numbers apart that have more than seven digits"
        described.notes += [] if reason else [note]
        return names, reason
    if is_whole and not settings and _CODE.search(values.name) and len(values.names) > 2:
        described.alternatives = [{"name": values.name, "type": "vocabulary"}]
        described.notes.append("whole numbers are quantities here; if they are codes, use names")
    column: dict[str, Any] = {"type": "numeric"} | ({"log": True} if _is_skewed(numbers) else {})
    if len(values.names) > 2:
        column["quantiles"] = min(MOST_QUANTILES, max(8, len(present) // 50))
    return column | settings, ""


def _show(values: _Values, described: Described) -> Described:
    """Add examples and counts to what is proposed for a column."""
    described.rows, described.missing = values.rows, int(values.is_missing.sum())
    described.distinct = len(values.names)
    read = _reader_of(described.column)
    shown: Iterable[str] = values.names
    if read:
        shown = (text for text in values.given if clean_text(text) not in values.markers)
    for text in itertools.islice(shown, EXAMPLES):
        with contextlib.suppress(ValueError):
            reading = f" is {read(text)}" if read else ""
            described.examples.append(f"{text[:_SHOWN]!r}{reading}")
    return described


def _reader_of(column: Mapping[str, Any]) -> Callable[[str], str] | None:
    """Return what shows how a column of a recipe reads a text; None if it is read as it is."""
    form = {key: column[key] for key in FORM_KEYS if key in column}
    if not form or column.get("type") not in ("date", "numeric"):
        return None
    parsed = Column(type=column["type"], **form)
    if parsed.type == "date":
        return parsed.date_form.parse
    return lambda text: f"{parsed.number_form.parse(text):.15g}"


def _show_readings(texts: Iterable[str], columns: Sequence[Mapping[str, Any]]) -> str:
    """Return how columns of a recipe read the first text that they read differently."""
    for text in texts:
        shown = []
        for column in columns:
            with contextlib.suppress(ValueError):
                read = (_reader_of(column) or str)(text)
                shown.append(f"{read} by {_list_form(column)}")
        if len({reading.partition(" by ")[0] for reading in shown}) == len(columns):
            return f"{text!r} is {' or '.join(shown)}"
    return "its values fit several formats"


def _list_form(column: Mapping[str, Any]) -> str:
    """Return the form of a column of a recipe as text."""
    form = [f"{key} = {column[key]!r}" for key in FORM_KEYS if key in column]
    return " and ".join(form) or "no format"


def _explain(values: _Values, target: np.ndarray | None, has_label: np.ndarray) -> float:
    """Return the share of the variation of the target, [n, k], that a column alone explains.

    Means by value, or by range of numbers, of every other row are compared with the rest.
    """
    if target is None:
        return 0.0
    codes = values.codes
    if values.numbers is not None and len(values.distinct) > _BUCKETS:
        edges = np.nanquantile(values.numbers, np.linspace(0, 1, _BUCKETS + 1)[1:-1])
        codes = np.searchsorted(edges, values.numbers)
    codes, own = codes[has_label], target[has_label]
    known, other = slice(0, None, 2), slice(1, None, 2)
    sums = np.zeros((codes.max() + 1, own.shape[1]))
    np.add.at(sums, codes[known], own[known])
    counts = np.bincount(codes[known], minlength=len(sums))[:, None]
    mean = own[known].mean(axis=0)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), mean)
    variation = np.square(own[other] - mean).sum()
    return float(1 - np.square(own[other] - means[codes[other]]).sum() / max(variation, 1e-9))


def _is_whole(numbers: np.ndarray) -> bool:
    known = numbers[~np.isnan(numbers)]
    return bool((known == np.floor(known)).all())


def _is_skewed(numbers: np.ndarray) -> bool:
    """Return whether the logarithm of 1 + numbers is much less skewed."""
    known = numbers[~np.isnan(numbers)]
    if known.min() < 0 or len(np.unique(known)) < FEW_CLASSES:
        return False
    skewness = _measure_skewness(known)
    return skewness > _SKEWED and abs(_measure_skewness(np.log1p(known))) < 0.75 * skewness


def _measure_skewness(values: np.ndarray) -> float:
    away = values - values.mean()
    return float((away**3).mean() / max((away**2).mean() ** 1.5, 1e-30))
