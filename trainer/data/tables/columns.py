"""The schema of a table as in a recipe: columns, crosses and the label.

    columns = [
        {"name": "trip_miles", "type": "numeric", "log": true},
        {"name": "hour", "type": "identity", "buckets": 24},
        {"name": "latitude", "type": "bucketized", "quantiles": 10},
        {"name": "payment", "type": "vocabulary", "size": 20},
        {"name": "company", "type": "hashed", "buckets": 100, "embedding": 8},
    ]
    crosses = [{"columns": ["hour", "payment"], "buckets": 500}]
    label = {"column": "tips", "above": 0.2, "times_column": "fare", "classes": ["small", "big"]}

Nothing in it is evaluated as code: a label is a column, or a comparison of a column with a number
or another column.
"""

from __future__ import annotations

import collections
import dataclasses
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainer import fields
from trainer.errors import InputError
from trainer.fields import option, suggest

if TYPE_CHECKING:
    from trainer.data.schema import Dataset, Feature

KEYS = {
    "numeric": ("log", "boundaries", "quantiles", "embedding"),
    "bucketized": ("boundaries", "quantiles", "embedding"),
    "identity": ("buckets", "embedding"),
    "vocabulary": ("values", "size", "minimum_count", "embedding"),
    "hashed": ("buckets", "embedding"),
}
"""The settings of each type of column, in addition to its name and type."""

MEANINGS = {
    "numeric": "a number, normalized; with boundaries or quantiles also its position in each "
    "bucket",
    "bucketized": "a number as its position in each bucket; needs boundaries or quantiles",
    "identity": "a whole number that is a category, such as an hour; needs buckets",
    "vocabulary": "text, or numbers used as names: the listed values, or the most common ones",
    "hashed": "text, or numbers used as names, with too many values to list; needs buckets",
}
"""The meaning of each type of column."""

DTYPES = {
    "numeric": "float32",
    "bucketized": "float32",
    "identity": "int64",
    "vocabulary": "string",
    "hashed": "string",
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "above": operator.gt,
    "at_least": operator.ge,
    "below": operator.lt,
    "at_most": operator.le,
    "equals": operator.eq,
}
FEATURES = {"string": "bytes", "float32": "floats", "int64": "ints"}
"""The feature of a record that holds all columns of a dtype, in order."""

_RESERVED = ("label", "key")


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
        0, help="Number of buckets with equal shares of the training split; 0: none.", minimum=0
    )
    buckets: int = option(
        0,
        help="Number of ids: values from 0 to buckets - 1 (identity), or hashes (hashed).",
        minimum=0,
    )
    values: list[str] = option([], help="The vocabulary; empty: learned from the training split.")
    size: int = option(
        1000, help="Largest number of values to learn, the most common first.", minimum=1
    )
    minimum_count: int = option(
        1, help="Number of training rows that must have a value for it to be learned.", minimum=1
    )
    embedding: int = option(
        0, help="Dimension in the deep part; 0: indicators instead, or none for numbers.", minimum=0
    )

    @property
    def dtype(self) -> str:
        return DTYPES[self.type]

    @property
    def is_number(self) -> bool:
        return self.dtype == "float32"

    @property
    def is_categorical(self) -> bool:
        """Return whether the column has category ids, by its type or its buckets."""
        return self.type != "numeric" or bool(self.boundaries or self.quantiles)

    def settings(self) -> dict[str, Any]:
        """Return the settings that the column's type has."""
        return {key: getattr(self, key) for key in KEYS[self.type]}


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
    )
    embedding: int = option(
        0, help="Dimension of the embedding in the deep part; 0: in the wide part alone."
    )

    @property
    def name(self) -> str:
        return "_x_".join(self.columns)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Label:
    """A column of classes, or the comparison of a column with a number times another column."""

    column: str = option("", help="Name in the table's header.")
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
        return [self.column, *([self.times_column] if self.times_column else [])]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSchema:
    """The checked schema of a table."""

    columns: list[Column]
    crosses: list[Cross]
    label: Label

    @property
    def needed(self) -> list[str]:
        """Return the names that every header must have."""
        return list(dict.fromkeys([*(c.name for c in self.columns), *self.label.columns]))


def list_columns(dataset: Dataset) -> list[Feature]:
    """Return a table's columns in the order of its records; empty for images."""
    return [feature for feature in dataset.features if feature.kind in DTYPES]


def argument_name(column: str) -> str:
    """Return a column's name in a form that TensorFlow accepts for arguments: Trip_Miles."""
    name = re.sub(r"\W", "_", column, flags=re.ASCII)
    return name if name[0].isalpha() else f"column_{name}"


