"""The loop of `trainer.fit` for strategies that Keras' own `fit` does not train.

On several replicas that compute each step together, MirroredFit; with parameter servers,
trainer/fit/scheduled.py.
"""

import abc
import contextlib
import itertools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.utils.python_utils import pythonify_logs

from trainer.errors import InputError
from trainer.fit import replica_sums
from trainer.fit.building import build
from trainer.fit.divided_batches import DividedBatches, unwrap
from trainer.training import draws, strategies
from trainer.training.cluster import Cluster

_DIFFERENT = (
    "The workers read different batches, and each learns from its rows of its own. If more than "
    "augmentation differs, rows are learned twice or never: import trainer.fit, or call "
    "keras.utils.set_random_seed, before the data is shuffled, or seed every shuffle."
)


class FitLoop(abc.ABC):
    """One process's part of a training."""

    steps: int | None  # of an epoch; None: not known before the first
    data: tf.data.Dataset  # the training batches
    is_validated: bool

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy) -> None:
        self.model, self.strategy = model, strategy

    def prepare(self) -> None:
        """Build the model and its optimizers, and check its metrics."""
        build(self.model, self.strategy, self.data.element_spec)
        self._check_metrics()

    def train(
        self,
        callbacks: list[keras.callbacks.Callback],
        *,
        epochs: int,
        initial_epoch: int,
        verbose: Any,
        validation_freq: int | Sequence[int],
    ) -> None:
        """Train from an epoch to the last, as `keras.Model.fit` does."""
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
        called.on_train_begin()
        logs: dict[str, Any] = {}
        for epoch in range(initial_epoch, epochs):
            called.on_epoch_begin(epoch)
            logs = self.train_epoch(called)
            if self.is_validated and model._should_eval(epoch, validation_freq):
                called.on_test_begin()
                found = self.validate(called)
                called.on_test_end(found)
                logs |= {f"val_{name}": value for name, value in found.items()}
            called.on_epoch_end(epoch, logs)
            if self.is_stopped():
                break
        model.optimizer.finalize_variable_values(model.trainable_weights)
        called.on_train_end(logs)
        strategies.barrier(self.strategy)  # No worker may leave while another needs it.

    @abc.abstractmethod
    def train_epoch(self, called: keras.callbacks.CallbackList) -> dict[str, float]:
        """Run the steps of an epoch; return its logs."""

    @abc.abstractmethod
    def validate(self, called: keras.callbacks.CallbackList) -> dict[str, float]:
        """Return the logs of the validation data."""

    def is_stopped(self) -> bool:
        """Return whether a callback of any process has stopped the training."""
        return bool(self.model.stop_training)

    def get_logs(self, logs: dict[str, Any]) -> dict[str, float]:
        """Return an epoch's logs, from those of its last batch and the metrics' states."""
        measured, logs = self.model.get_metrics_result(), flatten(logs)
        # A train_step of the user's own may return other values: those of the last batch are shown.
        found = {name: measured.get(name, value) for name, value in logs.items()}
        return pythonify_logs(keras.tree.map_structure(tf.convert_to_tensor, found))

    def take_first(self, results: Any) -> Any:
        """Return what the first of this process's replicas has returned."""
        local_results = self.strategy.experimental_local_results
        return keras.tree.map_structure(lambda value: local_results(value)[0], results)

    def _check_metrics(self) -> None:
        """Raise InputError unless the states of the user's own metrics are sums over the rows."""
        listed = [one for of in self.model.metrics for one in getattr(of, "metrics", [of])]
        own = [one for one in listed if not type(one).__module__.startswith("keras.")]
        if not own:
            return
        data = unwrap(next(iter(self.data)))
        half = len(keras.tree.flatten(data)[0]) // 2

        @tf.function(autograph=False)
        def measure() -> Any:
            def replica_measure() -> Any:
                variables = [[variable.value for variable in one.variables] for one in own]
                states = [tf.nest.map_structure(tf.identity, variables)]
                for rows in (slice(None), slice(half), slice(half, None)):
                    self.model.test_step(keras.tree.map_structure(lambda of, r=rows: of[r], data))
                    states.append(tf.nest.map_structure(tf.identity, variables))
                tf.nest.map_structure(lambda one, value: one.assign(value), variables, states[0])
                return states

            return self.take_first(self.strategy.run(replica_measure))

        for one, *states in zip(own, *measure(), strict=True):
            for values in zip(*states, strict=True):
                whole, first, second = np.diff(values, axis=0)
                if not np.allclose(whole, first + second, rtol=1e-3, atol=1e-5):
                    raise InputError(
                        f"the metric {one.name!r} can't be computed by several replicas, because "
                        "its state over two halves of a batch does not add up to that over the "
                        "batch; leave it out, or keep sums over rows in its variables"
                    )


