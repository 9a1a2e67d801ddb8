"""Metrics of answers that are sets of labels.

Throughout, `labels` and `given`, bool [n, classes], are the labels that an example has and those of
the answer. Functions of examples are called with a block of them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from trainer.metrics.class_sums import ProbabilitySums
from trainer.metrics.classifier import THRESHOLDS, sum_above_thresholds
from trainer.metrics.intervals import GroupSums, Share, estimate
from trainer.metrics.metric import Estimate

RARE = 20
"""Examples of the validation split below which a label has the threshold of all rare labels."""
_BINS = 2400
_LIMIT = 12.0
"""Outputs are counted between -12 and 12, in bins of 0.01: probabilities of 6e-6 to 1 - 6e-6."""


def example_f1(labels: np.ndarray, given: np.ndarray, unknown: np.ndarray | int = 0) -> np.ndarray:
    """Return the F1 of each example's labels, float64 [n]; 1 where there are none in both.

    Args:
        unknown: number of further labels of each answer, all wrong, int [n].
    """
    hits = (labels & given).sum(axis=1)
    sizes = labels.sum(axis=1) + given.sum(axis=1) + unknown
    return np.where(sizes > 0, 2 * hits / np.maximum(sizes, 1), 1.0)


def label_losses(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the negative log-likelihood of each example's labels, float64 [n], in nats."""
    least = float(np.finfo(np.float32).eps)
    wide = np.clip(probabilities.astype(np.float64), least, 1 - least)
    losses: np.ndarray = -np.log(np.where(labels, wide, 1 - wide)).sum(axis=1)
    return losses


class OutputCounts:
    """Counts of a model's outputs, of examples with and without each label, added in blocks.

    An example counts as its weight.
    """

    def __init__(self, classes: int) -> None:
        self._counts = np.zeros((2, classes, _BINS))

    def add(self, labels: np.ndarray, outputs: np.ndarray, weights: np.ndarray) -> None:
        """Add labels and outputs, float [m, classes], and weights, float64 [m]."""
        bins = ((np.clip(outputs, -_LIMIT, _LIMIT) + _LIMIT) * (_BINS / (2 * _LIMIT))).astype(int)
        places = np.arange(labels.shape[1])[None, :]
        at = (labels.astype(int), places, np.minimum(bins, _BINS - 1))
        np.add.at(self._counts, at, weights[:, None])

    def choose_thresholds(self) -> np.ndarray:
        """Return the output from which each label is given, float32 [classes].

        Together they have the highest micro F1. (A threshold with the highest F1 of its own label
        gives a label that can't be predicted to almost all examples.) Labels of fewer than `RARE`
        examples share one, because a choice of their own would be chance.
        """
        rare = self._counts[1].sum(axis=1) < RARE
        shared = self._counts[:, rare].sum(axis=1, keepdims=True)
        counts = np.concatenate([self._counts[:, ~rare], shared], axis=1)
        best = _find_best(counts)
        thresholds = np.full(len(rare), best[-1], np.float32)
        thresholds[~rare] = best[:-1]
        return thresholds


def _find_best(counts: np.ndarray) -> np.ndarray:
    """Return the thresholds with the highest micro F1, from counts [2, k, _BINS]; 0 without any."""
    positives = counts[1].sum()
    if not positives:
        return np.zeros(counts.shape[1])
    above = np.pad(counts[:, :, ::-1].cumsum(axis=2)[:, :, ::-1], ((0, 0), (0, 0), (0, 1)))
    hits, given = above[1], above.sum(axis=0)
    rows, best, f1 = np.arange(len(hits)), np.zeros(len(hits), int), -1.0
    # F1 is a ratio of sums, for which each label alone has the highest 2 hits - F1 x given
    # (Dinkelbach 1967, Management Science 13:492-498).
    while (reached := 2 * hits[rows, best].sum() / (given[rows, best].sum() + positives)) > f1:
        f1 = reached
        gains = 2 * hits - f1 * given
        best = gains.argmax(axis=1)
    # The middle of the thresholds that are equally good, because no output is between them.
    places = np.arange(_BINS + 1)
    is_worse = (gains < gains[rows, best][:, None]) & (places > best[:, None])
    last = np.where(is_worse, places - 1, _BINS).min(axis=1)
    middle: np.ndarray = (best + last) / 2 * (2 * _LIMIT / _BINS) - _LIMIT
    return middle


