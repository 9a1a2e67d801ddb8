"""The schema of a table as in a recipe: columns, crosses, the label and what decides splits.

    columns = [
        {"name": "trip_miles", "type": "numeric", "log": true},
        {"name": "price", "type": "numeric", "format": "1.234,56", "units": {"€": 1}},
        {"name": "hour", "type": "identity", "buckets": 24},
        {"name": "latitude", "type": "bucketized", "quantiles": 10},
        {"name": "payment", "type": "vocabulary", "size": 20},
        {"name": "company", "type": "hashed", "buckets": 100, "embedding": 8},
        {"name": "comment", "type": "text"},
    ]
    crosses = [{"columns": ["hour", "payment"], "buckets": 500}]
    label = {"column": "tips", "above": 0.2, "times_column": "fare", "classes": ["small", "big"]}
    split_by = {"group": "taxi_id"}

Nothing in it is evaluated as code: a label is a column, or a comparison of a column with a number
or another column.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import keyword
import operator
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from trainer.data.tables.dates import DateForm
from trainer.data.tables.dialect import PLAIN, Dialect
from trainer.data.tables.number_forms import BOUNDS, FORMATS, NumberForm
from trainer.fields import option

if TYPE_CHECKING:
    from trainer.data.schema import Dataset, Feature

AUTO = [{"type": "auto"}]
"""The option `columns` of a table whose columns are proposed when it is read."""

FORM_KEYS = ("format", "units", "bounds")
"""The settings that say how a column's numbers are written."""
KEYS = {
    "numeric": ("log", "boundaries", "quantiles", "embedding", *FORM_KEYS, "missing"),
    "bucketized": ("boundaries", "quantiles", "embedding", *FORM_KEYS, "missing"),
    "identity": ("buckets", "embedding", "missing"),
    "date": ("quantiles", "format", "missing"),
    "vocabulary": ("values", "size", "minimum_count", "embedding", "missing"),
    "hashed": ("buckets", "embedding", "missing"),
    "text": ("terms", "minimum_count", "words", "embedding", "missing"),
}
"""The settings of each type of column, in addition to its name and type."""
_OPTIONAL = (*FORM_KEYS, "missing")
"""Settings that dataset.json has only where they are set."""

MEANINGS = {
    "numeric": "a number, normalized; with boundaries or quantiles also its position in each "
    "bucket",
    "bucketized": "a number as its position in each bucket; needs boundaries or quantiles",
    "identity": "a whole number that is a category, such as an hour; needs buckets",
    "date": "a date or time: its day as a number, its month, weekday and hour as categories",
    "vocabulary": "text, or numbers used as names: the listed values, or the most common ones",
    "hashed": "text, or numbers used as names, with too many values to list; needs buckets",
    "text": "sentences in any language: their words, and pairs of adjacent words",
}
"""The meaning of each type of column."""

DTYPES = {
    "numeric": "float32",
    "bucketized": "float32",
    "identity": "int64",
    "date": "string",
    "vocabulary": "string",
    "hashed": "string",
    "text": "string",
}
MOST_IDS = 2**31 - 1
"""Models get ids as int32."""
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "above": operator.gt,
    "at_least": operator.ge,
    "below": operator.lt,
    "at_most": operator.le,
    "equals": operator.eq,
}
LABEL_KEYS = {
    "classes": ("classes", "ignore_case", *COMPARISONS, "times_column", *FORM_KEYS, "missing"),
    "numeric": ("log", "adaptive", *FORM_KEYS, "missing"),
    "multilabel": ("classes", "ignore_case", "indicators", "format", "missing"),
}
"""The options that not every type of label takes."""
WORD_CHARACTERS = 10
"""A text is cut off after this many characters for each word that is read."""
WHOLE_NUMBER = r"^(-?[0-9]+)\.0+$"
"""Pattern of a whole number with a fraction of zeros, in the syntax of re and of RE2."""
LISTS = "list"
"""The format of labels that are lists as text, such as ['a', 'b']."""
FEATURES = {"string": "bytes", "float32": "floats", "int64": "ints"}
"""The feature of a record that holds all columns of a dtype, in order."""
WEIGHT = "sample_weight"
"""The feature of a record that has its weight."""


def format_option(described: str) -> Any:
    """Return the option `format` of columns and labels."""
    return option("", help=f"Format of {described}; empty: as Python and ISO 8601 write them.")


def units_option() -> Any:
    """Return the option `units` of columns and labels."""
    return option(
        {},
        help='Factor of each text before or after a number, such as {"k": 1000, "€": 1}; a number '
        "without any has the factor 1.",
    )


