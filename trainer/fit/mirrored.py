"""Training by `trainer.fit` on several replicas, which compute each step together."""

import contextlib
import itertools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.errors import InputError
from trainer.fit import replica_sums
from trainer.fit.divided_batches import DividedBatches
from trainer.fit.fit_loop import FitLoop, flatten
from trainer.training import draws

_DIFFERENT = (
    "The workers read different batches, and each learns from its rows of its own. If more than "
    "augmentation differs, rows are learned twice or never: import trainer.fit, or call "
    "keras.utils.set_random_seed, before the data is shuffled, or seed every shuffle."
)


class MirroredFit(FitLoop):
    """One worker's part of a training whose replicas compute each step together."""

    def open_training(self, training: dict[str, Any]) -> tuple[int | None, tf.data.Dataset]:
        # Keras' adapter is made once: each takes batches from a generator.
        self._training = DividedBatches(self.strategy, self.cluster, self.epochs, **training)
        return self._training.num_batches, self._training.undivided

    def make_steps(self, validation: dict[str, Any] | None) -> None:
        self._train_step = self._make_step(self.model.train_step, self._training)
        if validation:
            self._validation = DividedBatches(self.strategy, self.cluster, 1, **validation)
            self._test_step = self._make_step(self.model.test_step, self._validation)

    @property
    def _is_alone(self) -> bool:
        return self.cluster.trainers == 1

    def train_epoch(self, called: keras.callbacks.CallbackList, done: int) -> dict[str, float]:
        begin, end = called.on_train_batch_begin, called.on_train_batch_end
        return self._run_epoch(self._training, self._train_step, begin, end, done)

    def validate(self, called: keras.callbacks.CallbackList) -> dict[str, float]:
        self.model.reset_metrics()
        self._validation.reset()  # Each epoch is validated on the same steps.
        begin, end = called.on_test_batch_begin, called.on_test_batch_end
        return self._run_epoch(self._validation, self._test_step, begin, end)

    def train(
        self, *arguments: Any, initial_epoch: int, initial_step: int = 0, **options: Any
    ) -> None:
        if not (self._agree(initial_epoch) and self._agree(initial_step % 2**20)):
            raise InputError(
                f"the workers do not all begin with epoch {initial_epoch + 1}, step "
                f"{initial_step + 1}; give each the same initial_epoch, and a directory that all "
                "can read"
            )
        options |= {"initial_epoch": initial_epoch, "initial_step": initial_step}
        super().train(*arguments, **options)

    def is_stopped(self) -> bool:
        self.model.stop_training = self._sum(float(self.model.stop_training)) > 0
        return bool(self.model.stop_training)

    def _run_epoch(
        self,
        parts: DividedBatches,
        step: Callable[..., tuple[dict[str, Any], tf.Tensor]],
        begin: Callable[[int], None],
        end: Callable[[int, Any], None],
        done: int = 0,
    ) -> dict[str, float]:
        """Run a step on every batch after those that are done; return the logs of all replicas."""
        model = self.model
        logs: dict[str, Any] = {}
        stops = tf.zeros([])
        with parts.catch_stop_iteration():
            for first, last, iterator in parts:
                if first >= done:
                    begin(first)
                batches = [next(iterator)]
                batches += itertools.islice(iterator, last - first)
                if first < done:
                    continue
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
                rows, offset, count = local[replica - parts.first]
                share.value = count / total
                number = keras.tree.flatten(rows)[0].shape[0]  # None if it differs between batches.
                draws.set_rows(offset, number or tf.maximum(count, 1))
                states = [
                    variable.value for metric in self.model.metrics for variable in metric.variables
                ]
                before = [tf.convert_to_tensor(state) for state in states]
                logs = function(rows)
                if has_own_logs:  # Of which metrics are replaced at the end of the epoch.
                    logs = {
                        name: replica_sums.mean(value, share.value)
                        for name, value in flatten(logs).items()
                    }
                for state, value in zip(states, before, strict=True):
                    state.assign(tf.where(count > 0, state, value))
                stops = 0.0 if self._is_alone else replica_sums.all_reduce(stop)
                return logs, stops

            summed = [
                replica_sums.sum_gradients(optimizer, share)
                for optimizer in replica_sums.list_optimizers(self.model)
            ]
            with contextlib.ExitStack() as stack:
                for change in (replica_sums.means_of_local_rows(), draws.by_row(), *summed):
                    stack.enter_context(change)
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
