"""Sections of data sets that are tables: slices, and how well columns are filled."""

from typing import Any

from markupsafe import Markup

from trainer.data.schema import Dataset, Feature
from trainer.data.tables.columns import DTYPES
from trainer.evaluation.scoring import Evaluation
from trainer.evaluation.slices import Slices
from trainer.report.markup import (
    bar,
    breakable,
    count,
    decimal,
    join,
    name,
    percent,
    plain,
    section,
    table,
    text_cell,
)

_SHOWN = 14
_FEW = 30
"""Slices of fewer examples than this say little, and are grayed."""


def slices(evaluation: Evaluation) -> Markup:
    """How good the model is on parts of the split; nothing where there are none."""
    if not evaluation.slices:
        return Markup()
    lead = (
        f"Parts of the {evaluation.split} split. Accuracy is {percent(evaluation.accuracy)} and "
        f"ROC AUC {decimal(evaluation.roc_auc)} on the whole; figures from under {_FEW} examples "
        "are gray, a dash is undefined: all of one class."
    )
    parts = [
        Markup("<div><h3>{} <small>{}</small></h3>{}</div>").format(
            name(one.column), one.by, _table(one)
        )
        for one in evaluation.slices
    ]
    return section(
        "slices", "Slices", Markup('<div class="slices">{}</div>').format(join(parts)), lead=lead
    )


def _table(cut: Slices) -> Markup:
    binary = any(one.positive_rate is not None for one in cut.slices)
    rows = []
    for one in cut.slices:
        row: list[Any] = [name(one.name), f"{one.examples:,}"]
        few = one.examples < _FEW
        if binary:
            row.append(percent(one.positive_rate))
        row.append(
            _muted(percent(one.accuracy)) if few else bar(percent(one.accuracy), one.accuracy)
        )
        if binary:
            row.append(_muted(decimal(one.roc_auc)) if few else decimal(one.roc_auc))
        rows.append(row)
    head = ["Value", "Examples", *(["Positive"] if binary else []), "Accuracy"]
    return table(
        [*head, *(["ROC AUC"] if binary else [])],
        rows,
        caption=f"Accuracy by {cut.column}",
        tall=len(rows) > _SHOWN,
    )


def _muted(text: str) -> Markup:
    return Markup('<td class="none">{}</td>').format(text)


def columns(dataset: Dataset) -> Markup:
    """What each column is, and how often it is missing in each split; nothing for images."""
    found = [feature for feature in dataset.features if feature.kind in DTYPES]
    if not found:
        return Markup()
    splits = [split for split, part in dataset.splits.items() if part.examples]
    rows = [
        [
            Markup("<bdi>{}</bdi>").format(breakable(column.name)),
            text_cell(column.kind),
            *(_missing(column, split) for split in splits),
            text_cell(_content(column)),
        ]
        for column in found
    ]
    crosses = [name(feature.name) for feature in dataset.features if feature.kind == "cross"]
    lead: str | Markup = "How often a column has no value; content is of the training split."
    if crosses:
        lead = Markup("{} Crossed: {}.").format(lead, Markup(", ").join(crosses))
    head = ["Column", "Type", *(f"Missing in {split}" for split in splits), "Content"]
    return section(
        "columns", "Columns", table(head, rows, caption="Columns and missing values"), lead=lead
    )


def _missing(column: Feature, split: str) -> Markup:
    share = column.statistics.get("missing", {}).get(split)
    return bar(percent(share), share, 2)


def _content(column: Feature) -> Any:
    """A sentence on a column's values."""
    statistics, settings = column.statistics, column.settings
    if column.dtype == "float32":
        if statistics["minimum"] is None:
            return "no value"
        of = " of log(1 + x)" if settings.get("log") else ""
        least, most = plain(statistics["minimum"]), plain(statistics["maximum"])
        text = f"{least} to {most}, mean {plain(round(statistics['mean'], 4))}{of}"
        bounds = settings["boundaries"]
        return f"{text}; {len(bounds) + 1} buckets" if bounds else text
    if column.kind == "hashed":
        return f"hashed into {settings['buckets']:,} buckets"
    counts = statistics.get("counts", {})
    if column.kind == "identity":
        return f"{len(counts)} of {settings['buckets']} values occur"
    total = statistics["distinct"]
    common = join(
        [Markup("{} ({:,}), ").format(name(value), times) for value, times in
         sorted(counts.items(), key=lambda one: -one[1])[:3]]
    )  # fmt: skip
    return Markup("{}{}, {:,} of them in the vocabulary").format(
        common, count(total, "value"), sum(value in counts for value in settings["values"])
    )
