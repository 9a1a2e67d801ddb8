"""Precision and recall of a classifier at each confidence threshold."""

from typing import NamedTuple

import numpy as np

THRESHOLDS = tuple([n / 20 for n in range(20)] + [0.96, 0.97, 0.98, 0.99])
"""0, 0.05, ... 0.95, 0.96, ... 0.99: those of Vertex AI's own evaluations."""


class OperatingPoint(NamedTuple):
    """Figures where a class counts as predicted from a probability of `threshold` on.

    Micro-averages over all pairs of an example and a class. Those ending in _at_1 count only
    the most probable class of an example. A precision is 1 where nothing is predicted.
    """

    threshold: float
    precision: float
    recall: float
    f1: float
    false_positive_rate: float
    precision_at_1: float
    recall_at_1: float
    f1_at_1: float


def operating_points(labels: np.ndarray, probabilities: np.ndarray) -> list[OperatingPoint]:
    """Return the points at THRESHOLDS, of labels int64 [n] and probabilities [n, classes]."""
    n, classes = probabilities.shape
    own = probabilities[np.arange(n), labels]
    best = probabilities.max(axis=1)
    right = best[probabilities.argmax(axis=1) == labels]
    points = []
    for threshold in THRESHOLDS:
        predicted, hits = int((probabilities >= threshold).sum()), int((own >= threshold).sum())
        first, first_hits = int((best >= threshold).sum()), int((right >= threshold).sum())
        precision, recall = _share(hits, predicted), hits / n
        at_1, recall_at_1 = _share(first_hits, first), first_hits / n
        points.append(
            OperatingPoint(
                threshold,
                precision,
                recall,
                _f1(precision, recall),
                (predicted - hits) / (n * (classes - 1)) if classes > 1 else 0.0,
                at_1,
                recall_at_1,
                _f1(at_1, recall_at_1),
            )
        )
    return points


def _share(hits: int, of: int) -> float:
    return hits / of if of else 1.0


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
