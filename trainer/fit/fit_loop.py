"""The loop of `trainer.fit` for strategies that Keras' own `fit` does not train.

On several replicas that compute each step together, mirrored.py; with parameter servers,
parameter_server_fit.py.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer.engine import agreement, draws
from trainer.engine.building import build
from trainer.engine.cluster import Cluster
from trainer.engine.internals import pythonify_logs, validates_after
from trainer.fit.traced_steps import find_traced


class FitLoop(abc.ABC):
    """One process's part of a training."""

    def __init__(
        self,
        model: keras.Model,
        cluster: Cluster,
        training: dict[str, Any],
        validation: dict[str, Any] | None,
        epochs: int,
        *,
        gather_batch: bool,
    ) -> None:
        """Build the model, and prepare its steps; raise InputError for what can't be trained.

        `training` and `validation` are arguments of Keras' EpochIterator.
        """
        self.model, self.cluster = model, cluster
        self.strategy = model.distribute_strategy
        self.epochs, self.gather_batch = epochs, gather_batch
        self.is_validated = validation is not None
        self.steps, self.data = self.open_training(training)
        self._unseeded = draws.get_unseeded(self.strategy)
        with draws.shared_by_threads(self._unseeded):
            build(model, self.data.element_spec)
            self.traced = find_traced(model)
            self.states = self.traced.states
            self.totals = self.states.make_totals()
            self.make_steps(validation)

    @abc.abstractmethod
    def open_training(self, training: dict[str, Any]) -> tuple[int | None, tf.data.Dataset]:
        """Return the steps of an epoch, None if not known before the first, and the batches."""

    @abc.abstractmethod
    def make_steps(self, validation: dict[str, Any] | None) -> None:
        """Make the functions of a step, after the model is built; open the validation's data."""

    def train(
        self,
        callbacks: list[keras.callbacks.Callback],
        *,
        initial_epoch: int,
        epochs: int,
        verbose: Any,
        validation_freq: int | Sequence[int],
        initial_step: int = 0,
        restore_begun_epoch: Callable[[], None] | None = None,
    ) -> None:
        """Train the epochs from one to another, as `keras.Model.fit` does.

        Args:
            initial_step: steps of the first epoch that are done.
            restore_begun_epoch: restores the state after them; called when the epoch has begun.
        """
        model = self.model
        called = keras.callbacks.CallbackList(
            callbacks,
            add_progbar=verbose != 0,
            verbose=verbose,
            epochs=epochs,
            steps=self.steps,
            model=model,
        )
        model.stop_training = False
        logs: dict[str, Any] = {}
        with draws.shared_by_threads(self._unseeded), self.states.held_here():
            called.on_train_begin()
            for epoch in range(initial_epoch, epochs):
                self.reset_metrics()
                called.on_epoch_begin(epoch)
                if restore_begun_epoch:
                    restore_begun_epoch()
                logs = self.train_epoch(called, initial_step)
                initial_step, restore_begun_epoch = 0, None
                if self.is_validated and validates_after(model, epoch, validation_freq):
                    called.on_test_begin()
                    self.reset_metrics()
                    found = self.validate(called)
                    called.on_test_end(found)
                    logs |= {f"val_{name}": value for name, value in found.items()}
                called.on_epoch_end(epoch, logs)
                if self.is_stopped():
                    break
            model.optimizer.finalize_variable_values(model.trainable_weights)
            called.on_train_end(logs)
        agreement.barrier(self.strategy)  # No worker may leave while another needs it.

    @abc.abstractmethod
    def train_epoch(self, called: keras.callbacks.CallbackList, done: int) -> dict[str, float]:
        """Run the steps of an epoch, of which some are `done`; return its logs."""

    @abc.abstractmethod
    def validate(self, called: keras.callbacks.CallbackList) -> dict[str, float]:
        """Return the logs of the validation data."""

    def reset_metrics(self) -> None:
        """Reset the metrics, but those that are never reset."""
        self.model.reset_metrics()
        self.totals = self.states.take_over(self.states.make_totals())

    def measure(self, logs: dict[str, Any]) -> dict[str, float]:
        """Return the logs of all steps, from those of the last one.

        As in Keras, they are the metrics' results if their names are the metrics'.
        """
        self.totals = self.states.take_over(self.totals)
        measured = self.states.measure(self.totals)
        own = logs and set(logs) != set(measured)
        return pythonify_logs(logs if own else measured)

    def is_stopped(self) -> bool:
        """Return whether a callback of any process has stopped the training."""
        return bool(self.model.stop_training)
