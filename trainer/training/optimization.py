"""Optimizers and learning rate schedules that work under tf.distribute."""

import math
from typing import Any

import keras
import tensorflow as tf

from trainer.models import find_model_class
from trainer.models.model import WIDE_LAYER
from trainer.training.config import TrainingConfig
from trainer.training.optimizers import OPTIMIZERS

ONE_CYCLE_WARMUP = 0.3
"""Share of a one-cycle run during which the learning rate rises (Smith & Topin, 2018)."""
ONE_CYCLE_START = 0.04
"""Initial learning rate of a one-cycle run as a share of its peak: 1/25."""


class LearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate by optimizer step: a warm-up, then a curve, both multiplied by `factor`."""

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
        if self.config.schedule == "exponential":
            times = tf.maximum(0.0, step - warmup) / float(self.config.decay_steps)
            rate = peak * tf.pow(self.config.decay_rate, times)
        if self.config.schedule == "cosine":
            rate = peak * _cosine((step - warmup) / max(1.0, total - warmup), 1.0, 0.0)
        if warmup:
            rate = tf.where(step < warmup, peak * (step + 1.0) / warmup, rate)
        return rate * self.factor


def _cosine(progress: Any, start: float, end: float) -> tf.Tensor:
    """Return the value at `progress`, from 0 to 1, of a half cosine wave from `start` to `end`."""
    progress = tf.clip_by_value(progress, 0.0, 1.0)
    return end + (start - end) * 0.5 * (1.0 + tf.cos(math.pi * progress))


def create_optimizer(config: TrainingConfig, schedule: LearningRate) -> keras.optimizers.Optimizer:
    """Create the optimizer; call this in the strategy's scope."""
    options: dict[str, Any] = {"learning_rate": schedule}
    wide = find_model_class(config.model).has_wide_part
    if config.gradient_clip_norm and not wide:
        options["global_clipnorm"] = config.gradient_clip_norm
    optimizer = OPTIMIZERS[config.optimizer].create(config, **options)
    if wide:
        # FTRL (McMahan et al. 2013, "Ad Click Prediction"); plateaus also reduce its rate.
        ftrl = keras.optimizers.Ftrl(
            learning_rate=lambda: config.wide_learning_rate * schedule.factor,
            l1_regularization_strength=config.wide_l1,
            l2_regularization_strength=config.wide_l2,
        )
        optimizer = WideAndDeepOptimizer(optimizer, ftrl, config.gradient_clip_norm)
    if config.precision == "mixed_float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


class WideAndDeepOptimizer(keras.optimizers.MultiOptimizer):
    """Two optimizers as one: variables of the layer WIDE_LAYER go to `wide`, others to `deep`.

    Gradients are clipped by their norm over both parts. Loss scaling and checkpoints treat this as
    one optimizer, which counts the steps of `deep`.
    """

    def __init__(
        self,
        deep: keras.optimizers.Optimizer,
        wide: keras.optimizers.Optimizer,
        clip_norm: float,
    ) -> None:
        super().__init__(lambda variable: wide if WIDE_LAYER in variable.path.split("/") else deep)
        self.deep = deep
        self.clip_norm = clip_norm

    @property
    def iterations(self) -> keras.Variable:
        return self.deep.iterations

    @property
    def learning_rate(self) -> tf.Tensor:
        return self.deep.learning_rate

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        if self.clip_norm:
            grads, _ = tf.clip_by_global_norm(grads, self.clip_norm)
        super().apply(grads, trainable_variables)
