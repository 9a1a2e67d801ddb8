"""Evaluate a model on slices of a split, such as by payment type, hour or company.

A column with few values is sliced by value. A column with many values, such as companies, is sliced
by the frequency of the values in the training split.
"""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np

from trainer.data.schema import Feature
from trainer.metrics.classifier import pack_scores, rank
from trainer.metrics.disk_columns import Answers, ColumnValues, encode_texts, spans

MAX_VALUES = 31
"""Largest number of values of a column that is sliced by value: the days of a month."""

MISSING = "missing"
UNSEEN = "not in the vocabulary"
_BANDS = (10, 100, 1000, 10_000)


_Cut = tuple[str, Callable[[np.ndarray], np.ndarray], list[str]]
"""The name of a column's cut, a function that maps values to groups, and the groups' names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slice:
    """The metrics of a slice."""

    name: str  # value, range or frequency that its rows have in common
    examples: int  # number of rows
    accuracy: float
    positive_rate: float | None  # share of the second class; None for more than two classes
    roc_auc: float | None  # None for more than two classes, or if either class has no example


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slices:
    """The slices of a split by a column; `by` describes the cut to a reader."""

    column: str
    by: str
    slices: list[Slice]


def slice_answers(values: ColumnValues, answers: Answers) -> list[Slices]:
    """Slice the answers by the values of each vocabulary and identity column of a table."""
    kinds = ("vocabulary", "identity")
    columns = [column for column in values.columns if column.kind in kinds]
    return [_slice_column(column, values, answers) for column in columns]


def _slice_column(column: Feature, values: ColumnValues, answers: Answers) -> Slices:
    by, group_of, names = _choose_cut(column)
    cells = np.zeros((len(names), 4), int)  # rows by whether it is the second class, and correct
    for start, stop in spans(values.rows):
        groups = group_of(values.read(column.name, start, stop))
        label = answers.read("label", start, stop)
        is_correct = label == answers.read("predicted", start, stop)
        codes = 4 * groups + 2 * (label == 1) + is_correct
        cells += np.bincount(codes, minlength=cells.size).reshape(cells.shape)
    sizes = cells.sum(axis=1).tolist()
    binary = answers.classes == 2
    areas = (
        _compute_aucs(column.name, group_of, sizes, values, answers)
        if binary
        else [None] * len(names)
    )
    return Slices(
        column=column.name,
        by=by,
        slices=[
            Slice(
                name=names[number],
                examples=size,
                accuracy=float(cells[number, 1::2].sum() / size),
                positive_rate=float(cells[number, 2:].sum() / size) if binary else None,
                roc_auc=areas[number],
            )
            for number, size in enumerate(sizes)
            if size
        ],
    )


def _compute_aucs(
    name: str,
    group_of: Callable[[np.ndarray], np.ndarray],
    sizes: list[int],
    values: ColumnValues,
    answers: Answers,
) -> list[float | None]:
    """Return the ROC AUC of each group of rows; None if it is undefined."""
    examples = np.empty(answers.rows, np.uint32)  # from pack_scores, group after group
    ends = np.cumsum([0, *sizes])
    filled = ends[:-1].copy()
    for start, stop in spans(answers.rows):
        groups = group_of(values.read(name, start, stop))
        order = np.argsort(groups, kind="stable")
        positive = answers.read("label", start, stop) == 1
        packed = pack_scores(positive, answers.read(1, start, stop))[order]
        counts = np.bincount(groups, minlength=len(sizes))
        for number, part in enumerate(np.split(packed, np.cumsum(counts)[:-1])):
            examples[filled[number] : filled[number] + len(part)] = part
        filled += counts
    rankings = [rank(part) for part in np.split(examples, ends[1:-1])]
    return [ranking.roc_auc if ranking else None for ranking in rankings]


def _choose_cut(column: Feature) -> _Cut:
    buckets = column.settings.get("buckets", 0)
    if column.dtype == "int64" and buckets <= MAX_VALUES:
        order = [str(value) for value in range(buckets)] + [MISSING]
        return (
            "by value",
            lambda codes: np.where(_is_outside(codes, buckets), buckets, codes),
            order,
        )
    counts: dict[str, int] = column.statistics.get("counts", {})
    if len(counts) > MAX_VALUES:
        by, rest = "by rows of the same value in training", 0
        groups = np.searchsorted([0, *_BANDS], list(counts.values()), side="right")
        order = [f"{low:,} to {high - 1:,}" for low, high in itertools.pairwise(_BANDS)]
        order = [UNSEEN, f"under {_BANDS[0]}", *order, f"{_BANDS[-1]:,} and more", MISSING]
    else:
        by, groups, rest = "by value", np.arange(len(counts)), len(counts)
        order = [*counts, UNSEEN, MISSING]
    known = encode_texts(column, [*counts, ""])
    ranked = np.argsort(known)
    known, groups = known[ranked], np.append(groups, len(order) - 1)[ranked]

    def group_of(codes: np.ndarray) -> np.ndarray:
        if column.dtype == "int64":
            codes = np.where(_is_outside(codes, buckets), -1, codes)
        at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        return np.where(known[at] == codes, groups[at], rest)

    return by, group_of, order


def _is_outside(codes: np.ndarray, buckets: int) -> np.ndarray:
    return (codes < 0) | (codes >= buckets)
