"""Metrics of a classifier, from labels and probabilities alone.

Throughout, `labels` is int64 [n] (class indices), `probabilities` is float32 [n, classes], and
the predicted class is the first of the most probable ones. An undefined metric, such as the
recall of a class without an example, is None, never NaN.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn import metrics as sklearn_metrics

from trainer.evaluation.ranking import Ranking

CALIBRATION_BINS = 15
CURVE_POINTS = 200
CURVES_SHOWN = 10
WORST_SHOWN = 4


class RocCurve(NamedTuple):
    """False and true positive rates where scores of at least `thresholds` count as positive."""

    fpr: list[float]
    tpr: list[float]
    thresholds: list[float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """A curve of one class against the rest.

    Attributes:
        name: name of the positive class; "" for the mean over all classes.
        area: area under the whole curve, before thinning.
        x, y: false and true positive rate (ROC), or recall and precision (PR).
    """

    name: str
    area: float
    x: list[float]
    y: list[float]


@dataclasses.dataclass(frozen=True)
class ClassMetrics:
    """Metrics of one class against the rest; None for a class without an example."""

    name: str
    support: int
    predicted: int
    precision: float | None
    recall: float | None
    f1: float | None
    roc_auc: float | None
    pr_auc: float | None


@dataclasses.dataclass(frozen=True)
class Bin:
    """Count and means of the predictions whose confidence lies in (low, high]."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95% interval of a proportion (Wilson 1927, JASA 22:209-212)."""
    low, high = stats.binomtest(successes, trials).proportion_ci(0.95, "wilson")
    return float(low), float(high)


def top_k_of(classes: int) -> int | None:
    """Return 5, or 3 for four or five classes; None for three or fewer."""
    return 5 if classes > 5 else 3 if classes > 3 else None


def top_k_accuracy(labels: np.ndarray, probabilities: np.ndarray, k: int) -> float:
    """Return the share of examples whose class is among the k most probable ones.

    Equal probabilities rank by class index, as argmax does, so that k=1 is accuracy.
    """
    own = probabilities[np.arange(len(labels)), labels][:, None]
    before = np.arange(probabilities.shape[1])[None, :] < labels[:, None]
    rank = (probabilities > own).sum(axis=1) + ((probabilities == own) & before).sum(axis=1)
    return float((rank < k).mean())


