"""Metrics of a classifier, from labels and probabilities alone.

Throughout, `labels` is int64 [n] (class indices), `probabilities` is float32 [n, classes], and
the predicted class is the first of the most probable ones. An undefined metric, such as the
recall of a class without an example, is None, never NaN.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn import metrics as sklearn_metrics

CALIBRATION_BINS = 15
CURVE_POINTS = 200
CURVES_SHOWN = 10
WORST_SHOWN = 4


class RocCurve(NamedTuple):
    """False and true positive rates where scores of at least `thresholds` count as positive."""

    fpr: list[float]
    tpr: list[float]
    thresholds: list[float]


class Ranking(NamedTuple):
    """One class against the rest: two curves as arrays (x, y), and the areas under them."""

    roc: tuple[np.ndarray, np.ndarray]
    precision_recall: tuple[np.ndarray, np.ndarray]
    roc_auc: float
    pr_auc: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """A curve of one class against the rest, thinned after its area was computed."""

    name: str  # of the positive class; "" for the mean over all classes
    area: float
    x: list[float]  # false positive rate (ROC), or recall (PR)
    y: list[float]  # true positive rate (ROC), or precision (PR)


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


def top_k_accuracy(labels: np.ndarray, probabilities: np.ndarray, k: int) -> float:
    """Return the share of examples whose class is among the k most probable ones.

    Equal probabilities rank by class index, as argmax does, so that k=1 is accuracy.
    """
    own = probabilities[np.arange(len(labels)), labels][:, None]
    before = np.arange(probabilities.shape[1])[None, :] < labels[:, None]
    rank = (probabilities > own).sum(axis=1) + ((probabilities == own) & before).sum(axis=1)
    return float((rank < k).mean())


def brier_score(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean squared error of probabilities (Brier 1950), scaled as in scikit-learn."""
    own = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    squares = np.einsum("nc,nc->n", probabilities, probabilities, dtype=np.float64)
    score = float((squares - 2 * own + 1).mean())
    return score / 2 if probabilities.shape[1] == 2 else score


def calibration(correct: np.ndarray, confidence: np.ndarray) -> tuple[float, list[Bin]]:
    """Return the expected calibration error of predictions, bool [n] and float [n], and its bins.

    The error is the mean distance of confidence from accuracy over the bins ((m-1)/15, m/15],
    weighted by their counts (Guo et al. 2017, "On Calibration of Modern Neural Networks",
    arXiv:1706.04599, equation 3).
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


def rank(positive: np.ndarray, score: np.ndarray) -> Ranking | None:
    """Rank examples, bool [n], by score, [n]; return None unless both kinds are present."""
    if not 0 < positive.sum() < len(positive):
        return None
    fpr, tpr, _ = sklearn_metrics.roc_curve(positive, score)
    precision, recall, _ = sklearn_metrics.precision_recall_curve(positive, score)
    # Keep the precision at which each recall is first reached, as average precision sums it.
    recall, first = np.unique(recall[::-1], return_index=True)
    precision = precision[::-1][first]
    average = float((np.diff(recall) * precision[1:]).sum())
    return Ranking((fpr, tpr), (recall, precision), sklearn_metrics.auc(fpr, tpr), average)


def per_class(
    labels: np.ndarray,
    probabilities: np.ndarray,
    classes: list[str],
    rankings: Sequence[Ranking | None],
) -> list[ClassMetrics]:
    """Return precision, recall, F1 and the areas of `rankings` of every class against the rest.

    A class that has examples but is never predicted has precision 0.
    """
    predicted = probabilities.argmax(axis=1)
    precision, recall, f1, support = sklearn_metrics.precision_recall_fscore_support(
        labels, predicted, labels=range(len(classes)), zero_division=0
    )
    counts = np.bincount(predicted, minlength=len(classes))
    rows = []
    for index, (name, ranking) in enumerate(zip(classes, rankings, strict=True)):
        rates = [float(one[index]) if support[index] else None for one in (precision, recall, f1)]
        areas = (ranking.roc_auc, ranking.pr_auc) if ranking else (None, None)
        rows.append(ClassMetrics(name, int(support[index]), int(counts[index]), *rates, *areas))
    return rows


def mean(values: list[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there are none."""
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None


def roc_curve(positive: np.ndarray, score: np.ndarray) -> RocCurve:
    """Return at most 200 points of the ROC curve, with both ends and finite thresholds."""
    fpr, tpr, thresholds = sklearn_metrics.roc_curve(positive, score)
    thresholds = thresholds.astype(np.float64)
    thresholds[0] = max(1.0, np.nextafter(thresholds[1], np.inf))
    keep = _thin(fpr, tpr)
    return RocCurve(fpr[keep].tolist(), tpr[keep].tolist(), thresholds[keep].tolist())


def curves(
    classes: Sequence[str], rankings: Sequence[Ranking | None]
) -> tuple[list[Curve], list[Curve]]:
    """Return the ROC and PR curves to draw, each of at most 200 points.

    Two classes: the curve of the second one. Up to ten: every class that has examples.
    More: the mean over all classes, and the four classes with the smallest area.
    """
    defined = [(name, one) for name, one in zip(classes, rankings, strict=True) if one]
    if len(classes) == 2:
        defined = defined[-1:]
    roc = [_curve(name, one.roc_auc, *one.roc) for name, one in defined]
    pr = [_curve(name, one.pr_auc, *one.precision_recall) for name, one in defined]
    if len(classes) <= CURVES_SHOWN or not defined:
        return roc, pr
    grid = np.linspace(0, 1, CURVE_POINTS)
    tpr = [np.interp(grid, *one.roc) for _, one in defined]
    precision = [y[np.searchsorted(x, grid)] for _, (_, (x, y), *_) in defined]
    return _mean_and_worst(roc, grid, tpr), _mean_and_worst(pr, grid, precision)


def _mean_and_worst(drawn: list[Curve], x: np.ndarray, y: list[np.ndarray]) -> list[Curve]:
    worst = sorted(drawn, key=lambda curve: curve.area)[:WORST_SHOWN]
    area = float(np.mean([curve.area for curve in drawn]))
    return [_curve("", area, x, np.mean(y, axis=0)), *worst]


def _curve(name: str, area: float, x: np.ndarray, y: np.ndarray) -> Curve:
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
