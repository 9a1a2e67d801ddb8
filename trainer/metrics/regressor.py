"""Metrics of answers that are numbers, with intervals."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from trainer.metrics.intervals import GroupSums, Share, estimate, estimate_root
from trainer.metrics.metric import Estimate
from trainer.metrics.slices import Figures, average_groups

_ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """The examples whose labels are in a range, such as a decile."""

    low: float  # of the labels
    high: float
    examples: int
    mean: float  # of the labels
    predicted: float  # mean answer
    mae: float
    coverage: float | None  # share of labels within their interval


class NumberGroups(NamedTuple):
    """Sums over groups of 1, |error|, error², label and label², times the example's weight.

    Labels are less the first one.
    """

    n: np.ndarray
    absolute: np.ndarray
    squares: np.ndarray
    labels: np.ndarray
    label_squares: np.ndarray

    @property
    def label_spread(self) -> np.ndarray:
        """Return the squared deviations of labels from their mean; infinity if all are equal."""
        spread = self.label_squares - self.labels**2 / self.n
        return np.where(spread > 0, spread, np.inf)


class NumberSums(GroupSums):
    """Sums over the `answers` to a split, a NumberAnswers, and over groups of them."""

    def __init__(self, answers: Any) -> None:
        super().__init__(answers.rows, len(NumberGroups._fields))
        self.answers, self.examples = answers, answers.rows
        self._cross = np.zeros(2)  # errors; errors times labels
        self._origin = self._width = 0.0
        self._covered = Share()
        for labels, predicted, low, high, weights in answers.blocks():
            self._add_errors(labels, predicted, weights)
            self._covered.add((low <= labels) & (labels <= high), weights)
            self._width += float(weights @ (high - low))

    def _add_errors(self, labels: np.ndarray, answers: np.ndarray, weights: np.ndarray) -> None:
        labels = labels.astype(np.float64)
        errors = answers - labels
        if not self._added:
            self._origin = float(labels[0])
        labels -= self._origin
        self.add([weights * values for values in (1, np.abs(errors), errors**2, labels, labels**2)])
        self._cross += weights @ errors, weights @ (errors * labels)

    @property
    def label_mean(self) -> float:
        n, _, _, labels, _ = self.groups.sum(axis=0)
        return float(self._origin + labels / n)

    @property
    def label_variance(self) -> float:
        n, _, _, labels, squares = self.groups.sum(axis=0)
        return float(squares / n - (labels / n) ** 2)

    @property
    def correlation(self) -> float | None:
        """Return Pearson's correlation of labels and answers; None if the answers are constant."""
        n, _, squares, _, _ = self.groups.sum(axis=0)
        error, product = self._cross / n
        covariance = product - error * (self.label_mean - self._origin)  # of errors and labels
        own = self.label_variance
        variance = own + (squares / n - error**2) + 2 * covariance  # of the answers
        return float((own + covariance) / np.sqrt(own * variance)) if variance > 0 else None

    def gains_over_mean(self) -> np.ndarray:
        """Return by how much the squared error of a group is below that of the labels' mean."""
        n, _, squares, labels, label_squares = self.groups.T
        mean = self.label_mean - self._origin
        gains: np.ndarray = label_squares - 2 * mean * labels + n * mean**2 - squares
        return gains

    @property
    def coverage(self) -> Estimate | None:
        """Return the share of labels within their interval; None if answers have none."""
        return None if math.isnan(self._width) else self._covered.estimate

    @property
    def interval_width(self) -> float | None:
        return None if math.isnan(self._width) else self._width / self.examples

    def estimate(self, metrics: Mapping[str, Callable[[NumberGroups], Any]]) -> dict[str, Estimate]:
        return estimate(self.groups, NumberGroups, metrics)

    def estimate_rmse(self) -> Estimate:
        return estimate_root(self.groups[:, [0, 2]])


def conformal_quantile(errors: np.ndarray, weights: np.ndarray, confidence: float) -> float:
    """Return the half width of an interval that contains a new label with `confidence`.

    Split conformal prediction (Lei et al. 2018, JASA 113:1094-1111): of n errors on examples that
    the model was not trained on, the ceil((n + 1) * confidence)-th smallest. An error counts as its
    weight, whose mean is 1 (Tibshirani et al. 2019, NeurIPS 32:2530-2540).
    """
    order = errors.argsort()
    reached = np.searchsorted(weights[order].cumsum(), (weights.sum() + 1) * confidence - _ROUNDING)
    return float(errors[order[min(int(reached), len(errors) - 1)]])


def split_by_quantiles(labels: np.ndarray, blocks: Iterable[Figures], parts: int) -> list[Part]:
    """Return `parts` ranges with about equal numbers of labels, fewer if many are equal.

    Args:
        labels: all labels, float32 [n], in any order; sorted in place.
        blocks: figures of the examples: the label as `mean`, `mae`, `bias`, and `coverage`, NaN if
            there is no interval.
    """
    labels.sort()
    edges = np.unique(labels[np.arange(1, parts) * len(labels) // parts])
    edges = edges[edges > labels[0]]
    grouped = (
        (np.searchsorted(edges, figures["mean"], side="right"), (figures, weights))
        for figures, weights in blocks
    )
    sizes, means = average_groups(grouped, len(edges) + 1)
    ends = [float(labels[0]), *edges.tolist(), float(labels[-1])]
    figures = (means[name].tolist() for name in ("mean", "mae", "bias", "coverage"))
    return [
        Part(
            low=low,
            high=high,
            examples=size,
            mean=mean,
            predicted=mean + bias,
            mae=mae,
            coverage=None if math.isnan(coverage) else coverage,
        )
        for low, high, size, mean, mae, bias, coverage in zip(
            ends[:-1], ends[1:], sizes.tolist(), *figures, strict=True
        )
        if not math.isnan(mean)
    ]
