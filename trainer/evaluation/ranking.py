"""Ranking of each class against the rest by score, with ROC and precision-recall curves and areas.

It takes one sort per class, where scikit-learn's roc_auc_score, average_precision_score,
roc_curve and precision_recall_curve sort once each.
"""

import dataclasses

import numpy as np

_BLOCK = 1 << 24  # scores sorted at once: 64 MB


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Counts of one class's examples and of the others by score.

    Each array has one element per distinct score of the class's own examples, highest first.

    Attributes:
        positives, negatives: examples of the class, and others, with at least this score.
        ties: examples of other classes with exactly this score.
        total_positives, total_negatives: all examples of the class, and all others.
    """

    positives: np.ndarray
    negatives: np.ndarray
    ties: np.ndarray
    total_positives: int
    total_negatives: int

    @property
    def roc_auc(self) -> float:
        """Return the area under the ROC curve; ties count half."""
        gained = np.diff(self.positives, prepend=0)
        below = self.total_negatives - self.negatives + self.ties / 2
        return float((gained * below).sum() / (self.total_positives * self.total_negatives))

    @property
    def average_precision(self) -> float:
        """Return the sum of the precision at each score times the gain in recall."""
        recall, precision = self.precision_recall
        return float((np.diff(recall, prepend=0.0) * precision).sum())

    @property
    def precision_recall(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each recall and the precision at which it is first reached, starting at (0, 1)."""
        precision = self.positives / (self.positives + self.negatives)
        recall = self.positives / self.total_positives
        return np.concatenate([[0.0], recall]), np.concatenate([[1.0], precision])

    @property
    def roc(self) -> tuple[np.ndarray, np.ndarray]:
        """Return false and true positive rates at the curve's corners, from (0, 0) to (1, 1)."""
        before = np.concatenate([[0], self.positives[:-1]])
        x = np.stack([self.negatives - self.ties, self.negatives], axis=1).ravel()
        y = np.stack([before, self.positives], axis=1).ravel()
        fpr = np.concatenate([[0], x, [self.total_negatives]]) / self.total_negatives
        tpr = np.concatenate([[0], y, [self.total_positives]]) / self.total_positives
        distinct = np.append(True, (np.diff(fpr) != 0) | (np.diff(tpr) != 0))
        fpr, tpr = fpr[distinct], tpr[distinct]
        across, up = np.diff(fpr), np.diff(tpr)
        corner = np.ones(len(fpr), bool)
        corner[1:-1] = across[:-1] * up[1:] != across[1:] * up[:-1]
        return fpr[corner], tpr[corner]


def rank(labels: np.ndarray, probabilities: np.ndarray) -> list[Ranking]:
    """Return the ranking of every class; sorts a block of classes at a time to bound memory."""
    found = []
    classes = probabilities.shape[1]
    width = max(1, _BLOCK // max(1, len(labels)))
    order = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[order], np.arange(classes + 1))
    for first in range(0, classes, width):
        block = np.sort(probabilities[:, first : first + width].T, axis=1)
        for index, column in enumerate(block, start=first):
            own = probabilities[order[bounds[index] : bounds[index + 1]], index]
            found.append(_rank_one(own, column))
    return found


def roc_auc(positive: np.ndarray, score: np.ndarray) -> float:
    """Return the ROC AUC; `positive` is bool [n], `score` is [n]; ties count half."""
    return _rank_one(score[positive], np.sort(score)).roc_auc


def _rank_one(own: np.ndarray, column: np.ndarray) -> Ranking:
    """Rank the scores of a class's own examples in `column`, the sorted scores of all."""
    scores, times = np.unique(own, return_counts=True)
    scores, positives = scores[::-1], np.cumsum(times[::-1])
    below = np.searchsorted(column, scores, side="left")
    reached = np.searchsorted(column, scores, side="right")
    return Ranking(
        positives=positives,
        negatives=len(column) - below - positives,
        ties=reached - below - times[::-1],
        total_positives=len(own),
        total_negatives=len(column) - len(own),
    )
