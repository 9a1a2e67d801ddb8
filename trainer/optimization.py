"""Optimizers and learning rates that hold under tf.distribute."""

import math
from typing import Any

import keras
import tensorflow as tf

from trainer.config import TrainingConfig

_CLASSES = {
    "sgd": keras.optimizers.SGD,
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
}
ONE_CYCLE_WARMUP = 0.3
"""Share of a one-cycle run that the learning rate rises for (Smith & Topin, 2018)."""
ONE_CYCLE_START = 0.04
"""Learning rate, as a share of its peak, that a one-cycle run starts from: 1/25."""


@keras.saving.register_keras_serializable("trainer")
class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate by optimizer step: a warm-up, a curve, and a factor for plateaus.

    Attributes:
        factor: float32 variable [] that the whole curve is multiplied with.
    """

    def __init__(self, config: TrainingConfig, total_steps: int) -> None:
        self.config = config
        self.total_steps = total_steps
        self.factor = tf.Variable(1.0, trainable=False, name="plateau_factor")

    def __call__(self, step: Any) -> tf.Tensor:
        step = tf.cast(step, tf.float32)
        peak = tf.constant(self.config.learning_rate, tf.float32)
        total = float(max(1, self.total_steps))
        if self.config.schedule == "one_cycle":
            rise = total * ONE_CYCLE_WARMUP
            rate = tf.where(
                step < rise,
                peak * _cosine(step / rise, ONE_CYCLE_START, 1.0),
                peak * _cosine((step - rise) / (total - rise), 1.0, 0.0),
            )
            return rate * self.factor
        warmup = float(self.config.warmup_steps)
        rate = peak
        if self.config.schedule == "cosine":
            rate = peak * _cosine((step - warmup) / max(1.0, total - warmup), 1.0, 0.0)
        if warmup:
            rate = tf.where(step < warmup, peak * (step + 1.0) / warmup, rate)
        return rate * self.factor

    def get_config(self) -> dict[str, Any]:
        return {"total_steps": self.total_steps}


def _cosine(progress: Any, start: float, end: float) -> tf.Tensor:
    """Half a cosine wave from `start` to `end` over `progress` 0 to 1."""
    progress = tf.clip_by_value(progress, 0.0, 1.0)
    return end + (start - end) * 0.5 * (1.0 + tf.cos(math.pi * progress))


def create_optimizer(config: TrainingConfig, schedule: Schedule) -> keras.optimizers.Optimizer:
    """Creates the optimizer, to be called in the strategy's scope.

    Its `apply` wants gradients that are summed over all replicas already: so that they are
    clipped by the norm of the sum, and that loss scaling sees an overflow of any replica.
    """
    options: dict[str, Any] = {"learning_rate": schedule}
    if config.gradient_clip_norm:
        options["global_clipnorm"] = config.gradient_clip_norm
    if config.optimizer == "sgd":
        options["momentum"] = config.momentum
    if config.optimizer == "adamw":
        options["weight_decay"] = config.weight_decay
    optimizer = _takes_reduced_gradients(_CLASSES[config.optimizer])(**options)
    if config.precision == "mixed_float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def _takes_reduced_gradients(cls: type) -> type:
    """A subclass of Keras optimizer `cls` that leaves the all-reduce to the training step.

    Keras 3 sums gradients over the replicas after it has clipped them, which clips each
    replica's share by its own norm, and offers no public switch.
    """

    def _all_reduce_sum_gradients(self: Any, grads_and_vars: Any) -> Any:
        return grads_and_vars

    return type(cls.__name__, (cls,), {"_all_reduce_sum_gradients": _all_reduce_sum_gradients})