def parse_schema(columns: Sequence[Any], crosses: Sequence[Any], label: Any) -> TableSchema:
    """Check a recipe's `columns`, `crosses` and `label`, and return the schema.

    An InputError names the parameter, the position in it, and what would be right.
    """
    if not columns:
        raise InputError(
            'columns=[] gives the model nothing; list the columns of the table, such as {"name": '
            '"fare", "type": "numeric"}'
        )
    parsed = [_parse_column(f"columns[{index}]", item) for index, item in enumerate(columns)]
    _check_names("columns", [column.name for column in parsed])
    by_argument: dict[str, str] = {}
    for column in parsed:
        other = by_argument.setdefault(argument_name(column.name), column.name)
        if other != column.name:
            raise InputError(
                f"columns: {other!r} and {column.name!r} are both named "
                f"{argument_name(other)!r} in the model, in ASCII; rename one"
            )
    by_name = {column.name: column for column in parsed}
    crossed = [_parse_cross(f"crosses[{i}]", item, by_name) for i, item in enumerate(crosses)]
    _check_names("columns and crosses", [*by_name, *(cross.name for cross in crossed)])
    return TableSchema(columns=parsed, crosses=crossed, label=_parse_label(label, by_name))


def _parse_column(location: str, entry: Mapping[str, Any]) -> Column:
    if not entry.get("name"):
        raise InputError(f"{location}: 'name' is missing in {entry}")
    location, kind = f"{location} ({entry['name']!r})", str(entry.get("type", ""))
    if kind not in KEYS:
        raise InputError(f"{location}: type={kind!r} is not a type of column{suggest(kind, KEYS)}")
    allowed = ("name", "type", *KEYS[kind])
    for key in entry:
        if key not in allowed:
            raise InputError(f"{location}: a {kind} column takes no {key!r}{suggest(key, allowed)}")
    column = _build(Column, location, entry)
    if column.name in _RESERVED:
        raise InputError(
            f"{location}: the records have another feature of that name; rename the column"
        )
    if column.boundaries and column.quantiles:
        raise InputError(f"{location}: set boundaries or quantiles, not both")
    if column.quantiles == 1:
        raise InputError(f"{location}: quantiles=1 puts all values into one bucket; use 2 or more")
    if kind == "bucketized" and not (column.boundaries or column.quantiles):
        raise InputError(f"{location}: a bucketized column needs boundaries or quantiles")
    if sorted(set(column.boundaries)) != column.boundaries:
        raise InputError(f"{location}: boundaries={column.boundaries} must be in ascending order")
    if kind in ("identity", "hashed") and not column.buckets:
        raise InputError(f"{location}: buckets is missing; set the number of ids")
    _check_names(f"{location}: values", column.values)
    return column


def _parse_cross(location: str, entry: Mapping[str, Any], columns: Mapping[str, Column]) -> Cross:
    cross = _build(Cross, location, entry, taker="a cross")
    if len(set(cross.columns)) < 2 or len(set(cross.columns)) != len(cross.columns):
        raise InputError(
            f"{location}: columns={cross.columns} must name two or more different columns"
        )
    for name in cross.columns:
        if name not in columns:
            raise InputError(f"{location}: {name!r} is not one of columns{suggest(name, columns)}")
        if not columns[name].is_categorical:
            raise InputError(
                f"{location}: {name!r} is numeric; set its boundaries or quantiles, so that it has "
                "buckets to cross"
            )
    return cross


def _parse_label(entry: Mapping[str, Any], columns: Mapping[str, Column]) -> Label:
    label = _build(Label, "label", entry, taker="a label")
    if not label.column:
        raise InputError(
            f'label={entry} names no column; use {{"column": "class"}}, or a comparison such as '
            '{"column": "tips", "above": 0.2, "times_column": "fare"}'
        )
    if label.column in columns:
        raise InputError(
            f"label: {label.column!r} is also one of columns, so the model would see the "
            "answer; take it out of columns"
        )
    compared = list(label.comparisons)
    if len(compared) > 1:
        raise InputError(f"label: {' and '.join(compared)} are two comparisons; use only one")
    if label.times_column and not compared:
        raise InputError(f"label: times_column needs a comparison: one of {', '.join(COMPARISONS)}")
    if label.times_column == label.column:
        raise InputError(
            f"label: {label.column!r} is compared with itself; use another times_column"
        )
    classes = label.classes or (["no", "yes"] if compared else [])
    _check_names("label: classes", classes)
    if len(classes) == 1 or (compared and len(classes) != 2):
        remedy = "a comparison has 2 classes, false and true" if compared else "list two or more"
        raise InputError(f"label: classes={classes}: {remedy}")
    return dataclasses.replace(label, classes=classes)


def _check_names(what: str, names: Sequence[str]) -> None:
    for name, count in collections.Counter(names).items():
        if count > 1 or not name:
            problem = "listed twice" if name else "empty"
            raise InputError(f"{what}: {name!r} is {problem}; list each name once")


def _build(cls: type[Any], location: str, entry: Mapping[str, Any], taker: str = "") -> Any:
    try:
        return fields.build(cls, entry, taker=taker)
    except InputError as error:
        raise InputError(f"{location}: {error}") from None
