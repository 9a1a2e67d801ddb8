"""Write a recipe for a table or photos that nobody has described: `recipes new`."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipelines import recipe
from pipelines.parameters import PARAMETERS
from pipelines.printing import shorten_path
from pipelines.recipe_draft import Draft, list_with_comments, to_text, to_toml
from trainer.data import storage
from trainer.data.dataset_warnings import describe_rejections
from trainer.data.schema import ROWS
from trainer.data.source import Rejection
from trainer.data.sources import parse_source
from trainer.data.tables.columns import FORM_KEYS, Column, Label, TableSchema
from trainer.data.tables.dates import is_date_format
from trainer.data.tables.dialect import Sniffed
from trainer.data.tables.label_proposal import list_labels
from trainer.data.tables.parsing import parse_block
from trainer.data.tables.proposal import Described, Proposal, propose
from trainer.data.tables.schema_parser import check_form, parse_schema
from trainer.data.tables.table_sample import SAMPLE_ROWS
from trainer.data.totals import count_rejections
from trainer.data.write.record_options import RecordOptions
from trainer.fields import build, convert, pick, type_of
from trainer.process_pool import available_cores
from vertex.errors import InputError, located
from vertex.formats import duration, listing, number_of, suggest

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_STEPS = 8000
"""Training steps of a table, whatever its size, within the limits of epochs."""
_CLASSES_DROPOUT = 0.3
"""Of a classification. With 0.1, bookings have an area under the curve lower by 0.01; a census,
trips and scans, by up to 0.003. For a number, 0.3 is too much: R2 of housing falls by 0.01."""
_REJECTED = "max_rejected_fraction"
_START_SECONDS, _ROW_SECONDS = 15, 3e-5
"""Measured on two cores of an AMD EPYC: a run without training, and a row in an epoch."""
_LARGE = 250_000
"""Rows that a table has of which only a sample was read."""
_COLUMN_KEYS = {field.name for kind in (Column, Label) for field in fields(kind)} - {"column"}
"""The keys that a column or a label can have."""
_SEARCH = """
[search]
trials = 12
parallel = 2
parameters.learning_rate = { min = 4e-4, max = 1e-2, scale = "log" }
parameters.batch_size = [32, 64, 128, 256]
"""
_MANY_LINES = 50
"""Lines of a row that are a sign of a quote that was never closed."""
_SHOWN = 10
"""Largest number of columns of which each is shown."""


def write(
    name: str,
    source: str,
    label: str,
    *,
    columns: Sequence[Mapping[str, Any]] = (),
    values: Mapping[str, Any] = MappingProxyType({}),
    search: bool = False,
) -> tuple[Path, list[tuple[str, str]]]:
    """Write recipes/NAME.toml, and return its path and what was understood, as titles and texts.

    The recipe is first checked as a run checks it. Raise InputError for a name that is taken or
    unusable, and for a table, photos or a label that can't be learned.

    Args:
        columns: what is known of some columns, as in a recipe.
        values: other parameters that the recipe sets, typed or as text.
        search: add a search for hyperparameters.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is not a recipe name: use lower-case letters, digits and underscores, and "
            "begin with a letter"
        )
    if name in recipe.list_names():
        raise InputError(f"there is a recipe {name!r} already; choose another name")
    given = convert_values(values)
    if parse_source(source)[0].contents == ROWS:
        draft = draft_table(source, label, columns, given)
    else:
        from pipelines.new_image_recipe import draft_images

        if columns:
            raise InputError(f"--column: source={source!r} is not a table; leave it out")
        draft = draft_images(source, label, given)
    heading = (
        f"{label[:1].upper()}{label[1:] or 'Classes'} of {source}",
        "",
        f"Command:    python -m pipelines run {name} --local",
    )
    text = to_text(heading, draft) + (_SEARCH if search else "")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{name}.toml").write_text(text, encoding="utf-8")
        recipe.load(name, Path(folder))
    path = recipe.USER_DIRECTORY / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    with storage.catch_write_errors(str(path)):
        path.write_text(text, encoding="utf-8")
    understood = f"{shorten_path(path)}: {label or 'classes'} by {draft.options['model']}"
    return path, [("recipe", understood), *draft.facts]


