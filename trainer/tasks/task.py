"""Define the base class of tasks."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from trainer.data.schema import Dataset

if TYPE_CHECKING:
    import tensorflow as tf

LOSS = "loss"


@dataclasses.dataclass(frozen=True)
class Task(abc.ABC):
    """What a model learns from a dataset.

    Labels are a batch of the records' labels [n], outputs a model's float32 [n, outputs].
    TensorFlow is imported in methods, not at the top of the file, so that a recipe can be read
    without it.
    """

    dataset: Dataset

    metrics: ClassVar[tuple[str, ...]]
    """Metrics of training and validation, besides the loss: means over examples."""
    rising: ClassVar[frozenset[str]]
    """The metrics that are better if they are higher."""

    @property
    @abc.abstractmethod
    def outputs(self) -> int:
        """Return the number of outputs that a model has for each example."""

    @abc.abstractmethod
    def scores(self, labels: tf.Tensor, outputs: tf.Tensor) -> list[tf.Tensor]:
        """Return the loss and each of `metrics` of every example, float32 [n] each."""

    @abc.abstractmethod
    def make_objective(
        self, *, label_smoothing: float, class_weights: str
    ) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        """Return the function of labels and outputs whose mean training minimizes, float32 [n]."""

    @abc.abstractmethod
    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return what a SavedModel answers for `outputs`: tensors [n, ...] by name."""

    @property
    def measured(self) -> tuple[str, ...]:
        """Return the names of `scores`: the loss, then the metrics."""
        return (LOSS, *self.metrics)

    @classmethod
    def is_better(cls, metric: str, value: float, best: float) -> bool:
        """Return whether a value of a metric or of the loss is better than the best so far."""
        return value > best if metric in cls.rising else value < best
