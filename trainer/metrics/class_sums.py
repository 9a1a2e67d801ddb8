"""Sums over the answers of a classifier, from which its metrics are computed."""

import functools
from typing import Any

import numpy as np

from trainer.metrics import classifier
from trainer.metrics.classifier import ClassMetrics, Curve, Ranking
from trainer.metrics.comparison import log_losses
from trainer.metrics.intervals import Share


class ClassSums:
    """Sums over the `answers` to a split, a ClassAnswers."""

    def __init__(self, answers: Any) -> None:
        self.answers, self.examples = answers, answers.rows
        self.classes: list[str] = answers.classes
        shape = (len(self.classes), len(self.classes))
        # Examples; rows are true classes, columns are predicted classes.
        self.confusion = np.zeros(shape, int)
        self.weights = np.zeros((2, *shape))  # of the same examples, and their squares
        self.right = Share()
        self.losses = self.squared_errors = self._within = 0.0
        # None for three classes or fewer.
        self._top = None if len(self.classes) <= 3 else 3 if len(self.classes) <= 5 else 5
        sums = np.zeros((3, classifier.CALIBRATION_BINS))
        for labels, probabilities, weights in answers.blocks():
            predicted, examples = probabilities.argmax(axis=1), np.arange(len(labels))
            np.add.at(self.confusion, (labels, predicted), 1)
            for cells, weight in zip(self.weights, (weights, weights**2), strict=True):
                np.add.at(cells, (labels, predicted), weight)
            self.right.add(predicted == labels, weights)
            if self._top:
                is_within = classifier.label_ranks(labels, probabilities) < self._top
                self._within += float(weights @ is_within)
            self.losses += float(weights @ log_losses(probabilities[examples, labels]))
            self.squared_errors += float(weights @ classifier.squared_errors(labels, probabilities))
            confidence = probabilities[examples, predicted]
            sums += classifier.calibration_sums(predicted == labels, confidence, weights)
        self.calibration_error, self.bins = classifier.calibration(sums)

    def top_accuracy(self, k: int) -> float | None:
        """Return the share of labels among the `k` likeliest, 3 or 5; None for other numbers."""
        return self._within / self.examples if k == self._top else None

    @functools.cached_property
    def rankings(self) -> list[Ranking | None]:
        return [self.answers.rank(number) for number in range(len(self.classes))]

    @functools.cached_property
    def per_class(self) -> list[ClassMetrics]:
        counts, weights = (
            np.stack([one.sum(axis=1), one.sum(axis=0), one.diagonal()])
            for one in (self.confusion, self.weights[0])
        )
        return classifier.compute_class_metrics(
            self.classes, self.rankings, counts=counts, weights=weights
        )

    @property
    def _ranked(self) -> slice:
        """Return which classes are ranked: of two, the second, which is the positive one."""
        return slice(1 if len(self.classes) == 2 else 0, None)

    def mean_of_classes(self, name: str) -> float | None:
        return classifier.mean([getattr(row, name) for row in self.per_class])

    def mean_area(self, name: str) -> float | None:
        return classifier.mean([getattr(row, name) for row in self.per_class[self._ranked]])

    def curves(self) -> tuple[list[Curve], list[Curve]]:
        return classifier.curves(self.classes[self._ranked], self.rankings[self._ranked])
