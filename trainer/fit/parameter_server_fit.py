"""Training by `trainer.fit` with parameter servers: workers compute steps independently.

The chief schedules steps. For each, a worker reads the weights from the parameter servers, and
applies the gradients of the next batch of its data to them at once. Each worker has every n-th
batch of the data, from the first again after the last. The number of steps is exact: a lost
worker's step is done by another.

Metrics start anew in each step: assignments of several workers would overwrite each other. The
chief adds up the changes of their states. It also computes the validation.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer.engine.applied_optimizers import list_optimizers
from trainer.engine.batch_rows import count_rows, slice_rows, unwrap
from trainer.engine.compile_checks import check_compiled, is_own_metric, list_metrics
from trainer.engine.internals import (
    EpochIterator,
    GeneratorDataAdapter,
    PyDatasetAdapter,
    deserialize_dataset_from_graph,
    pythonify_logs,
    serialize_dataset_to_graph,
)
from trainer.engine.metric_states import add_changes
from trainer.engine.parameter_servers import Steps
from trainer.engine.step_trial import check_states
from trainer.engine.worker_step import make_worker_step
from trainer.fit.fit_loop import FitLoop
from vertex.errors import InputError


class AsynchronousFit(FitLoop):
    """The chief's part of a training with parameter servers."""

    steps: int

    def open_training(self, training: dict[str, Any]) -> tuple[int, tf.data.Dataset]:
        epoch = EpochIterator(**training)
        if isinstance(epoch.data_adapter, GeneratorDataAdapter | PyDatasetAdapter):
            raise InputError(
                "a generator or a PyDataset can't be read by the workers of parameter servers; "
                "give arrays or a tf.data.Dataset"
            )
        if epoch.num_batches is None:
            raise InputError(
                "the number of the data's batches is unknown; with parameter servers, give fit its "
                "steps_per_epoch"
            )
        return epoch.num_batches, epoch.data_adapter.get_tf_dataset()

    def make_steps(self, validation: dict[str, Any] | None) -> None:
        check_compiled(self.model)  # A MultiOptimizer chooses its optimizers when it is built.
        self._workers = len(self.cluster.addresses["worker"])
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        self._batches = iter(self._coordinator.create_per_worker_dataset(self._make_reader()))
        strategy = self.strategy
        train_step = make_worker_step(self.model, self.model.train_step, self.states)
        test_step = make_worker_step(self.model, self.model.test_step, self.states)

        def scheduled(batches: Any) -> Any:
            return strategy.run(train_step, args=(unwrap(next(batches)),))

        self._train_step = self._trace("train_step", scheduled)
        self._test_step = self._trace("test_step", test_step)
        self._check_metrics(self._test_step)
        if validation:
            epoch = EpochIterator(**validation)
            self._validation = epoch.data_adapter.get_tf_dataset().take(epoch.num_batches or -1)

    def _trace(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step's function, which is traced when it is called."""
        return self.traced.functions.setdefault(name, tf.function(step, autograph=False))

    def train_epoch(self, called: keras.callbacks.CallbackList, done: int) -> dict[str, float]:
        logs: dict[str, Any] = {}
        counts = [optimizer.iterations for optimizer in list_optimizers(self.model)]
        before = [int(count) for count in counts]
        running = Steps(self._coordinator, self._workers, self._train_step, self._batches)
        for logs, changes in running.run(
            range(done, self.steps), lambda: self.model.stop_training, called.on_train_batch_begin
        ):
            self._add(changes)
            called.on_train_batch_end(done, pythonify_logs(logs))
            done += 1
        for count, first in zip(counts, before, strict=True):
            # A lost worker's step may have been counted twice.
            count.assign(first + (int(count) - first) // max(done, 1) * done)
        return self.measure(logs)

    def validate(self, called: keras.callbacks.CallbackList) -> dict[str, float]:
        logs: dict[str, Any] = {}
        for number, batch in enumerate(self._validation):
            called.on_test_batch_begin(number)
            logs, changes = self._test_step(unwrap(batch))
            self._add(changes)
            called.on_test_batch_end(number, pythonify_logs(logs))
        return self.measure(logs)

    def _add(self, changes: tf.Tensor) -> None:
        """Add what a step has added to the metrics' states."""
        self.totals = add_changes(self.states.take_over(self.totals), changes)
        self.states.assign(self.totals)

    def _check_metrics(self, test_step: Callable[..., Any]) -> None:
        """Raise InputError unless the states of the user's own metrics are sums over the rows."""
        own = [metric for metric in list_metrics(self.model) if is_own_metric(metric)]
        if not own:
            return
        data = unwrap(next(iter(self.data)))
        half = count_rows(data) // 2
        whole, *parts = (
            self.states.split(test_step(slice_rows(data, begin, end))[1])
            for begin, end in ((None, None), (None, half), (half, None))
        )
        check_states(self.model, own, whole, parts)

    def _make_reader(self) -> Callable[[], tf.data.Dataset]:
        """Return a function that reads a worker's batches, without an end."""
        try:
            serialized = serialize_dataset_to_graph(self.data)
        except tf.errors.FailedPreconditionError:
            raise InputError(
                "the data use variables, as Keras' layers and keras.random do, which workers of "
                "parameter servers can't read; use them in the model, or functions of tf.random"
            ) from None
        specification, workers = self.data.element_spec, self._workers
        known = int(self.data.cardinality())
        is_short = 0 <= (self.steps if known == tf.data.UNKNOWN_CARDINALITY else known) < workers

        def read() -> tf.data.Dataset:
            data = deserialize_dataset_from_graph(serialized, specification)
            if not is_short:
                index = tf.distribute.coordinator.experimental_get_current_worker_index()
                data = data.shard(workers, tf.cast(index, tf.int64))
            return data.repeat().prefetch(tf.data.AUTOTUNE)

        return read
