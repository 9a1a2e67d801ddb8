"""Decide what a run minimizes and measures: by its records' task, or as its model was compiled."""

import itertools
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.losses.loss import unscale_loss_for_distribution

from trainer.data.read import reader
from trainer.data.read.model_inputs import open_inputs
from trainer.engine.compile_checks import check_additive, is_own_metric
from trainer.errors import InputError
from trainer.tasks import Task
from trainer.training.config import TrainingConfig
from trainer.training.progress import Sums

_REPLACED = (
    "optimizer", "learning_rate", "momentum", "weight_decay", "schedule", "warmup_steps",
    "plateau_patience", "gradient_clip_norm", "loss", "class_weights", "label_smoothing",
)  # fmt: skip
"""Options that a model's `compile` replaces."""
_TRIED_ROWS = 64
"""Rows with which metrics of the user's own are tried."""


class Objective:
    """The loss to minimize and the metrics to report, as the records' task defines them.

    Labels are a batch of the records' labels [n], outputs the network's float32 [n, k], weights
    float32 [n], which are 0 for padding.
    """

    def __init__(self, task: Task, config: TrainingConfig) -> None:
        self.task = task
        self.measured = task.measured
        """Names of `means`: the loss, then the metrics."""
        self._minimized = task.make_objective(config)

    def part_of_mean(
        self, labels: Any, outputs: Any, weights: tf.Tensor, penalty: tf.Tensor, examples: Any
    ) -> tf.Tensor:
        """Return the part that a replica's rows have in the mean loss of a step's `examples`."""
        return tf.reduce_sum(self._minimized(labels, outputs) * weights) / examples

    def find_penalty(self, network: keras.Model) -> tf.Tensor:
        """Return what is added to the mean loss of a network's newest call, float32 []."""
        return tf.zeros([])

    def sums(self, labels: Any, outputs: Any, weights: tf.Tensor, penalty: tf.Tensor) -> tf.Tensor:
        """Return what is added up over examples, float32 [k + 1]; last, their weights."""
        scores = self.task.scores(labels, outputs)
        return tf.stack(
            [*(tf.reduce_sum(score * weights) for score in scores), tf.reduce_sum(weights)]
        )

    def add(self, total: Sums, sums: list[float]) -> None:
        """Add the `sums` of a step to a total."""
        *scores, examples = sums
        names = self.task.measured
        total.add(dict(zip(names, scores, strict=False)), scores[len(names) :], examples)

    def means(self, total: Sums) -> dict[str, float]:
        """Return loss and metrics, which are not finite if the loss of a step was not."""
        return total.means()


