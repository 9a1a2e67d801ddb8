"""Find columns that almost suffice to predict a table's label, such as one filled in later."""

from collections.abc import Callable
from typing import Any

import numpy as np

from trainer.data.schema import Feature
from trainer.metrics.classifier import count_distinct
from trainer.metrics.disk_columns import ColumnValues, DiskColumns, spans

RANKED = 10
"""Number of classes, the most common ones, that a column is ranked for."""
_BINS = 64
"""Number of quantile bins of a numeric column, with which a relation need not be monotonic."""
_BITS = 5
"""Bits of a cell: one of RANKED classes or the rest, and a half of the split."""


def compute_column_aucs(
    values: ColumnValues, labels: DiskColumns, classes: int
) -> dict[str, float]:
    """Return the ROC AUC of each column alone, by name; texts have none.

    It is the area of the second of two classes; with more classes, the mean over the RANKED most
    common classes, each against the rest, weighted by their rows. A row's score for a class is the
    share of the class among rows with the same value or bin in the other half of the split, so a
    value that occurs once predicts nothing. Empty if all labels are equal. The column `label` of
    `labels` is an index into the classes for each row.
    """
    counts = np.zeros((2, classes), int)
    for start, stop in spans(values.rows):
        cells = np.arange(start, stop) % 2 * classes + labels.read("label", start, stop)
        counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
    support = counts.sum(axis=0)
    if support.max(initial=0) == values.rows:
        return {}
    ranked = np.argsort(-support, kind="stable")[: np.count_nonzero(support)][:RANKED]
    if classes == 2:
        ranked = np.array([1])
    codes = np.full(classes, len(ranked))
    codes[ranked] = np.arange(len(ranked))
    sizes = counts.sum(axis=1, keepdims=True)
    rates = np.where(sizes > 0, counts / np.maximum(sizes, 1), 1 / classes)[:, ranked]
    # A text's words may predict the label, but few texts are equal.
    return {
        column.name: _compute_auc(column, values, labels, codes, rates)
        for column in values.columns
        if column.kind != "text"
    }


def _compute_auc(
    column: Feature, values: ColumnValues, labels: DiskColumns, codes: np.ndarray, rates: np.ndarray
) -> float:
    """Return the weighted mean of a column's ROC AUC for each ranked class.

    Args:
        codes: each class' index among the ranked classes, or their number for the rest, [classes].
        rates: shares of the ranked classes in each half, [2, ranked].
    """
    group_of = _make_binning(column, values)
    order = np.empty(values.rows, np.uint64)
    for start, stop in spans(values.rows):
        groups = group_of(values.read(column.name, start, stop)).astype(np.uint64)
        cells = 2 * codes[labels.read("label", start, stop)] + np.arange(start, stop) % 2
        order[start:stop] = groups << _BITS | cells.astype(np.uint64)
    order.sort()
    ranked = rates.shape[1]
    parts: list[list[Any]] = [[] for _ in range(ranked)]
    for keys, counts in count_distinct(order, _BITS):
        groups, at = np.unique(keys >> _BITS, return_inverse=True)
        cells = np.zeros((len(groups), ranked + 1, 2), int)
        cells[at, keys >> 1 & (1 << _BITS - 1) - 1, keys & 1] = counts
        totals = cells.sum(axis=1)
        for half in (0, 1):
            for number, rate in enumerate(rates[1 - half]):
                # Smooth by one row of the mean, for values that the other half lacks.
                scores = (cells[:, number, 1 - half] + rate) / (totals[:, 1 - half] + 1)
                scores, at_score = np.unique(scores, return_inverse=True)
                hits = np.bincount(at_score, cells[:, number, half])
                parts[number].append([scores, np.bincount(at_score, totals[:, half]) - hits, hits])
    rankings = [np.concatenate(blocks, axis=1) for blocks in parts]
    areas = [_integrate(*ranking) for ranking in rankings]
    return float(np.average(areas, weights=[hits.sum() for _, _, hits in rankings]))


def _integrate(scores: np.ndarray, negative: np.ndarray, positive: np.ndarray) -> float:
    """Return the ROC AUC of scores, from the number of negative and positive rows with each."""
    from sklearn.metrics import roc_auc_score  # takes a second, which training must not wait for

    kinds = np.repeat([0, 1], len(scores))
    weights = np.append(negative, positive)
    return float(roc_auc_score(kinds, np.tile(scores, 2), sample_weight=weights))


def _make_binning(column: Feature, values: ColumnValues) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that maps a column's values to groups: the values, or bins of numbers."""
    if column.dtype != "float32":
        return lambda codes: codes
    numbers = np.empty(values.rows)
    for start, stop in spans(values.rows):
        numbers[start:stop] = values.read(column.name, start, stop)
    if np.isnan(numbers).all():
        return np.isnan
    shares = np.linspace(0, 1, _BINS)[1:]
    bounds = np.unique(np.nanquantile(numbers, shares, overwrite_input=True))
    missing = len(bounds) + 1
    return lambda numbers: np.where(np.isnan(numbers), missing, np.searchsorted(bounds, numbers))
