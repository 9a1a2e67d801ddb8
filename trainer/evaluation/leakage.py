"""Find columns that almost suffice to predict a table's label, such as one filled in later."""

from collections.abc import Callable

import numpy as np
from sklearn.metrics import roc_auc_score

from trainer.data.schema import Feature
from trainer.evaluation.answers import ColumnValues, DiskColumns, spans
from trainer.evaluation.metrics import count_distinct

_BINS = 64
"""Number of quantile bins of a numeric column, with which a relation need not be monotonic."""


def compute_column_aucs(values: ColumnValues, labels: DiskColumns) -> dict[str, float]:
    """Return the ROC AUC of each column alone, by name, for a table with two classes.

    A row's score is the share of the second class among rows with the same value or bin in the
    other half of the split, so a value that occurs once predicts nothing. Empty if all labels are
    equal. The column `label` of `labels` is 0 or 1 for each row.
    """
    cells = np.zeros(4, int)  # rows by half (even, odd) and label
    for start, stop in spans(values.rows):
        cells += np.bincount(_assign_cells(labels, start, stop), minlength=4)
    halves = cells.reshape(2, 2)
    if not halves.sum(axis=0).all():
        return {}
    sizes = halves.sum(axis=1)
    rates = np.where(sizes > 0, halves[:, 1] / np.maximum(sizes, 1), 0.5)
    return {column.name: _compute_auc(column, values, labels, rates) for column in values.columns}


def _assign_cells(labels: DiskColumns, start: int, stop: int) -> np.ndarray:
    """Return 2 * half + label of the rows from `start` to `stop`."""
    return np.arange(start, stop) % 2 * 2 + labels.read("label", start, stop)


def _compute_auc(
    column: Feature, values: ColumnValues, labels: DiskColumns, rates: np.ndarray
) -> float:
    """Return the ROC AUC of a column; `rates` are the shares of the second class in each half."""
    group_of = _make_binning(column, values)
    order = np.empty(values.rows, np.uint64)
    for start, stop in spans(values.rows):
        groups = group_of(values.read(column.name, start, stop)).astype(np.uint64)
        order[start:stop] = groups << 2 | _assign_cells(labels, start, stop).astype(np.uint64)
    order.sort()
    parts = []
    for codes, counts in count_distinct(order, 2):
        groups, at = np.unique(codes >> 2, return_inverse=True)
        cells = np.zeros((len(groups), 2, 2), int)
        cells[at, codes >> 1 & 1, codes & 1] = counts
        for half in (0, 1):
            missed, hit = cells[:, 1 - half].T
            # Smooth by one row of the mean, for values that the other half lacks.
            scores = (hit + rates[1 - half]) / (missed + hit + 1)
            scores, at_score = np.unique(scores, return_inverse=True)
            counts_by_label = (np.bincount(at_score, counts) for counts in cells[:, half].T)
            parts.append(np.stack([scores, *counts_by_label]))
    scores, negative, positive = np.concatenate(parts, axis=1)
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
