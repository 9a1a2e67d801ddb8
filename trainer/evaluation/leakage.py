"""Find columns that predict a table's label almost alone, such as one filled in afterwards."""

from collections.abc import Mapping

import numpy as np
from sklearn.metrics import roc_auc_score

from trainer.evaluation.slices import Values

_BINS = 64
"""Quantile bins of a numeric column, so that a relation need not be monotonic."""


def single_columns(columns: Mapping[str, Values], labels: np.ndarray) -> dict[str, float]:
    """Return the ROC AUC of each single column of a two-class table, by column name.

    A row's score is the share of the second class among rows of the same value or bin in the
    other half of the split, so a value seen once predicts nothing. Empty if all labels are equal.
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
            # Smooth by one row of the mean, for values that the other half lacks.
            score[judged] = ((hits + rate) / (counts + 1))[groups[judged]]
        areas[name] = float(roc_auc_score(positive, score))
    return areas


def _groups(values: Values) -> np.ndarray:
    """Return each row's group, int [n]: the place of its value, or the bin of its number."""
    if values.distinct.dtype.kind != "f":
        return values.places
    numbers = values.distinct[values.places]
    if np.isnan(numbers).all():
        return np.zeros(len(numbers), int)
    bounds = np.unique(np.nanquantile(numbers, np.linspace(0, 1, _BINS)[1:]))
    return np.where(np.isnan(numbers), len(bounds) + 1, np.searchsorted(bounds, numbers))