def bounds_option() -> Any:
    """Return the option `bounds` of columns and labels."""
    return option(
        BOUNDS[0],
        help="How bounds, such as <5 and 10+, are read: as missing, or as the value of the bound.",
        choices=BOUNDS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A column that is an input of the model; KEYS lists the settings of each type."""

    name: str = option("", help="Name in the table's header.")
    type: str = option("", help="Type of the column.", choices=tuple(KEYS))
    log: bool = option(
        False, help="Normalize log(1 + value) instead of the value; for values of at least 0."
    )
    boundaries: list[float] = option(
        [], help="Bounds between buckets, in ascending order; n bounds make n + 1 buckets."
    )
    quantiles: int = option(
        0,
        help="Number of buckets with equal shares of the training split, but for values that are "
        "more frequent; 0: none.",
        minimum=0,
        maximum=10_000,
    )
    buckets: int = option(
        0,
        help="Number of ids: values from 0 to buckets - 1 (identity), or hashes (hashed).",
        minimum=0,
        maximum=MOST_IDS,
    )
    values: list[str] = option([], help="The vocabulary; empty: learned from the training split.")
    size: int = option(
        1000, help="Largest number of values to learn, the most common first.", minimum=1
    )
    minimum_count: int = option(
        1,
        help="Number of training rows that must have a value for it to be learned; for the words "
        "of texts, 2 or more.",
        minimum=1,
    )
    terms: int = option(
        20_000,
        help="Largest number of words and pairs of words to learn, the most common first.",
        minimum=1,
    )
    words: int = option(
        256,
        help="Number of words of a text that are read; the rest is cut off.",
        minimum=1,
        maximum=10_000,
    )
    embedding: int = option(
        0,
        help="Dimension in the deep part; 0: indicators instead, or none for numbers and texts.",
        minimum=0,
    )
    format: str = format_option(
        f"numbers ({', '.join(FORMATS)}) or dates (%d/%m/%Y, seconds since 1970, ...)"
    )
    units: dict = units_option()
    bounds: str = bounds_option()
    missing: list[str] = option(
        [], help='Texts that stand for a missing value, such as ["NULL", "NA", "?"].'
    )

    @functools.cached_property
    def number_form(self) -> NumberForm:
        """Return the form of a column of numbers."""
        return NumberForm(self.format, self.units, self.bounds)

    @functools.cached_property
    def date_form(self) -> DateForm:
        """Return the form of a column of dates."""
        return DateForm(self.format)

    @property
    def dtype(self) -> str:
        return DTYPES[self.type]

    @property
    def is_number(self) -> bool:
        """Return whether the column has quantiles: a number, or the day of a date."""
        return self.dtype == "float32" or self.type == "date"

    @property
    def is_categorical(self) -> bool:
        """Return whether the column has category ids, by its type or its buckets."""
        if self.type in ("numeric", "date", "text"):
            return self.type == "numeric" and bool(self.boundaries or self.quantiles)
        return True

    @property
    def characters(self) -> int:
        """Return the number of characters of a text that are read."""
        return self.words * WORD_CHARACTERS

    def settings(self) -> dict[str, Any]:
        """Return the settings that the column's type has, without its form if that is plain."""
        default = Column()
        settings = {key: getattr(self, key) for key in KEYS[self.type]}
        return {
            key: value
            for key, value in settings.items()
            if key not in _OPTIONAL or value != getattr(default, key)
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cross:
    """Every combination of values of two or more columns, hashed if there are too many."""

    columns: list[str] = option(
        [], help="Names of two or more columns; a numeric column must have buckets."
    )
    buckets: int = option(
        1000,
        help="Largest number of ids; if there are more combinations, they are hashed.",
        minimum=2,
        maximum=MOST_IDS,
    )
    embedding: int = option(
        0, help="Dimension of the embedding in the deep part; 0: in the wide part alone.", minimum=0
    )

    @property
    def name(self) -> str:
        return "_x_".join(self.columns)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Label:
    """A column of classes, of numbers or of several labels, or the comparison of a column.

    A comparison is with a number, or with a number times another column.
    """

    column: str = option("", help="Name in the table's header.")
    type: str = option(
        "classes",
        help="What to predict: one of classes, a numeric value, such as a price, or any number of "
        "labels (multilabel), such as tags.",
        choices=tuple(LABEL_KEYS),
    )
    separator: str = option(
        ";", help="Text between the labels of a multilabel column, unless it contains lists."
    )
    indicators: list[str] = option(
        [], help="Columns of 0 and 1, one for each label, instead of a multilabel column."
    )
    ignore_case: bool = option(
        False,
        help="Classes and labels that differ only in case, width, blanks and a full stop at the "
        "end are one, in lower case.",
    )
    format: str = format_option(
        f"numbers ({', '.join(FORMATS)}), or {LISTS} for labels that are lists as text, such as "
        "['a', 'b']"
    )
    units: dict = units_option()
    bounds: str = bounds_option()
    missing: list[str] = option([], help="Texts that mean that a row has no label.")
    log: bool = option(
        False,
        help="Learn log(1 + value) of a numeric label, so that equal ratios count as equal errors; "
        "for values of at least 0.",
    )
    adaptive: bool = option(
        False,
        help="For a numeric value: learn how wide each interval must be (quantile regression), "
        "instead of one width for all.",
    )
    above: float | None = option(None, help="yes if the column is above this number.")
    at_least: float | None = option(None, help="yes if the column is at least this number.")
    below: float | None = option(None, help="yes if the column is below this number.")
    at_most: float | None = option(None, help="yes if the column is at most this number.")
    equals: float | None = option(None, help="yes if the column equals this number.")
    times_column: str = option("", help="Column by which the number is multiplied.")
    classes: list[str] = option(
        [],
        help="Classes; for a comparison, the names for false and true. Empty: all values, sorted, "
        "or no and yes.",
    )

    @property
    def comparisons(self) -> dict[str, float]:
        """Return the comparison and its number; empty: the column contains classes."""
        numbers = {name: getattr(self, name) for name in COMPARISONS}
        return {name: number for name, number in numbers.items() if number is not None}

    @property
    def columns(self) -> list[str]:
        return [*filter(None, (self.column, self.times_column)), *self.indicators]

    @property
    def is_multilabel(self) -> bool:
        """Return whether an example may have any number of labels."""
        return self.type == "multilabel"

    @property
    def number(self) -> Column | None:
        """Return the label as a column of numbers; None if it is of another type."""
        return self.compared if self.type == "numeric" else None

    @property
    def compared(self) -> Column:
        """Return the column of numbers that is predicted or compared."""
        return Column(
            name=self.column,
            type="numeric",
            log=self.log,
            format=self.format,
            units=self.units,
            bounds=self.bounds,
            missing=self.missing,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitBy:
    """The column that decides a row's split; without one, a digest of the row decides it."""

    group: str = option(
        "", help="Column of groups, such as patients: rows with an equal value are in one split."
    )
    column: str = option("", help="Column that names each row's split: train, validation or test.")
    time: str = option(
        "", help="Column of dates, times or numbers: the newest rows are the test split."
    )
    format: str = option(
        "", help="Format of times that are neither numbers nor in ISO 8601, such as %d/%m/%Y."
    )
    path: str = option(
        "",
        help="For images: a regular expression that finds a group in each path, such as "
        "patient-[0-9]+; images of a group are in one split.",
    )

    @property
    def name(self) -> str:
        """Return the column's name; empty without one."""
        return self.group or self.column or self.time


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSchema:
    """The checked schema of a table."""

    label: Label
    columns: list[Column] = dataclasses.field(default_factory=list)
    crosses: list[Cross] = dataclasses.field(default_factory=list)
    split_by: SplitBy = SplitBy()
    weight: str = ""  # column of weights; empty: none
    dialect: Dialect = PLAIN  # how its files are written

    @property
    def time_form(self) -> DateForm:
        """Return the form of the times that decide splits, by default that of their column."""
        formats = {column.name: column.format for column in self.columns if column.type == "date"}
        return DateForm(self.split_by.format or formats.get(self.split_by.time, ""))

    @property
    def needed(self) -> list[str]:
        """Return the names that every header must have."""
        names = [*(column.name for column in self.columns), *self.label.columns]
        return list(dict.fromkeys([*names, *filter(None, [self.split_by.name, self.weight])]))


def list_columns(dataset: Dataset) -> list[Feature]:
    """Return a table's columns in the order of its records; empty for images."""
    return [feature for feature in dataset.features if feature.kind in DTYPES]


def fold_text(text: str) -> str:
    """Return a class or label as `ignore_case` compares it."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    visible = "".join(char for char in text if unicodedata.category(char) != "Cf")
    return re.sub(r"(?<=\w)\.$", "", " ".join(visible.split()))


def clean_text(text: str) -> str:
    """Return a value of a text column as it is in the records.

    Whitespace around it is removed, and so is a fraction of zeros: files and requests write the
    same number, used as a name, as 17 or, where others are missing, as 17.0. Letters with marks are
    in the composed form of Unicode (NFC), however a keyboard or a file system writes them.
    """
    text = unicodedata.normalize("NFC", text.strip())
    return re.sub(WHOLE_NUMBER, r"\1", text) if text.endswith("0") else text


def argument_names(names: Iterable[str]) -> dict[str, str]:
    """Return the argument of a served model for each column of a table, by the column's name.

    It is the name in ASCII, in a form that TensorFlow accepts: Trip_Miles for "Trip Miles". Columns
    that would have the same argument, such as 价格 and 数量, or an argument that no model can have,
    such as `class`, get a digest of their name, too.
    """
    forms = {name: _ascii_form(name) for name in names}
    # TensorFlow treats arguments that differ only in case as equal.
    counts = collections.Counter(form.lower() for form in forms.values())
    taken, arguments = set(counts), {}
    for name, form in forms.items():
        argument = form
        # Keras exports no argument named by a keyword; none of a loaded model can be `self`.
        if counts[form.lower()] > 1 or keyword.iskeyword(form) or form == "self":
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
            longer = (f"{form}_{digest[:digits]}" for digits in range(8, len(digest) + 1))
            argument = next(one for one in longer if one.lower() not in taken)
            taken.add(argument.lower())
        arguments[name] = argument
    return arguments


def _ascii_form(name: str) -> str:
    form = re.sub(r"\W", "_", name, flags=re.ASCII)
    return form if form[:1].isalpha() else f"column_{form}"
