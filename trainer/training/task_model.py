"""The Keras model that a run trains: a recipe's model with the loss and the metrics of its task."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.data.images.augmentation import add_augmentation
from trainer.data.read.model_inputs import open_inputs
from trainer.data.schema import Dataset
from trainer.engine.compile_checks import is_plain
from trainer.engine.internals import build_symbolically, get_loss_tracker, has_loss
from trainer.engine.metric_states import MetricStates
from trainer.exported import keras_file
from trainer.models.model import Model
from trainer.tasks import Task, task_of
from trainer.tasks.base import LOSS
from trainer.training.config import TrainingConfig, seed_of
from vertex.errors import InputError

_REPLACED = (
    "optimizer", "learning_rate", "momentum", "weight_decay", "schedule", "warmup_steps",
    "plateau_patience", "gradient_clip_norm", "loss", "class_weights", "label_smoothing",
)  # fmt: skip
"""Options that a model's `compile` replaces."""


class TaskModel(keras.Model):
    """A model that minimizes and measures what the records' task defines.

    Labels are a batch of the records' labels [n], outputs the network's float32 [n, k], sample
    weights float32 [n]. If the recipe's model is compiled, its losses are minimized, and its
    metrics are measured with those of the task.
    """

    def __init__(
        self, model: keras.Model, network: keras.Model, task: Task, config: TrainingConfig
    ) -> None:
        """Build and compile the model in the strategy's scope.

        Args:
            model: the recipe's model.
            network: the model, perhaps with augmentation.
        """
        super().__init__(name=model.name, autocast=False)
        self._check(model, config)
        self.recipe_model, self.network = model, network
        self.task, self._minimized = task, task.make_objective(config)
        self._scores = _Scores(task, has_loss=not model.compiled)
        if model.compiled:
            _build_compiled(model, task)
        self.built = True
        self.compile(model.optimizer if model.compiled else "sgd", auto_scale_loss=False)
        self.states = MetricStates(self)
        # Names of the loss and the metrics.
        self.measured = (*self.read(self.states.make_totals()),)

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        return self.network(inputs, training=training)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None,
        training: bool = True,
    ) -> tf.Tensor:  # fmt: skip
        """Return the mean loss of a batch's rows, with penalties of regularizers and add_loss."""
        if self.recipe_model.compiled:
            return self.recipe_model.compute_loss(x, y, y_pred, sample_weight)
        losses = self._minimized(y, y_pred) * sample_weight
        mean = tf.reduce_sum(losses) / tf.cast(tf.shape(losses)[0], tf.float32)
        return tf.add_n([mean, *(tf.cast(penalty, tf.float32) for penalty in self.losses)])

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        if self.recipe_model.compiled:
            self.recipe_model.compute_metrics(x, y, y_pred, sample_weight)
        self._scores.update_state(y, y_pred, sample_weight)
        return self.get_metrics_result()

    @property
    def metrics(self) -> list[keras.Metric]:
        model = self.recipe_model
        own = model.metrics[1:] if model.compiled else []  # Without the mean of its losses.
        return [get_loss_tracker(self), *own, self._scores]

    @property
    def is_plain(self) -> bool:
        """Return whether no code of the user's runs after the gradients of a step; see `Step`."""
        return not self.recipe_model.compiled or is_plain(self.recipe_model)

    def read(self, totals: tf.Tensor) -> dict[str, float]:
        """Return the loss and the metrics of sums of steps' changes by name, the task's first."""
        found: dict[str, float] = {}
        for name, value in self.states.measure(totals).items():
            names = [f"{name}_{number}" for number in range(tf.size(value))]
            names = names if value.shape.rank else [name]
            found.update(zip(names, np.ravel(value).tolist(), strict=True))
        return {name: found[name] for name in (*self.task.measured, *found)}

    def _check(self, model: keras.Model, config: TrainingConfig) -> None:
        """Raise InputError for what a run can't train, and for options without effect."""
        for name in ("train_step", "compute_loss", "compute_metrics"):
            if getattr(type(model), name) is not getattr(keras.Model, name):
                raise InputError(
                    f"model={config.model!r} returns a model with a {name} of its own, which only "
                    "fit calls; train it by a program, see docs/extending.md"
                )
        if not model.compiled:
            return
        if not has_loss(model):
            raise InputError(
                f"model={config.model!r} returns a model that is compiled without a loss; give "
                "compile one, or return the model without compile"
            )
        defaults = vars(TrainingConfig())
        changed = [name for name in _REPLACED if getattr(config, name) != defaults[name]]
        if changed:
            raise InputError(
                f"model={config.model!r} returns a compiled model, which replaces "
                f"{', '.join(f'{name}={getattr(config, name)}' for name in changed)}; leave them "
                "out, or return the model without compile"
            )


def _build_compiled(model: keras.Model, task: Task) -> None:
    """Build the losses and metrics that `compile` has left unbuilt."""
    label = task.dataset.feature("label")
    batch = (
        open_inputs(task.dataset).symbolic(),
        keras.KerasTensor((None, *label.shape), dtype=label.dtype),
        keras.KerasTensor((None,), dtype="float32"),
    )
    build_symbolically(model, batch)


def build_task_model(
    config: TrainingConfig, dataset: Dataset, prepared: Model, strategy: tf.distribute.Strategy
) -> TaskModel:
    """Build the model to train, from `prepared`: that of `config`, perhaps with augmentation.

    This function sets the process's random seed and dtype policy, so that each process with these
    arguments gets the same weights (from config.warm_start, if it is set).
    """
    keras.utils.set_random_seed(seed_of(config))
    keras.config.set_dtype_policy(config.precision)
    with strategy.scope():
        model = network = prepared.build(dataset)
        if config.warm_start:
            keras_file.load(model, config.warm_start)
        if config.augmentation == "model":
            network = add_augmentation(model, config.augmentation_operations, seed_of(config))
        return TaskModel(model, network, task_of(dataset), config)


class _Scores(keras.metrics.Metric):
    """The loss and the metrics of a task, means over examples by their weights."""

    def __init__(self, task: Task, *, has_loss: bool) -> None:
        super().__init__(name="scores")
        self._task = task
        self._names = [name for name in task.measured if has_loss or name != LOSS]
        self._sums = self.add_weight((len(task.measured),), "zeros", name="sums")
        self._weights = self.add_weight((), "zeros", name="weights")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        scores = self._task.scores(y_true, y_pred)
        self._sums.assign_add(tf.stack([tf.reduce_sum(score * sample_weight) for score in scores]))
        self._weights.assign_add(tf.reduce_sum(sample_weight))

    def result(self) -> Mapping[str, tf.Tensor]:
        # Not finite if the loss of a step was not.
        means = self._sums / tf.maximum(tf.convert_to_tensor(self._weights), 1e-9)
        found = dict(zip(self._task.measured, tf.unstack(means), strict=True))
        return {name: found[name] for name in self._names}