def brier_score(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean squared error of the probabilities (Brier 1950), scaled as in scikit-learn.

    0 is perfect; the worst is 1 for two classes, and 2 for more (a sum over classes).
    """
    own = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    squares = np.einsum("nc,nc->n", probabilities, probabilities, dtype=np.float64)
    score = float((squares - 2 * own + 1).mean())
    return score / 2 if probabilities.shape[1] == 2 else score


def calibration(correct: np.ndarray, confidence: np.ndarray) -> tuple[float, list[Bin]]:
    """Return the expected calibration error and its 15 bins of equal width.

    The error is the mean distance of confidence from accuracy over the bins ((m-1)/15, m/15],
    weighted by their counts (Guo et al. 2017, "On Calibration of Modern Neural Networks",
    arXiv:1706.04599, equation 3).

    Args:
        correct: bool [n].
        confidence: float [n], the probability of the predicted class.
    """
    confidence = confidence.astype(np.float64)
    index = np.clip(np.ceil(confidence * CALIBRATION_BINS).astype(int) - 1, 0, CALIBRATION_BINS - 1)
    counts = np.bincount(index, minlength=CALIBRATION_BINS)
    confidences = np.bincount(index, confidence, CALIBRATION_BINS)
    hits = np.bincount(index, correct.astype(np.float64), CALIBRATION_BINS)
    bins = []
    for m, count in enumerate(counts.tolist()):
        means = [float(sums[m] / count) if count else None for sums in (confidences, hits)]
        bins.append(Bin(m / CALIBRATION_BINS, (m + 1) / CALIBRATION_BINS, count, *means))
    return float(np.abs(confidences - hits).sum() / len(index)), bins


def per_class(
    labels: np.ndarray, probabilities: np.ndarray, classes: list[str], rankings: list[Ranking]
) -> list[ClassMetrics]:
    """Return precision, recall, F1 and areas of every class against the rest.

    A class that has examples but is never predicted has precision 0.

    Args:
        rankings: one of each class, from `trainer.evaluation.ranking.rank`.
    """
    predicted = probabilities.argmax(axis=1)
    precision, recall, f1, support = sklearn_metrics.precision_recall_fscore_support(
        labels, predicted, labels=range(len(classes)), zero_division=0
    )
    counts = np.bincount(predicted, minlength=len(classes))
    rows = []
    for index, (name, ranking) in enumerate(zip(classes, rankings, strict=True)):
        rates = [float(one[index]) if support[index] else None for one in (precision, recall, f1)]
        both = 0 < support[index] < len(labels)
        areas = (ranking.roc_auc, ranking.average_precision) if both else (None, None)
        rows.append(ClassMetrics(name, int(support[index]), int(counts[index]), *rates, *areas))
    return rows


def mean(values: list[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there are none."""
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None


def roc_curve(positive: np.ndarray, score: np.ndarray) -> RocCurve:
    """Return at most 200 points of the ROC curve, with both ends and finite thresholds.

    The first threshold is 1, or the next number above a score of 1.
    """
    fpr, tpr, thresholds = sklearn_metrics.roc_curve(positive, score)
    thresholds = thresholds.astype(np.float64)
    thresholds[0] = max(1.0, np.nextafter(thresholds[1], np.inf))
    keep = _thin(fpr, tpr)
    return RocCurve(fpr[keep].tolist(), tpr[keep].tolist(), thresholds[keep].tolist())


def curves(rows: list[ClassMetrics], rankings: list[Ranking]) -> tuple[list[Curve], list[Curve]]:
    """Return the ROC and PR curves to draw, each of at most 200 points.

    Two classes: the curve of the second one. Up to ten: every class that has examples.
    More: the mean over all classes, and the four classes with the smallest area.
    """
    pairs = zip(rows, rankings, strict=True)
    defined = [(row, ranking) for row, ranking in pairs if row.roc_auc is not None]
    if len(rows) == 2:
        defined = defined[-1:]
    roc, pr = [], []
    grid = np.linspace(0, 1, CURVE_POINTS)
    mean_tpr, mean_precision = np.zeros(CURVE_POINTS), np.zeros(CURVE_POINTS)
    for row, ranking in defined:
        fpr, tpr = ranking.roc
        recall, precision = ranking.precision_recall
        mean_tpr += np.interp(grid, fpr, tpr) / len(defined)
        mean_precision += precision[np.searchsorted(recall, grid)] / len(defined)
        roc.append(_curve(row.name, row.roc_auc, fpr, tpr))
        pr.append(_curve(row.name, row.pr_auc, recall, precision))
    if len(rows) <= CURVES_SHOWN or not defined:
        return roc, pr
    return _mean_and_worst(roc, grid, mean_tpr), _mean_and_worst(pr, grid, mean_precision)


def _mean_and_worst(drawn: list[Curve], x: np.ndarray, y: np.ndarray) -> list[Curve]:
    worst = sorted(drawn, key=lambda curve: curve.area)[:WORST_SHOWN]
    return [_curve("", mean([curve.area for curve in drawn]), x, y), *worst]


def _curve(name: str, area: float | None, x: np.ndarray, y: np.ndarray) -> Curve:
    assert area is not None
    keep = _thin(x, y)
    return Curve(name=name, area=area, x=x[keep].tolist(), y=y[keep].tolist())


def _thin(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the indices of at most 200 points, spread evenly along the curve."""
    if len(x) <= CURVE_POINTS:
        return np.arange(len(x))
    length = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y)))])
    keep = np.searchsorted(length, np.linspace(0, length[-1], CURVE_POINTS))
    keep[-1] = len(x) - 1
    return np.unique(keep)