class LabelGroups(NamedTuple):
    """Sums over groups of 1, F1, and numbers of right, true and given labels, times the weight."""

    n: np.ndarray
    f1: np.ndarray
    hits: np.ndarray
    labels: np.ndarray
    given: np.ndarray

    def divide(self, part: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Return a share; without any label on either side 0, as scikit-learn's."""
        shares: np.ndarray = part / np.where(total > 0, total, 1)
        return shares


class LabelSums(ProbabilitySums):
    """Counts over the answers to a split, a LabelAnswers, and sums of their weights."""

    def __init__(self, answers: Any) -> None:
        super().__init__(answers)
        self._groups = GroupSums(self.examples, len(LabelGroups._fields))
        classes = len(self.classes)
        self.together = np.zeros((classes, classes), np.int64)  # examples that have both labels
        self.given_together = np.zeros((classes, classes), np.int64)  # in answers
        self.counts = np.zeros((3, classes), np.int64)
        self.weights = np.zeros((3, classes))
        self.exact = 0  # examples with exactly the right labels
        self.exact_share = Share()
        for labels, given, probabilities, weights in answers.blocks():
            self._add(labels, given, weights)
            self.losses += float(weights @ label_losses(labels, probabilities))

    def _add(self, labels: np.ndarray, given: np.ndarray, weights: np.ndarray) -> None:
        hits, sizes = (labels & given).sum(axis=1), labels.sum(axis=1)
        columns = 1, example_f1(labels, given), hits, sizes, given.sum(axis=1)
        self._groups.add([weights * column for column in columns])
        # As float32, whose products are exact up to 16 million examples a block, and fast.
        for pairs, chosen in ((self.together, labels), (self.given_together, given)):
            own = chosen.astype(np.float32)
            pairs += (own.T @ own).astype(np.int64)
        by_kind = labels, given, labels & given
        self.counts += [kind.sum(axis=0) for kind in by_kind]
        self.weights += [weights @ kind for kind in by_kind]
        is_exact = (labels == given).all(axis=1)
        self.exact += int(is_exact.sum())
        self.exact_share.add(is_exact, weights)

    @property
    def mean_sizes(self) -> tuple[float, float]:
        """Return the mean number of labels of an example, and of an answer."""
        n, _, _, sizes, given = self._groups.groups.sum(axis=0)
        return float(sizes / n), float(given / n)

    def estimate(self, metrics: Mapping[str, Callable[[LabelGroups], Any]]) -> dict[str, Estimate]:
        return estimate(self._groups.groups, LabelGroups, metrics)


class ConstantSums:
    """The F1 of constant answers: the first m of the commonest labels, for every m."""

    def __init__(self, examples: int, order: np.ndarray) -> None:
        self._order = order  # classes, the commonest first
        self._gains = GroupSums(examples, len(order) + 1)
        self._sums = np.zeros(len(order) + 1)
        self._examples = examples

    def add(self, labels: np.ndarray, given: np.ndarray, weights: np.ndarray) -> None:
        ranked = labels[:, self._order]
        hits = np.pad(ranked.cumsum(axis=1), ((0, 0), (1, 0)))
        sizes = ranked.sum(axis=1)[:, None] + np.arange(len(self._order) + 1)
        constant = np.where(sizes > 0, 2 * hits / np.maximum(sizes, 1), 1.0)
        self._sums += weights @ constant
        self._gains.add(list(weights * (example_f1(labels, given)[:, None] - constant).T))

    def best(self) -> tuple[np.ndarray, float, np.ndarray]:
        """Return the best answer's classes, its mean F1, and the model's gains by group."""
        m = int(self._sums.argmax())
        return self._order[:m], float(self._sums[m]) / self._examples, self._gains.groups[:, m]


def operating_points(
    blocks: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> list[dict[str, float]]:
    """Return micro-averaged precision and recall if labels of at least a probability are given.

    The probabilities are THRESHOLDS; precision is 1 if nothing is given.

    Args:
        blocks: labels, probabilities, float32 [m, classes], and weights, float64 [m].
    """
    counts, positives, pairs = np.zeros((2, len(THRESHOLDS))), 0.0, 0.0
    for labels, probabilities, weights in blocks:
        of_pairs = np.broadcast_to(weights[:, None], labels.shape)
        positives, pairs = positives + float(of_pairs[labels].sum()), pairs + float(of_pairs.sum())
        counts += [
            sum_above_thresholds(probabilities, of_pairs),
            sum_above_thresholds(probabilities[labels], of_pairs[labels]),
        ]
    return [
        {
            "confidenceThreshold": threshold,
            "precision": hits / given if given else 1.0,
            "recall": hits / max(1, positives),
            "f1Score": 2 * hits / max(1, given + positives),
            "falsePositiveRate": (given - hits) / max(1, pairs - positives),
        }
        for threshold, (given, hits) in zip(THRESHOLDS, counts.T.tolist(), strict=True)
    ]
