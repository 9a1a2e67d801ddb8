"""Test whether a model is better than a constant answer, beyond chance.

    baseline = compare_with_constants([[500, 31], [400, 69]], log_loss=0.68, classes=["no", "yes"])
    baseline.p_value <= 0.05   # better by more than noise

A constant answer predicts the same class, with the same probabilities, for every example. A model
that has learned nothing is not better than the best of them, in neither metric:

- accuracy: exact one-sided McNemar test against always predicting a class. The model must be
  better than each class, so the largest p-value counts.
- log loss: likelihood ratio of the model and the constant probabilities that fit these examples
  best, the frequencies of their classes. If no label depends on its example, the ratio reaches
  1/p with a probability of at most p (Wasserman, Ramdas and Balakrishnan 2020, "Universal
  inference", PNAS 117:16880-16890). A model of rare classes is seldom better in accuracy.

A model has two chances, so both p-values are doubled (Bonferroni).
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from trainer.metrics.comparison import mcnemar


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baseline:
    """The best constant answers to a split, and how likely chance makes a model that good."""

    commonest: str  # the most common class
    accuracy: float  # of always predicting it
    log_loss: float  # of predicting the frequencies of the classes, in nats
    # Probabilities of at least the model's advantage if it has learned nothing, doubled.
    accuracy_p_value: float
    log_loss_p_value: float

    @property
    def p_value(self) -> float:
        return min(self.accuracy_p_value, self.log_loss_p_value)


def compare_with_constants(
    confusion_matrix: Sequence[Sequence[int]], *, log_loss: float, classes: Sequence[str]
) -> Baseline:
    """Compare a model with constant answers; rows of the matrix are true classes."""
    matrix = np.array(confusion_matrix)
    counts, right = matrix.sum(axis=1), matrix.diagonal()
    n, commonest = int(counts.sum()), int(counts.argmax())
    # Examples that only the model, and that only the constant answer of a class, predicts right.
    only = zip((right.sum() - right).tolist(), (counts - right).tolist(), strict=True)
    of_accuracy = max(mcnemar(*pair) for pair in only)
    frequencies = counts[counts > 0] / n
    entropy = -float((frequencies * np.log(frequencies)).sum())
    of_log_loss = math.exp(min(0.0, n * (log_loss - entropy)))
    return Baseline(
        commonest=classes[commonest],
        accuracy=int(counts[commonest]) / n,
        log_loss=entropy,
        accuracy_p_value=min(1.0, 2 * of_accuracy),
        log_loss_p_value=min(1.0, 2 * of_log_loss),
    )