def convert_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of parameters in their types; raise InputError for an unknown name."""
    converted = {}
    for name, value in values.items():
        if name not in PARAMETERS:
            raise InputError(f"--set: unknown parameter {name!r}{suggest(name, PARAMETERS)}")
        kind = type_of(PARAMETERS[name][0], name)
        converted[name] = convert(name, value, kind)
    return converted


def propose_for(
    source: str,
    label: str,
    columns: Sequence[Mapping[str, Any]] = (),
    values: Mapping[str, Any] = MappingProxyType({}),
) -> Proposal:
    """Return columns for a column of a table; raise InputError as `proposal.propose` does.

    Args:
        columns: what is known of some columns, as in a recipe.
        values: other parameters, such as dialect and split_by.
    """
    return _propose(source, label, columns, values)[0]


def _propose(
    source: str, label: str, columns: Sequence[Mapping[str, Any]], values: Mapping[str, Any]
) -> tuple[Proposal, Sniffed]:
    """Return columns for a column of a table, and the dialect of its files."""
    kind, location = parse_source(source)
    if kind.contents != ROWS:
        raise InputError(f"source={source!r} is not a table; use one, such as csv:FILE")
    table: Any = kind
    sniffed = table.sniff(location, values.get("dialect"))
    # Opening checks that each file has the label.
    opened = table(location, TableSchema(label=Label(column=label), dialect=sniffed.dialect))
    if not label:
        known = list_labels(opened, source)
        named = listing([f"{name} ({kind})" for name, kind in known.items()])
        raise InputError(f"source={source!r}: give --label, the column to predict: {named}")
    split_by = values.get("split_by", {})
    hidden = {split_by.get("group"), split_by.get("column"), values.get("weight_column")}
    entries = {column["name"]: column for column in map(_check_column, columns)}
    return propose(opened, f"source={source!r}", label, hidden, entries), sniffed


def _check_column(column: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is known of a column; raise InputError for an unknown key or form."""
    place = f"--column {to_toml(column)}"
    for key in column:
        if key not in _COLUMN_KEYS:
            raise InputError(f"{place}: {key!r} is unknown{suggest(key, _COLUMN_KEYS)}")
    if not column.get("name"):
        raise InputError(f"{place} has no name; add one, as in the table's header")
    is_date = is_date_format(str(column.get("format", "")))
    form = {key: column[key] for key in FORM_KEYS if key in column}
    with located(place):
        check_form(build(Column, {"type": "date" if is_date else "numeric", **form}))
    return column


def draft_table(
    source: str, label: str, columns: Sequence[Mapping[str, Any]], values: Mapping[str, Any]
) -> Draft:
    """Return options to learn a column of a table; raise InputError as `propose_for` does.

    Args:
        columns: what is known of some columns, as in a recipe.
        values: other parameters that the recipe sets.
    """
    proposal, sniffed = _propose(source, label, columns, values)
    dialect = sniffed.dialect.settings
    given = {"source": source, **({"dialect": dialect} if dialect else {})}
    proposed = {"label": proposal.label, "columns": proposal.columns}
    options = {**given, **proposed, **choose_options(proposal), **values, **given}
    facts = [("file", note) for note in sniffed.notes] + _describe(proposal)
    read = "" if proposal.is_whole else "first "
    outside = "" if "split_by" in options else " outside the test split"
    comments = {
        "columns": [
            f"Based on the {read}{proposal.rows:,} rows{outside}. Review them: remove columns",
            "whose values are not known at prediction time.",
            *(f"Left out: {name} {reason}" for name, reason in proposal.left_out.items()),
        ]
    }
    if proposal.label.get("type") == "numeric":
        comments["label"] = ["Add log = true to count equal ratios as equal errors."]
    rows, rejections = _parse_rows(build(RecordOptions, pick(RecordOptions, options)))
    if rejected := describe_rejections(count_rejections(rejections), rows, "rows"):
        facts.append(("rejected", rejected))
        comments[_REJECTED] = [f"{rejected}."]
        options.setdefault(_REJECTED, round(min(1.0, len(rejections) / rows + 0.02), 2))
    if options["columns"] == proposal.columns:
        options["columns"] = list_with_comments([*_list_columns(proposal)])
    return Draft(options, comments, [*facts, ("time", _estimate_time(proposal, options))])


def _parse_rows(options: RecordOptions) -> tuple[int, list[Rejection]]:
    """Parse the first rows of a table as a run does; return their number and the rejections."""
    kind, place = parse_source(options.source)
    opened, schema = kind.open(place, options), parse_schema(options)
    rows, rejections = 0, list[Rejection]()
    for block in opened.read_all():
        _, totals = parse_block(block, opened.names[block.file], schema, options.split_fractions)
        rows += totals.items
        rejections += totals.rejections
        if rows >= SAMPLE_ROWS:
            break
    return rows, rejections


