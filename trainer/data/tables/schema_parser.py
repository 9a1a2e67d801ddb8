"""Check the columns, crosses, label and split_by of a recipe."""

import collections
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainer import fields
from trainer.data.source_options import SourceOptions
from trainer.data.tables.columns import (
    AUTO,
    COMPARISONS,
    KEYS,
    LABEL_KEYS,
    LISTS,
    Column,
    Cross,
    Label,
    SplitBy,
    TableSchema,
    clean_text,
    fold_text,
)
from trainer.data.tables.dates import EPOCHS, DateForm
from trainer.data.tables.dialect import parse_dialect
from trainer.data.tables.number_forms import FORMATS
from vertex.errors import InputError, located
from vertex.formats import suggest


def parse_schema(options: SourceOptions) -> TableSchema:
    """Check the options `columns`, `crosses`, `label` and `split_by`, and return the schema.

    An InputError names the parameter, the position in it, and what would be right.
    """
    if not options.columns:
        raise InputError(
            'columns=[] gives the model nothing; list the columns of the table, such as {"name": '
            '"fare", "type": "numeric"}'
        )
    listed = options.columns if options.columns != AUTO else []
    if options.crosses and not listed:
        raise InputError("crosses need columns that are listed; list them, or leave crosses out")
    parsed = [_parse_column(f"columns[{i}]", item) for i, item in enumerate(listed)]
    _check_names("columns", [column.name for column in parsed])
    by_name = {column.name: column for column in parsed}
    crosses = []
    for i, item in enumerate(options.crosses):
        with located(f"crosses[{i}]"):
            crosses.append(_parse_cross(item, by_name))
    _check_names("columns and crosses", [*by_name, *(cross.name for cross in crosses)])
    label = _parse_label(options.label, by_name)
    split_by = _parse_split_by(options.split_by, label, by_name)
    if split_by.path:
        raise InputError(
            "split_by: path is for images; a row has none, but may have a group, column or time"
        )
    weight = options.weight_column
    if weight in (*by_name, *label.columns, split_by.name) and weight:
        raise InputError(
            f"weight_column={weight!r} is also a column of the label, of split_by or of columns, "
            "but no request has a weight; use another column, or take it out there"
        )
    return TableSchema(
        columns=parsed,
        crosses=crosses,
        label=label,
        split_by=split_by,
        weight=weight,
        dialect=parse_dialect(options.dialect),
    )


def parse_image_labels(options: SourceOptions) -> TableSchema:
    """Check `label` and `split_by` of images with a table of labels; the schema has no columns."""
    label = _parse_label(options.label, {})
    check_path_pattern(options)
    split_by = _parse_split_by(options.split_by, label, {})
    return TableSchema(label=label, split_by=split_by, dialect=parse_dialect(options.dialect))


def check_path_pattern(options: SourceOptions) -> None:
    """Raise InputError unless `path` of split_by is a regular expression.

    Without a label, it is the only way to split images of one folder.
    """
    split_by = _build_split_by(options.split_by)
    if options.split_by and not options.label and not split_by.path:
        raise InputError(
            f"split_by={options.split_by} names a column of labels.csv, but label names none; set "
            'label, too, or split by groups in paths, as {"path": "patient-[0-9]+"} does'
        )
    try:
        re.compile(split_by.path)
    except re.error as error:
        raise InputError(
            f"split_by: path={split_by.path!r} is not a regular expression: {error}"
        ) from None


def _parse_column(location: str, entry: Mapping[str, Any]) -> Column:
    if not entry.get("name"):
        raise InputError(f"{location}: 'name' is missing in {entry}")
    kind = str(entry.get("type", ""))
    with located(f"{location} ({entry['name']!r})"):
        if kind not in KEYS:
            raise InputError(f"type={kind!r} is not a type of column{suggest(kind, KEYS)}")
        allowed = ("name", "type", *KEYS[kind])
        for key in entry:
            if key not in allowed:
                raise InputError(f"a {kind} column takes no {key!r}{suggest(key, allowed)}")
        column = fields.build(Column, entry)
        values, missing = (
            list(map(clean_text, texts)) for texts in (column.values, column.missing)
        )
        if column.boundaries and column.quantiles:
            raise InputError("set boundaries or quantiles, not both")
        if column.quantiles == 1:
            raise InputError("quantiles=1 puts all values into one bucket; use 2 or more")
        if kind == "bucketized" and not (column.boundaries or column.quantiles):
            raise InputError("a bucketized column needs boundaries or quantiles")
        if sorted(set(column.boundaries)) != column.boundaries:
            raise InputError(f"boundaries={column.boundaries} must be in ascending order")
        if kind in ("identity", "hashed") and not column.buckets:
            raise InputError("buckets is missing; set the number of ids")
        check_form(column)
        _check_names("values", values)
        _check_names("missing", missing)
    return dataclasses.replace(column, values=values, missing=missing)


def check_form(column: Column) -> None:
    """Raise InputError for a format or units that no value of the column's type has."""
    if column.type == "date":
        _check_date_format(column.format)
        return
    if column.format and column.format not in FORMATS:
        raise InputError(
            f"format={column.format!r} is not a format of numbers; use one of "
            f"{', '.join(map(repr, FORMATS))}"
        )
    for unit, factor in column.units.items():
        is_number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
        if not is_number or not 0 < factor < math.inf:
            raise InputError(f"units: the factor of {unit!r} is {factor!r}; use a number above 0")
        if not unit.strip() or re.match(r"[\d(<>+-]", unit.strip()):
            raise InputError(
                f"units: {unit!r} is not a unit; use the text before or after a number, such as "
                "km; a number without a unit has the factor 1"
            )


