"""Classification: a label is one of several classes, and an answer is a probability for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainer.tasks.task import Task

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Classification(Task):
    """Labels are indices into the classes, outputs are logits; the loss is cross-entropy in nats.

    The loss excludes label smoothing and class weights, so that training and validation can be
    compared.
    """

    metrics = ("accuracy",)
    rising = frozenset(metrics)

    @property
    def outputs(self) -> int:
        return len(self.dataset.classes)

    def scores(self, labels: tf.Tensor, outputs: tf.Tensor) -> list[tf.Tensor]:
        import tensorflow as tf

        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        return [losses, tf.cast(tf.equal(tf.argmax(outputs, -1), labels), tf.float32)]

    def make_objective(
        self, *, label_smoothing: float, class_weights: str
    ) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        import tensorflow as tf

        weights = self._weigh_classes(class_weights)

        def objective(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
            targets = tf.one_hot(labels, self.outputs)
            targets = targets * (1 - label_smoothing) + label_smoothing / self.outputs
            losses = tf.nn.softmax_cross_entropy_with_logits(targets, outputs)
            return losses * tf.gather(weights, labels)

        return objective

    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `probabilities`, float32 [n, classes], and `label`, string [n]: the likeliest."""
        import tensorflow as tf

        probabilities = tf.nn.softmax(tf.cast(outputs, tf.float32))
        best = tf.argmax(probabilities, axis=-1)
        return {"probabilities": probabilities, "label": tf.gather(self.dataset.classes, best)}

    def _weigh_classes(self, rule: str) -> list[float]:
        """Return the weight of each class in the objective.

        "balanced" is scikit-learn's rule: examples / (classes x examples of the class). The weights
        are Python numbers, because they become constants of a step that runs on another machine.
        """
        counts = self.dataset.splits["train"].class_counts
        if rule == "none":
            return [1.0] * len(counts)
        return [sum(counts) / (len(counts) * max(1, count)) for count in counts]