class CompiledObjective(Objective):
    """The loss to minimize and the metrics to report, as a model's `compile` defines them.

    Metrics of the task are reported, too. Keras has no public access to what `compile` has built:
    to the losses of all outputs as one function, and to the metrics that count rows by weight.

    As in Keras, the loss has the penalties of regularizers and of add_loss. States of metrics are
    added up over the replicas and the steps.
    """

    def __init__(self, model: keras.Model, task: Task, config: TrainingConfig) -> None:
        """Build what `compile` has left unbuilt; call this in the strategy's scope."""
        super().__init__(task, config)
        _check_options(config)
        label = task.dataset.feature("label")
        batch = (
            open_inputs(task.dataset).symbolic(),
            keras.KerasTensor((None, *label.shape), dtype=label.dtype),
            keras.KerasTensor((None,), dtype="float32"),
        )
        model._symbolic_build(data_batch=batch)
        self._loss = model._compile_loss
        compiled = model._compile_metrics
        kinds = (compiled._flat_metrics, compiled._flat_weighted_metrics) if compiled else ((), ())
        # Whether the rows count by their weights, and the metric.
        self._metrics = [
            (weighted, metric)
            for weighted, lists in enumerate(kinds)
            for listed in lists
            for metric in (listed.metrics if listed else ())
            if metric.name not in task.measured
        ]
        self._variables = [variable for _, metric in self._metrics for variable in metric.variables]
        self._initial = [np.array(variable) for variable in self._variables]
        self.measured = (*task.measured, *self._read(self._initial))
        self._check_own_metrics(model)

    def part_of_mean(
        self, labels: Any, outputs: Any, weights: tf.Tensor, penalty: tf.Tensor, examples: Any
    ) -> tf.Tensor:
        rows = tf.reduce_sum(tf.cast(weights > 0, tf.float32))
        return (self._sum(labels, outputs, weights) + penalty * rows) / examples

    def find_penalty(self, network: keras.Model) -> tf.Tensor:
        """Return the sum of the penalties of regularizers and of add_loss."""
        return tf.add_n(
            [tf.zeros([]), *(tf.cast(penalty, tf.float32) for penalty in network.losses)]
        )

    def sums(self, labels: Any, outputs: Any, weights: tf.Tensor, penalty: tf.Tensor) -> tf.Tensor:
        loss = self._sum(labels, outputs, weights) + penalty * tf.reduce_sum(weights)
        _, *scores, examples = tf.unstack(super().sums(labels, outputs, weights, penalty))
        states = self._update(self._initial, labels, outputs, weights)
        changes = [
            tf.reshape(tf.cast(state - first, tf.float32), [-1])
            for state, first in zip(states, self._initial, strict=True)
        ]
        return tf.concat([[loss, *scores], *changes, [examples]], axis=0)

    def means(self, total: Sums) -> dict[str, float]:
        changes = iter(total.states)
        states = [
            state
            + np.reshape([*itertools.islice(changes, state.size)], state.shape).astype(state.dtype)
            for state in self._initial
        ]
        return super().means(total) | self._read(states)

    def _sum(self, labels: Any, outputs: Any, weights: tf.Tensor) -> tf.Tensor:
        """Return the sum of the losses of a replica's rows; Keras returns a mean over all rows."""
        mean = unscale_loss_for_distribution(self._loss(labels, outputs, weights))
        return tf.cast(mean, tf.float32) * tf.cast(tf.shape(weights)[0], tf.float32)

    def _update(self, states: list[Any], labels: Any, outputs: Any, weights: Any) -> list[Any]:
        """Return states of the metrics, updated by rows."""
        known = zip(self._variables, map(tf.convert_to_tensor, states), strict=True)
        with keras.StatelessScope([*known]) as scope:
            for weighted, metric in self._metrics:
                counts = weights if weighted else tf.cast(weights > 0, tf.float32)
                metric.update_state(labels, outputs, sample_weight=counts)
        return [scope.get_current_value(variable) for variable in self._variables]

    def _read(self, states: list[Any]) -> dict[str, float]:
        """Return the metrics by name; one of several numbers has a name for each."""
        found: dict[str, float] = {}
        known = zip(self._variables, map(tf.convert_to_tensor, states), strict=True)
        with keras.StatelessScope([*known]):
            for _, metric in self._metrics:
                value = np.array(metric.result())
                names = [f"{metric.name}_{number}" for number in range(value.size)]
                names = names if value.ndim else [metric.name]
                found.update(zip(names, value.ravel().tolist(), strict=True))
        return found

    def _check_own_metrics(self, model: keras.Model) -> None:
        """Raise InputError unless the states of the user's own metrics are sums over the rows."""
        if not any(is_own_metric(metric) for _, metric in self._metrics):
            return
        batches = reader.read_for_keras(self.task.dataset, "train", _TRIED_ROWS)
        inputs, labels, *_ = next(iter(batches))
        outputs, half = model(inputs, training=False), labels.shape[0] // 2
        found = [
            self._update(self._initial, labels[rows], outputs[rows], tf.ones(labels[rows].shape[0]))
            for rows in (slice(None), slice(half), slice(half, None))
        ]
        for variable, begin, *states in zip(self._variables, self._initial, *found, strict=True):
            check_additive(variable.path, *(np.array(state) - begin for state in states))


def make_objective(model: keras.Model, task: Task, config: TrainingConfig) -> Objective:
    """Return the objective of a model that may be compiled; call this in the strategy's scope."""
    for name in ("train_step", "compute_loss", "compute_metrics"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise InputError(
                f"model={config.model!r} returns a model with a {name} of its own, which only fit "
                "calls; train it by a program, see docs/extending.md"
            )
    if not model.compiled:
        return Objective(task, config)
    if model._compile_loss is None:
        raise InputError(
            f"model={config.model!r} returns a model that is compiled without a loss; give "
            "compile one, or return the model without compile"
        )
    return CompiledObjective(model, task, config)


def _check_options(config: TrainingConfig) -> None:
    """Raise InputError for options that would have no effect."""
    defaults = vars(TrainingConfig())
    changed = [name for name in _REPLACED if getattr(config, name) != defaults[name]]
    if changed:
        raise InputError(
            f"model={config.model!r} returns a compiled model, which replaces "
            f"{', '.join(f'{name}={getattr(config, name)}' for name in changed)}; leave them out, "
            "or return the model without compile"
        )
