"""Define the base classes of tasks, of their answers to a split, and of their evaluations."""

from __future__ import annotations

import abc
import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from trainer.data.schema import Dataset

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from trainer.metrics.comparison import Pairs, Scores
    from trainer.metrics.disk_columns import Answers, ColumnValues
    from trainer.metrics.slices import Slices
    from trainer.metrics.worst_examples import WorstExample

LOSS = "loss"

# Limits beyond which something becomes a finding.
CHANCE = 0.05
"""P-value above which a model may be no better than a constant answer."""
WIDE_INTERVAL = 0.1
MIN_STANDARD_ERRORS = 3.5
"""A slice is named if it is this number of standard errors worse than the whole split, or more.

By chance alone, one of a hundred equally good slices is so bad in one of forty reports. Where more
are compared, the number grows so that this holds."""

Outputs = Mapping[str, Any]
"""Answers of a SavedModel to a batch: arrays [n, ...] by name."""


class Finding(NamedTuple):
    """A sentence that a reader of the report should not miss; the template of a page has it."""

    kind: str
    warning: bool  # whether it requires action
    values: dict[str, Any]  # values in the sentence


@dataclasses.dataclass(frozen=True)
class Task(abc.ABC):
    """Define the outputs that a model learns for a dataset, and judge its answers.

    Labels are a batch of the records' labels [n], outputs a model's float32 [n, outputs].
    """

    dataset: Dataset

    metrics: ClassVar[tuple[str, ...]]
    """Metrics of training and validation, besides the loss: means over examples."""
    rising: ClassVar[frozenset[str]]
    """The metrics that are better if they are higher."""
    answered: ClassVar[tuple[str, ...]]
    """Names of the answers that each SavedModel of the task has."""

    @property
    @abc.abstractmethod
    def outputs(self) -> int:
        """Return the number of outputs that a model has for each example."""

    @abc.abstractmethod
    def scores(self, labels: tf.Tensor, outputs: tf.Tensor) -> list[tf.Tensor]:
        """Return the loss and each of `metrics` of every example, float32 [n] each."""

    @abc.abstractmethod
    def make_objective(self, config: Any) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        """Return the function of labels and outputs whose mean training minimizes, float32 [n].

        Its options are those of a `TrainingConfig`.
        """

    def calibrate(self, validated: Iterator[tuple[np.ndarray, tf.Tensor, np.ndarray]]) -> Task:
        """Return the task with what answers need besides outputs, from those in validation.

        `validated` yields labels [n], a trained model's outputs, float32 [n, outputs], and weights,
        float64 [n].
        """
        return self

    @abc.abstractmethod
    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return what a SavedModel answers for `outputs`: tensors [n, ...] by name."""

    @abc.abstractmethod
    def check_answers(self, outputs: Outputs, model: str) -> None:
        """Raise InputError unless the model (URI) answers a batch as this task's models do."""

    @abc.abstractmethod
    def open_answers(self, rows: int) -> Answers:
        """Return columns on disk for the answers to a split of `rows` examples."""

    @abc.abstractmethod
    def score_champion(self, labels: np.ndarray, outputs: Outputs) -> tuple[Scores, bool]:
        """Return the scores of a champion's answers, and whether it knows any of the labels.

        The champion may have been trained on other labels than the dataset's.
        """

    @abc.abstractmethod
    def find_contradiction(self, pairs: Pairs, recorded: Mapping[str, Any]) -> str:
        """Return how a champion's scores contradict the metrics in the registry; else "".

        The metrics are those of `Evaluation.registry_metrics`, of the same records.
        """

    @abc.abstractmethod
    def evaluate(self, answers: Answers, values: ColumnValues, **fields: Any) -> Evaluation:
        """Measure the answers to a split; `fields` are those that every evaluation has."""

    @abc.abstractmethod
    def is_overfitted(self, train: float, validation: float) -> bool:
        """Return whether the first metric's values in training and validation differ too much."""

    def find_overfitting(self, training: Mapping[str, Any]) -> Finding | None:
        """Return a finding if the content of a job's metrics.json shows overfitting."""
        name = self.metrics[0]
        # A program may measure other metrics.
        train, validation = (training[split].get(name) for split in ("train", "validation"))
        if train is None or validation is None or not self.is_overfitted(train, validation):
            return None
        return Finding("overfitting", True, {"train": train, "validation": validation})

    @property
    def measured(self) -> tuple[str, ...]:
        """Return the names of `scores`: the loss, then the metrics."""
        return (LOSS, *self.metrics)

    @classmethod
    def is_better(cls, metric: str, value: float, best: float) -> bool:
        """Return whether a value of a metric or of the loss is better than the best so far."""
        return value > best if metric in cls.rising else value < best


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation(abc.ABC):
    """The evaluation of a model on a split; a metric that is undefined on the split is None."""

    model: str  # URI
    dataset: str  # URI
    examples: int
    seconds: float  # duration of the prediction, without loading the model
    answers: Answers
    worst: list[WorstExample]  # the worst first
    slices: list[Slices]

    template: ClassVar[str]
    """File beside this one with the task's part of the report."""
    schema: ClassVar[str]
    """Name of Google's schema of `registry_metrics`."""
    comparisons: ClassVar[tuple[str, ...]]
    """Metrics with which the task's models are compared, the default first."""

    @property
    @abc.abstractmethod
    def headline(self) -> tuple[str, float]:
        """Return the name and the value of the metric that sums up the evaluation."""

    @property
    @abc.abstractmethod
    def baseline(self) -> Any:
        """Return a dataclass of the best constant answers, with `p_value` of the comparison."""

    @abc.abstractmethod
    def compare_with_baseline(self, confidence: float) -> tuple[bool, str]:
        """Return whether the model beats constant answers beyond noise, and a clause about it."""

    @abc.abstractmethod
    def explain_not_above(self, confidence: float) -> str:
        """Return the figures of a model that does not beat constant answers."""

    @abc.abstractmethod
    def scalars(self) -> dict[str, float]:
        """Return the defined metrics that are single numbers, by name."""

    @abc.abstractmethod
    def registry_metrics(self) -> dict[str, Any]:
        """Return the metrics that are defined, in the Model Registry's schema."""

    @abc.abstractmethod
    def find_findings(self) -> Iterator[Finding]:
        """Yield what a reader of the report should not miss, the most important first."""

    @abc.abstractmethod
    def page(self, dataset: Dataset) -> dict[str, Any]:
        """Return what the template shows besides the evaluation: pictures and tables."""

    def find_uncertainty(self, low: float, high: float) -> Iterator[Finding]:
        """Yield the comparison with constant answers, and a wide interval of the headline."""
        by_chance = self.baseline.p_value > CHANCE
        yield Finding("not_above_baseline" if by_chance else "baseline", by_chance, {})
        if high - low > WIDE_INTERVAL:
            yield Finding("wide_interval", True, {})

    def find_weak_slice(
        self, figure: str, whole: float, deviation: float, *, rises: bool = True
    ) -> Iterator[Finding]:
        """Yield the slice that is most standard errors worse than the split, if beyond chance.

        Args:
            figure: name of the figure by which slices are compared.
            whole: its value for the whole split.
            deviation: standard deviation of its value for an example.
            rises: whether the figure is better if it is higher.
        """
        gaps = [
            ((whole - value) * (1 if rises else -1) * math.sqrt(part.examples), cut.column, part)
            for cut in self.slices
            for part in cut.slices
            if (value := part.figures[figure]) is not None
        ]
        gap, column, part = max(gaps, key=lambda item: item[0], default=(0.0, "", None))
        compared = max(1, sum(cut.compared for cut in self.slices))
        errors = max(MIN_STANDARD_ERRORS, statistics.NormalDist().inv_cdf(1 - 1 / 40 / compared))
        if deviation and gap >= errors * deviation:
            yield Finding("weak_slice", True, {"column": column, "part": part})

    def find_floor(self, gate: Mapping[str, Any]) -> float | None:
        """Return the floor that the gate's options have for the headline; None if it has none."""
        floor: float | None = gate["floors"].get(self.headline[0])
        return floor

    def find_missed_floors(self, gate: Mapping[str, Any]) -> list[str]:
        """Return a clause for each floor that only this task has and that the model misses."""
        return []

    def log_to_console(self, classification: Any) -> str:
        """Fill the KFP artifact that Vertex AI's console shows as a confusion matrix and a curve.

        Return what the artifact shows, for a message if it is too large; empty if nothing.
        """
        return ""
