"""Define the base classes of tasks, of their answers to a split, and of their evaluations."""

from __future__ import annotations

import abc
import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from trainer.data.schema import Dataset
from trainer.metrics.metric import Estimate, Metric
from trainer.tasks.label_kinds import LOSS
from vertex.formats import decimal, number, percent

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from trainer.metrics.comparison import Pairs, Scores
    from trainer.metrics.disk_columns import Answers, ColumnValues
    from trainer.metrics.slices import Slices
    from trainer.metrics.worst_examples import WorstExample

_FORMATS = {"share": percent, "nats": decimal, "label": number, "": decimal}
"""Formats of tiles by the metric's unit."""

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

    metrics: ClassVar[tuple[Metric, ...]]
    """The metrics of an evaluation, the headline first, and those of training and validation."""
    answered: ClassVar[tuple[str, ...]]
    """Names of the answers that each SavedModel of the task has."""

    @property
    @abc.abstractmethod
    def outputs(self) -> int:
        """Return the number of outputs that a model has for each example."""

    @abc.abstractmethod
    def scores(self, labels: tf.Tensor, outputs: tf.Tensor) -> list[tf.Tensor]:
        """Return what `measured` names of every example, float32 [n] each."""

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

    def find_contradiction(self, pairs: Pairs, recorded: Mapping[str, Any]) -> str:
        """Return how a champion's scores contradict the metrics in the registry; else "".

        The metrics are those of `Evaluation.registry_metrics`, of the same records.
        """
        return ""

    @abc.abstractmethod
    def evaluate(self, answers: Answers, values: ColumnValues, **fields: Any) -> Evaluation:
        """Measure the answers to a split; `fields` are those that every evaluation has."""

    @abc.abstractmethod
    def is_overfitted(self, train: float, validation: float) -> bool:
        """Return whether the first metric's values in training and validation differ too much."""

    def find_overfitting(self, training: Mapping[str, Any]) -> Finding | None:
        """Return a finding if the content of a job's metrics.json shows overfitting."""
        name = self.measured[1]
        # A program may measure other metrics.
        train, validation = (training[split].get(name) for split in ("train", "validation"))
        if train is None or validation is None or not self.is_overfitted(train, validation):
            return None
        return Finding("overfitting", True, {"train": train, "validation": validation})

    @property
    def measured(self) -> tuple[str, ...]:
        """Return the names of `scores`: the loss, then the metrics that are monitored."""
        return (LOSS, *(metric.name for metric in self.metrics if metric.monitored))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation(abc.ABC):
    """The evaluation of a model on a split."""

    declared: tuple[Metric, ...]  # the headline first
    # By name; a number, an Estimate or, if a metric is undefined on the split, None.
    metrics: dict[str, Any]
    model: str  # URI
    dataset: str  # URI
    examples: int
    seconds: float  # duration of the prediction, without loading the model
    sums: Any  # those of the split from which the metrics are computed
    worst: list[WorstExample]  # the worst first
    slices: list[Slices]

    template: ClassVar[str]
    """File beside this one with the task's part of the report."""
    schema: ClassVar[str]
    """Name of Google's schema of `registry_metrics`."""
    constant: ClassVar[str]
    """The metric of `baseline` that is logged."""

    @property
    def answers(self) -> Any:
        return self.sums.answers

    @property
    def headline(self) -> tuple[str, float]:
        """Return the name and value of the metric that sums up the evaluation."""
        name = self.declared[0].name
        return name, getattr(self.metrics[name], "value", self.metrics[name])

    @property
    def comparisons(self) -> list[Metric]:
        """Return the metrics in which models are compared, the default first."""
        return [metric for metric in self.declared if metric.compared]

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

    def scalars(self) -> dict[str, float]:
        """Return the defined metrics as single numbers, by name; also the ends of intervals."""
        values: dict[str, Any] = {}
        for name, value in self.metrics.items():
            values |= value.flatten(name) if isinstance(value, Estimate) else {name: value}
        values["examples"] = self.examples
        values[f"baseline_{self.constant}"] = getattr(self.baseline, self.constant)
        return {name: float(value) for name, value in values.items() if value is not None}

    def tiles(self) -> Iterator[tuple[str, str, str]]:
        """Yield the titles, values and notes of the metrics in the report's summary."""
        for metric in self.declared:
            value = self.metrics.get(metric.name)
            if not metric.tile or (value is None and metric.optional):
                continue
            shown = _FORMATS[metric.unit]
            note = metric.note(self.sums) if callable(metric.note) else metric.note
            if isinstance(value, Estimate):
                note = note or f"95% interval {shown(value.low)} to {shown(value.high)}"
                value = value.value
            yield metric.tile, shown(value), note

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
