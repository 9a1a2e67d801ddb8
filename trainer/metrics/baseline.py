"""Test whether a model is better than a constant answer, beyond chance.

    sums = [[[500, 31], [400, 69]]] * 2
    baseline = compare_with_constants(sums, log_loss=0.68, classes=["no", "yes"])
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
import numpy.typing as npt

from trainer.metrics.comparison import count_discordant, mcnemar


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
    weights: npt.ArrayLike, *, log_loss: float, classes: Sequence[str], largest: float = 1.0
) -> Baseline:
    """Compare a model with constant answers.

    Args:
        weights: sums of the examples' weights and of their squares, [2, classes, classes], by true
            and predicted class. Without weights, both are the confusion matrix.
        largest: largest weight. With exponents of at most 1, the likelihood ratio remains valid.
    """
    sums = np.asarray(weights, np.float64)
    counts, right = sums.sum(axis=2), sums.diagonal(axis1=1, axis2=2)
    n, commonest = float(counts[0].sum()), int(counts[0].argmax())
    # Examples that only the model, and that only the constant answer of a class, predicts right.
    only = zip((right.sum(axis=1, keepdims=True) - right).T, (counts - right).T, strict=True)
    of_accuracy = max(mcnemar(*count_discordant(*pair)) for pair in only)
    frequencies = counts[0][counts[0] > 0] / n
    entropy = -float((frequencies * np.log(frequencies)).sum())
    of_log_loss = math.exp(min(0.0, n * (log_loss - entropy) / largest))
    return Baseline(
        commonest=classes[commonest],
        accuracy=float(counts[0, commonest]) / n,
        log_loss=entropy,
        accuracy_p_value=min(1.0, 2 * of_accuracy),
        log_loss_p_value=min(1.0, 2 * of_log_loss),
    )