class MirroredFit(FitLoop):
    """One worker's part of a training whose replicas compute each step together."""

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        cluster: Cluster,
        training: dict[str, Any],
        validation: dict[str, Any] | None,
    ) -> None:
        super().__init__(model, strategy)
        self._is_alone = cluster.trainers == 1
        # Keras' adapter is made once: each takes batches from a generator.
        self._training = DividedBatches(strategy, cluster, **training)
        self.steps, self.data = self._training.num_batches, self._training.undivided
        self.is_validated = validation is not None
        self.prepare()
        self._train_step = self._make_step(model.train_step, self._training)
        if validation:
            self._validation = DividedBatches(strategy, cluster, **validation)
            self._test_step = self._make_step(model.test_step, self._validation)

    def train_epoch(self, called: keras.callbacks.CallbackList) -> dict[str, float]:
        begin, end = called.on_train_batch_begin, called.on_train_batch_end
        return self._run_epoch(self._training, self._train_step, begin, end)

    def validate(self, called: keras.callbacks.CallbackList) -> dict[str, float]:
        self._validation.reset()  # Each epoch is validated on the same steps.
        begin, end = called.on_test_batch_begin, called.on_test_batch_end
        return self._run_epoch(self._validation, self._test_step, begin, end)

    def train(self, *arguments: Any, initial_epoch: int, **options: Any) -> None:
        if not self._agree(initial_epoch):
            raise InputError(
                f"the workers do not all begin with epoch {initial_epoch + 1}; give each the same "
                "initial_epoch, and a directory that all can read"
            )
        super().train(*arguments, initial_epoch=initial_epoch, **options)

    def is_stopped(self) -> bool:
        self.model.stop_training = self._sum(float(self.model.stop_training)) > 0
        return bool(self.model.stop_training)

    def _run_epoch(
        self,
        parts: DividedBatches,
        step: Callable[..., tuple[dict[str, Any], tf.Tensor]],
        begin: Callable[[int], None],
        end: Callable[[int, Any], None],
    ) -> dict[str, float]:
        """Run a step on every batch; return the logs of all replicas."""
        model = self.model
        model.reset_metrics()
        logs: dict[str, Any] = {}
        stops = tf.zeros([])
        with parts.catch_stop_iteration():
            for first, last, iterator in parts:
                begin(first)
                batches = [next(iterator)]
                batches += itertools.islice(iterator, last - first)
                for batch in batches:
                    before = stops
                    logs, stops = step(*batch, float(model.stop_training))
                end(last, logs)
                if first == 0 and not self._agree(int(batches[0][-1])):
                    warnings.warn(_DIFFERENT, stacklevel=6)
                # Other workers learn of a stop by the next step, and this one does not wait for it.
                if before > 0 or (self._is_alone and model.stop_training):
                    break
        return self.get_logs(logs)

    def _make_step(self, function: Callable[[Any], Any], parts: DividedBatches) -> Any:
        """Return a function that runs Keras' train_step or test_step on all replicas."""
        kept = (keras.Model.train_step, keras.Model.test_step)
        has_own_logs = (type(self.model).train_step, type(self.model).test_step) != kept
        share = threading.local()  # tf.distribute traces each replica in its own thread.

        @tf.function(
            autograph=False, input_signature=[*parts.specification, tf.TensorSpec([], tf.float32)]
        )
        def step(local: Any, total: tf.Tensor, checksum: tf.Tensor, stop: tf.Tensor) -> Any:
            def replica_step() -> Any:
                replica_context = tf.distribute.get_replica_context()
                replica = int(tf.get_static_value(replica_context.replica_id_in_sync_group))
                rows, place, count = local[replica - parts.first]
                share.value = count / total
                number = keras.tree.flatten(rows)[0].shape[0]  # None if it differs between batches.
                draws.set_rows(place, number or tf.maximum(count, 1))
                states = [one.value for of in self.model.metrics for one in of.variables]
                before = [tf.convert_to_tensor(state) for state in states]
                logs = function(rows)
                if has_own_logs:  # Of which metrics are replaced at the end of the epoch.
                    logs = {
                        name: replica_sums.mean(of, share.value)
                        for name, of in flatten(logs).items()
                    }
                for state, value in zip(states, before, strict=True):
                    state.assign(tf.where(count > 0, state, value))
                stops = 0.0 if self._is_alone else replica_sums.all_reduce(stop)
                return logs, stops

            summed = [
                replica_sums.sum_gradients(one, share)
                for one in replica_sums.list_optimizers(self.model)
            ]
            with contextlib.ExitStack() as stack:
                for one in (replica_sums.means_of_local_rows(), draws.by_place(), *summed):
                    stack.enter_context(one)
                results = self.strategy.run(replica_step)
            return self.take_first(results)

        return step

    def _agree(self, value: int) -> bool:
        """Return whether all workers have the same number, which is below 2^20."""
        total, squares = self._sum([value, value * value])
        return total * total == squares * self.strategy.num_replicas_in_sync

    def _sum(self, values: Any) -> np.ndarray:
        """Return the sums over the replicas, of which those of one worker have the same values."""
        total = self.strategy.run(replica_sums.add, args=(tf.cast(values, tf.float64),))
        return self.take_first(total).numpy()


def flatten(logs: dict[str, Any]) -> dict[str, Any]:
    """Return logs with the values of dicts in them, as Keras shows them."""
    flat: dict[str, Any] = {}
    for name, value in logs.items():
        flat |= flatten(value) if isinstance(value, dict) else {name: value}
    return flat