def explain(proposal: Proposal, name: str) -> list[tuple[str, str]]:
    """Return all that is known of a column, as pairs of a title and a text."""
    known = {one.name: one for one in (proposal.target, *proposal.described)}
    if name not in known:
        raise InputError(f"--explain: the table has no column {name!r}{suggest(name, known)}")
    one = known[name]
    shown = (
        f"{number_of(one.rows, 'rows')}, {one.distinct:,} different values, {one.missing:,} missing"
    )
    return [
        ("column", f"{name}: {shown}"),
        ("read as", to_toml(one.column) if one.column else f"left out: {one.reason}"),
        *(("example", example) for example in one.examples),
        *(("doubtful", note) for note in one.notes),
        *(("or", to_toml(other)) for other in one.alternatives),
    ]


def choose_options(proposal: Proposal) -> dict[str, Any]:
    """Return the options of wide_and_deep that suit a table of that size."""
    rows = _count_rows(proposal)
    if all(column["type"] == "text" for column in proposal.columns):
        return {"model": "wide_and_deep", "epochs": 12, "early_stopping_patience": 3}
    batch_size = min(256, max(32, 2 ** round(rows / 100).bit_length() // 2))
    epochs = min(100, max(8, _STEPS * batch_size // rows))
    return {
        "model": "wide_and_deep",
        "model_options": {
            "hidden_units": [256, 128, 64],
            "dropout": 0.1 if proposal.label.get("type") == "numeric" else _CLASSES_DROPOUT,
        },
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": 0.002,
        "schedule": "cosine",
        "wide_learning_rate": 0.02,
        "early_stopping_patience": max(4, epochs // 4),
    }


def _count_rows(proposal: Proposal) -> int:
    """Return the rows that a run learns from or, if only a sample was read, an estimate."""
    rows = proposal.rows if proposal.is_whole else max(_LARGE, proposal.rows)
    return max(1, round(rows * (1 - proposal.unlabeled)))


def _describe(proposal: Proposal) -> list[tuple[str, str]]:
    """Return what was understood of a table, as pairs of a title and a text."""
    used = [one for one in proposal.described if one.column]
    lines = [("label", _describe_column(proposal.target))]
    if len(used) <= _SHOWN:
        lines += [("column", _describe_column(one)) for one in used]
    else:
        # Numbers and names as they are need no line each.
        by_type = defaultdict[str, list[str]](list)
        for one in used:
            if {*one.column} & {"format", "units", "bounds", "missing"} or one.notes:
                lines.append(("column", _describe_column(one)))
            else:
                by_type[one.column["type"]].append(one.name)
        lines += [
            ("columns", f"{len(names)} {kind}: {listing(names)}") for kind, names in by_type.items()
        ]
    for one in (proposal.target, *used):
        lines += [("doubtful", f"{one.name}: {note}") for note in one.notes]
    lines += [("left out", f"{name} {reason}") for name, reason in proposal.left_out.items()]
    if proposal.longest[1] >= _MANY_LINES:
        first, count = proposal.longest
        note = f"the row that begins in line {first} has {count:,} lines; is a quote not closed?"
        lines.append(("doubtful", note))
    return lines


def _estimate_time(proposal: Proposal, options: Mapping[str, Any]) -> str:
    """Return the longest time of a run on this machine; early stopping ends most of them sooner."""
    rows, epochs = _count_rows(proposal), options["epochs"]
    seconds = _START_SECONDS + rows * epochs * _ROW_SECONDS * 2 / min(2, available_cores())
    return f"at most {duration(seconds)} here: {epochs} epochs of {number_of(rows, 'rows')}"


def _describe_column(one: Described) -> str:
    entry = {key: value for key, value in one.column.items() if key not in ("name", "column")}
    kind = str(entry.pop("type", "classes"))
    options = "".join(f", {key} {value}" for key, value in entry.items() if key == "format")
    return f"{one.name}: {kind}{options}: {', '.join(one.examples)}"


def _list_columns(proposal: Proposal) -> Iterator[Mapping[str, Any] | str]:
    """Yield the columns, and comments on what is doubtful."""
    for one in proposal.described:
        if one.column:
            yield one.column
            yield from (f"  {note}" for note in one.notes)
        yield from (f"or: {to_toml(other)}" for other in one.alternatives)