def _check_date_format(format: str) -> None:
    try:
        DateForm(format)
    except ValueError as error:
        raise InputError(
            f"format={format!r} is not a format of dates ({error}); use directives of strptime, "
            f"such as %d/%m/%Y, or one of {', '.join(EPOCHS)}"
        ) from None


def _parse_cross(entry: Mapping[str, Any], columns: Mapping[str, Column]) -> Cross:
    cross = fields.build(Cross, entry, owner="a cross")
    if len(set(cross.columns)) < 2 or len(set(cross.columns)) != len(cross.columns):
        raise InputError(f"columns={cross.columns} must name two or more different columns")
    for name in cross.columns:
        if name not in columns:
            raise InputError(f"{name!r} is not one of columns{suggest(name, columns)}")
        column = columns[name]
        if column.type in ("text", "date"):
            raise InputError(
                f"{name!r} is a {column.type}, which has no categories to cross; take it out, or "
                "make it a vocabulary or hashed column"
            )
        if column.type == "numeric" and not (column.boundaries or column.quantiles):
            raise InputError(
                f"{name!r} is numeric; set its boundaries or quantiles, so that it has buckets to "
                "cross"
            )
    return cross


def _parse_label(entry: Mapping[str, Any], columns: Mapping[str, Column]) -> Label:
    with located("label"):
        label = fields.build(Label, entry, owner="a label")
        _check_fit(label)
        if label.is_multilabel:
            _check_multilabel(label)
        else:
            check_form(label.compared)
    compared = list(label.comparisons)
    if not (label.column or label.is_multilabel):
        raise InputError(
            f'label={entry} names no column; use {{"column": "class"}}, or a comparison such as '
            '{"column": "tips", "above": 0.2, "times_column": "fare"}'
        )
    for name in (label.column, *label.indicators):
        if name in columns:
            raise InputError(
                f"label: {name!r} is also one of columns, so the model would see the answer; take "
                "it out of columns"
            )
    if len(compared) > 1:
        raise InputError(f"label: {' and '.join(compared)} are two comparisons; use only one")
    if label.times_column and not compared:
        raise InputError(f"label: times_column needs a comparison: one of {', '.join(COMPARISONS)}")
    if label.times_column and label.times_column == label.column:
        raise InputError(
            f"label: {label.column!r} is compared with itself; use another times_column"
        )
    names = map(fold_text, label.classes) if label.ignore_case else label.classes
    classes = list(map(clean_text, names))
    classes = classes or label.indicators or (["no", "yes"] if compared else [])
    label = dataclasses.replace(label, missing=list(map(clean_text, label.missing)))
    _check_names("label: classes", classes)
    if len(classes) == 1 or (compared and len(classes) != 2):
        remedy = "a comparison has 2 classes, false and true" if compared else "list two or more"
        raise InputError(f"label: classes={classes}: {remedy}")
    return dataclasses.replace(label, classes=classes)


def _check_fit(label: Label) -> None:
    """Raise InputError for an option that a label of this type does not take."""
    for field in dataclasses.fields(label):
        fitting = [kind for kind, keys in LABEL_KEYS.items() if field.name in keys]
        is_set = getattr(label, field.name) != fields.default_of(field)
        if is_set and fitting and label.type not in fitting:
            raise InputError(
                f"{field.name} does not fit type={label.type!r}; leave it out, or set "
                f'"type": "{fitting[0]}"'
            )


def _check_multilabel(label: Label) -> None:
    if bool(label.column) == bool(label.indicators):
        raise InputError(
            "several labels are in one column, or in indicators, columns of 0 and 1; name either"
        )
    if label.indicators and label.classes:
        raise InputError("indicators name the classes themselves; leave classes out")
    if not label.separator:
        raise InputError("separator is empty; set the text between two labels")
    if label.format not in ("", LISTS):
        raise InputError(
            f"format={label.format!r} is not a format of several labels; use {LISTS!r} for lists, "
            "such as ['a', 'b'], or set separator"
        )


def _parse_split_by(
    entry: Mapping[str, Any], label: Label, columns: Mapping[str, Column]
) -> SplitBy:
    split_by = _build_split_by(entry)
    ways = (split_by.group, split_by.column, split_by.time, split_by.path)
    if entry and sum(map(bool, ways)) != 1:
        raise InputError(
            f'split_by={entry} must name a column of groups, as {{"group": "patient"}} does, of '
            'times, as {"time": "date"} does, or of splits, as {"column": "split"} does'
        )
    if split_by.format and not split_by.time:
        raise InputError("split_by: format is that of a time; name its column as time")
    with located("split_by"):
        _check_date_format(split_by.format)
    if split_by.name in label.columns:
        raise InputError(
            f"split_by={entry} names a column of the label, so that a class would be in one split "
            "alone; use another column"
        )
    if split_by.column in columns:
        raise InputError(
            f"split_by: {split_by.column!r} is also one of columns, but no request has a split; "
            "take it out of columns"
        )
    return split_by


def _check_names(what: str, names: Sequence[str]) -> None:
    for name, count in collections.Counter(names).items():
        if count > 1 or not name:
            problem = "listed twice" if name else "empty"
            raise InputError(f"{what}: {name!r} is {problem}; list each name once")


def _build_split_by(entry: Mapping[str, Any]) -> SplitBy:
    with located("split_by"):
        return fields.build(SplitBy, entry, owner="it")
