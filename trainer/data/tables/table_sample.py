"""Read the first rows of a table, and find how the values of its columns are written."""

import collections
import contextlib
import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.data.digests import draw_splits
from trainer.data.schema import SPLITS
from trainer.data.source_options import SourceOptions
from trainer.data.tables import csv_text
from trainer.data.tables.cells import clean_texts, is_list, to_texts
from trainer.data.tables.columns import FORM_KEYS, Column, clean_text
from trainer.data.tables.date_finder import find_dates
from trainer.data.tables.dates import is_date_format
from trainer.data.tables.form_finder import Found, find_missing, load_forms
from trainer.data.tables.number_finder import find_numbers
from trainer.data.tables.number_forms import NumberForm, is_number
from trainer.data.tables.parsing import find_headers
from trainer.data.tables.rows import Block, Rows
from vertex import formats
from vertex.errors import InputError
from vertex.formats import suggest

SAMPLE_ROWS = 200_000
"""Number of rows that are read, unless the block with the last one has more."""
_FRACTIONS = SourceOptions().split_fractions
SEPARATORS = (";", "|", ",", "、", "，")  # noqa: RUF001
"""Texts between several labels."""
_FEWEST = 10
"""Rows that a table must have."""
MOST_INDICATORS, MOST_VALUES = 32, 1000
"""Different texts up to which a column has indicators, and a vocabulary."""
_FEW_NUMBERS = 5
"""Different texts up to which a word among numbers makes all of them names."""
MARKED, RARE = 0.5, 0.05
"""Shares of rows: most of them, and few."""
EXAMPLES, SHOWN = 3, 40
"""Number of values of a column that are shown, and of their characters."""


class Values:
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
        decimal_comma: bool | None = False,
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
                f"column {name!r}: too few of its values, such as {odd[:SHOWN]!r}, have the given "
                f"form, {list_form(entry)}"
            )
        padded = [text for text in self.given if re.fullmatch(r"0\d+", text)]
        self.is_padded = sum(self.given[text] for text in padded) > 1
        self._read_as(self.found if self._are_numbers() else None, written)

    def _are_numbers(self) -> bool:
        """Return whether values are numbers rather than names or codes."""
        found = self.found
        if not found or not found.fits or found.readings or self.is_padded:
            return False
        # A single word is a missing value, which a model tells from the numbers.
        if len(found.settings.get("missing", ())) == 1 and len(self.given) > _FEW_NUMBERS:
            return True
        # With frequent words among few numbers, such as non-stop, 1 stop, 2 stops, all are names.
        return found.unread <= RARE * self.rows or len(self.given) > MOST_INDICATORS

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


class TableSample:
    """The first rows of a table, without those that a run tests on."""

    def __init__(self, opened: Any, label: str) -> None:
        self._parts: dict[str, list[pa.Array]] = collections.defaultdict(list)
        self.unreadable: dict[str, str] = {}
        self._first_rejection = ""
        self._lists: set[str] = set()
        self._has_semicolons = False
        self.longest = (0, 0)
        self.rows, self._read, self.is_whole = 0, 0, True
        files: dict[int, list[str]] = {}
        for block in opened.read_all():
            if self.rows >= SAMPLE_ROWS:
                self.is_whole = False
                break
            if block.file not in files:
                files[block.file] = self._list_names(block, label)
            read, columns = self._read_columns(block, files[block.file], label)
            for name in sorted(read.late):
                self.unreadable[name] = (
                    f"begins only in {opened.names[block.file]}:{read.numbers[0]}"
                )
            if read.rejections and not self._first_rejection:
                self._first_rejection = f": {read.rejections[0][1]}"
            if isinstance(block, csv_text.CsvBlock):
                self._has_semicolons |= block.dialect.delimiter == ";"
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
        self.is_whole &= self.rows <= SAMPLE_ROWS
        for name in dict.fromkeys(name for names in files.values() for name in names):
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

    def read_values(self, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Values]:
        """Return the columns that all files have."""
        texts = {
            name: pa.concat_arrays(arrays)[:SAMPLE_ROWS]
            for name, arrays in self._parts.items()
            if name not in self.unreadable
        }
        # Where commas separate decimals, semicolons often separate fields.
        comma = None if self._has_semicolons else False
        values = {
            name: Values(name, column, entries.get(name, {}), decimal_comma=comma)
            for name, column in texts.items()
        }
        if any(one.found and one.found.has_decimal_commas for one in values.values()):
            for name, one in values.items():
                if one.found:
                    values[name] = Values(name, texts[name], one.entry, decimal_comma=True)
        for name in self._lists & values.keys():
            values[name].is_list = True
        return values


def _join_lists(lists: pa.Array) -> pa.Array:
    """Return lists as text with the first of SEPARATORS."""
    return pc.fill_null(pc.binary_join(lists.cast(pa.list_(pa.string())), SEPARATORS[0]), "")


def tell_form(values: Values) -> list[str]:
    """Return a note if most texts begin with digits, but are in no form of numbers or dates."""
    eras = "|".join(load_forms()["eras"])
    numbered = [text for text in values.given if re.match(rf"(\W{{0,2}}|{eras})\d.{{,25}}$", text)]
    if values.found or values.dates or len(numbered) <= MARKED * len(values.given):
        return []
    example = next((text for text in numbered if not is_number(text)), numbered[0])
    return [f"is in no known form of numbers or dates, such as {example[:SHOWN]!r}"]


def tell_filler(numbers: np.ndarray) -> list[str]:
    """Return a note if the only number below 0, such as -999, may stand for a missing value."""
    lowest, rows = np.unique(numbers[numbers < 0], return_counts=True)
    if len(lowest) != 1 or not re.fullmatch(r"-99+\.0", str(lowest[0])):
        return []
    count = formats.number_of(int(rows[0]), "rows")
    return [f"{count} of {lowest[0]:g}, the only number below 0: are they missing?"]


def reader_of(column: Mapping[str, Any]) -> Callable[[str], str] | None:
    """Return what shows how a column of a recipe reads a text; None if it is read as it is."""
    form = {key: column[key] for key in FORM_KEYS if key in column}
    if not form or column.get("type") not in ("date", "numeric"):
        return None
    parsed = Column(type=column["type"], **form)
    if parsed.type == "date":
        return lambda text: parsed.date_form.parse(clean_text(text))
    return lambda text: f"{parsed.number_form.parse(text):.15g}"


def show_readings(texts: Iterable[str], columns: Sequence[Mapping[str, Any]]) -> str:
    """Say how columns of a recipe read the first text that they read differently."""
    for text in texts:
        shown = []
        for column in columns:
            with contextlib.suppress(ValueError):
                read = (reader_of(column) or str)(text)
                shown.append(f"{read} by {list_form(column)}")
        if len({reading.partition(" by ")[0] for reading in shown}) == len(columns):
            return f"can be read in two ways: {text!r} is {' or '.join(shown)}"
    return "has values that fit several formats"


def list_form(column: Mapping[str, Any]) -> str:
    """Return the form of a column of a recipe as text."""
    form = [f"{key} = {column[key]!r}" for key in FORM_KEYS if key in column]
    return " and ".join(form) or "no format"
