"""Columns that tell a table's label almost alone, as one that is filled in after the fact does."""

from collections.abc import Mapping

import numpy as np

from trainer.evaluation.ranking import roc_auc
from trainer.evaluation.slices import Values

_BINS = 64
"""Quantile bins of a column of numbers, so that a peak in the middle counts, too."""


def single_columns(columns: Mapping[str, Values], labels: np.ndarray) -> dict[str, float]:
    """Return the ROC AUC of each column of a table of two classes alone, by name.

    A column's score is the share of the second class among rows of the same value or bin, in the
    other half of the split: a value seen once tells nothing.

    Args:
        columns: of a split, as `trainer.evaluation.slices.read_columns` returns them.
        labels: int64 [n], in the order of the split's records; empty where all are equal.
    """
    positive = labels == 1
    if not 0 < positive.sum() < len(labels):
        return {}
    halves = np.arange(len(labels)) % 2
    areas = {}
    for name, values in columns.items():
        groups = _groups(values)
        score = np.empty(len(labels), np.float64)
        size = int(groups.max()) + 1
        for half in (0, 1):
            known, judged = halves != half, halves == half
            counts = np.bincount(groups[known], minlength=size)
            hits = np.bincount(groups[known], positive[known], size)
            rate = positive[known].mean() if known.any() else 0.5
            # One more row with the mean's share, for values that the other half lacks.
            score[judged] = ((hits + rate) / (counts + 1))[groups[judged]]
        areas[name] = roc_auc(positive, score)
    return areas


def _groups(values: Values) -> np.ndarray:
    """Return each row's group, int [n]: its value, or the bin of its number."""
    if values.distinct.dtype.kind != "f":
        return values.places
    numbers = values.distinct[values.places]
    if np.isnan(numbers).all():
        return np.zeros(len(numbers), int)
    bounds = np.unique(np.nanquantile(numbers, np.linspace(0, 1, _BINS)[1:]))
    return np.where(np.isnan(numbers), len(bounds) + 1, np.searchsorted(bounds, numbers))
