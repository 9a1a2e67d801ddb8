"""Sums over a split's answers with a probability for each class, for the metrics of a task."""

import functools
from typing import Any

import numpy as np

from trainer.metrics import classifier
from trainer.metrics.classifier import ClassMetrics, Curve, Ranking
from trainer.metrics.comparison import log_losses
from trainer.metrics.intervals import Share


class ProbabilitySums:
    """The ranking of a split's `answers`, a ProbabilityAnswers, by each class.

    Subclasses have the arguments of compute_class_metrics, `counts` and `weights`, [3, classes]:
    the examples of each class, those predicted as it, and those of them that are right; once as
    numbers, once as sums of weights.
    """

    counts: np.ndarray
    weights: np.ndarray

    def __init__(self, answers: Any) -> None:
        self.answers, self.examples = answers, answers.rows
        self.classes: list[str] = answers.classes
        self.losses = 0.0  # negative log-likelihoods, in nats

    @functools.cached_property
    def rankings(self) -> list[Ranking | None]:
        return [self.answers.rank(number) for number in range(len(self.classes))]

    @functools.cached_property
    def per_class(self) -> list[ClassMetrics]:
        return classifier.compute_class_metrics(
            self.classes, self.rankings, counts=self.counts, weights=self.weights
        )

    def average(self, name: str, start: int = 0) -> float | None:
        """Return the mean of a metric of the classes from `start` on."""
        return classifier.mean([getattr(row, name) for row in self.per_class[start:]])

    def curves(self, start: int = 0) -> tuple[list[Curve], list[Curve]]:
        """Return the ROC and PR curves of the classes from `start` on."""
        return classifier.curves(self.classes[start:], self.rankings[start:])


class ClassSums(ProbabilitySums):
    """Sums over the answers of a classifier."""

    def __init__(self, answers: Any) -> None:
        super().__init__(answers)
        n = len(self.classes)
        self.positive = 1 if n == 2 else 0  # the first class that is ranked: of two, the second
        # Examples; rows are true classes, columns are predicted classes.
        self.confusion = np.zeros((n, n), int)
        self.confusion_weights = np.zeros((2, n, n))  # sums of weights and of their squares
        self.right = Share()
        self.squared_errors = self._within = 0.0
        self._top = 5 if n > 5 else 3 if n > 3 else 0
        sums = np.zeros((3, classifier.CALIBRATION_BINS))
        for labels, probabilities, weights in answers.blocks():
            predicted, examples = probabilities.argmax(axis=1), np.arange(len(labels))
            np.add.at(self.confusion, (labels, predicted), 1)
            for cells, weight in zip(self.confusion_weights, (weights, weights**2), strict=True):
                np.add.at(cells, (labels, predicted), weight)
            self.right.add(predicted == labels, weights)
            if self._top:
                ranks = classifier.label_ranks(labels, probabilities)
                self._within += float(weights @ (ranks < self._top))
            self.losses += float(weights @ log_losses(probabilities[examples, labels]))
            self.squared_errors += float(weights @ classifier.squared_errors(labels, probabilities))
            confidence = probabilities[examples, predicted]
            sums += classifier.calibration_sums(predicted == labels, confidence, weights)
        self.calibration_error, self.calibration = classifier.calibration(sums)
        self.counts, self.weights = (
            np.stack([one.sum(axis=1), one.sum(axis=0), one.diagonal()])
            for one in (self.confusion, self.confusion_weights[0])
        )

    def top_accuracy(self, k: int) -> float | None:
        """Return the share of labels that are among the `k` likeliest classes.

        It is 5 with more than five classes, 3 with four or five; None for another.
        """
        return self._within / self.examples if k == self._top else None
