"""Keras' `fit`, also on several workers.

    from trainer.fit import fit

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([...])
        model.compile("adam", "mse", metrics=["mae"])
    history = fit(model, dataset, epochs=10, directory="gs://bucket/run")

Keras 3's own `fit` fails under MultiWorkerMirroredStrategy (keras#20585). This one trains what
`compile` says, with the arguments, callbacks and results of Keras, as one process would:

- Every worker reads the same global batches, and learns from its rows of each. Gradients are those
  of the mean over the global batch, however its rows are divided.
- Metrics are sums over all rows. Their states are added up at the end of each epoch; the logs of a
  batch are the worker's own.
- All workers run the callbacks, and stop together, at the end of an epoch. Only the chief runs
  those that write files, and shows progress.
- With `directory`, the chief saves a checkpoint after each epoch. A job that is started again goes
  on with the next one.

Without a strategy of several replicas, the model's own `fit` trains.
"""

import contextlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src.losses import loss as keras_loss
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.trainers.epoch_iterator import EpochIterator

from trainer.errors import InputError
from trainer.training.cluster import Cluster, from_environment
from trainer.training.strategies import barrier

_WRITERS = (
    keras.callbacks.BackupAndRestore,
    keras.callbacks.CSVLogger,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
)
"""Callbacks that only the chief runs."""
_MEANS = ("mean", "sum_over_batch_size")
"""Reductions of losses that are means over the rows."""


def fit(
    model: keras.Model,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool = True,
    class_weight: dict[int, float] | None = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int | Sequence[int] = 1,
    *,
    directory: str = "",
) -> keras.callbacks.History:
    """Train a compiled model as `keras.Model.fit` does, and return its History.

    All arguments but the last are those of `keras.Model.fit`; a batch is that of all replicas
    together. Every worker of a job must give the same ones. Raise InputError for what can't be
    trained on several workers.

    Args:
        directory: folder of checkpoints, which all workers can read. If it has one, training goes
            on from it.
    """
    cluster = from_environment(os.environ)
    strategy = model.distribute_strategy
    _check(model, strategy, cluster)
    if validation_split and validation_data is None:
        (x, y, sample_weight), validation_data = array_slicing.train_validation_split(
            (x, y, sample_weight), validation_split=validation_split
        )
    training = {
        "x": x,
        "y": y,
        "sample_weight": sample_weight,
        "batch_size": batch_size,
        "steps_per_epoch": steps_per_epoch,
        "shuffle": shuffle,
        "class_weight": class_weight,
    }
    both = [one for one in callbacks or () if not isinstance(one, _WRITERS)]
    called = [*(callbacks or ())] if cluster.is_chief else [*both]
    history = keras.callbacks.History()
    called.append(history)
    if directory:
        build(model, strategy, EpochIterator(**training))
        checkpoints = Checkpoints(directory, cluster, model, history, both)
        called.append(checkpoints)
        initial_epoch = max(initial_epoch, checkpoints.restore())
    if initial_epoch >= epochs:
        return history
    common: dict[str, Any] = {
        "epochs": epochs,
        "initial_epoch": initial_epoch,
        "validation_freq": validation_freq,
    }
    if strategy.num_replicas_in_sync == 1:
        return model.fit(
            **training,
            **common,
            verbose=verbose,
            callbacks=called,
            validation_data=validation_data,
            validation_steps=validation_steps,
            validation_batch_size=validation_batch_size,
        )
    validation = None
    if validation_data is not None:
        of_validation = data_adapter_utils.unpack_x_y_sample_weight(validation_data)
        validation = dict(zip(("x", "y", "sample_weight"), of_validation, strict=True))
        validation["batch_size"] = validation_batch_size or batch_size
        validation["steps_per_epoch"] = validation_steps
    run = _Run(model, strategy, cluster, training, validation)
    run.train(called, verbose=verbose if cluster.is_chief else 0, **common)
    return history


def _check(model: keras.Model, strategy: tf.distribute.Strategy, cluster: Cluster) -> None:
    """Raise InputError unless the model can be trained on the replicas of the cluster."""
    if not model.compiled:
        raise InputError(f"the model {model.name!r} is not compiled; call its compile first")
    if cluster.addresses.get("ps"):
        raise InputError(
            "TF_CONFIG lists parameter servers, which fit does not use; train without them, or "
            "with strategy='parameter_server' of the pipeline"
        )
    if cluster.trainers > 1 and not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        raise InputError(
            f"TF_CONFIG lists {cluster.trainers} workers, but the model {model.name!r} was built "
            "without them; first create tf.distribute.MultiWorkerMirroredStrategy(), and build and "
            "compile the model in its scope"
        )
    if strategy.num_replicas_in_sync == 1:
        return
    if model.run_eagerly:
        raise InputError("run_eagerly=True can't be used on several replicas; leave it out")
    for name in ("gradient_accumulation_steps", "ema_overwrite_frequency"):
        if value := getattr(model.optimizer, name, None):
            raise InputError(f"{name}={value} can't be used on several replicas; leave it out")
    for loss in tf.nest.flatten(model.loss):
        reduction = getattr(loss, "reduction", _MEANS[0])
        if reduction not in _MEANS:
            raise InputError(
                f"the loss {loss.name!r} has reduction={reduction!r}, which is no mean over the "
                f"rows of all replicas; use {_MEANS[1]!r}"
            )


class _Parts(EpochIterator):
    """Batches divided among replicas: for each local replica its rows and their number."""

    def __init__(
        self, strategy: tf.distribute.Strategy, cluster: Cluster, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._replicas = strategy.num_replicas_in_sync
        local = len(strategy.extended.worker_devices)
        first = local * cluster.trainer_index
        self._places = range(first, first + local)
        dataset = self.data_adapter.get_tf_dataset()
        self._dataset = dataset.map(self._divide, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def _divide(self, *batch: Any) -> Any:
        """Return a batch's rows and their number, for each local replica, and the total.

        A replica without rows gets one that does not count.
        """
        data = batch if len(batch) > 1 else batch[0]
        total = tf.shape(next(iter(keras.tree.flatten(data))))[0]
        parts = []
        for place in self._places:
            start = place * total // self._replicas
            count = (place + 1) * total // self._replicas - start
            start = tf.minimum(start, total - 1)
            stop = start + tf.maximum(count, 1)
            rows = keras.tree.map_structure(lambda of, a=start, b=stop: of[a:b], data)
            parts.append((rows, count))
        return tuple(parts), total

    def _get_iterator(self) -> Any:
        return self._dataset

    def __next__(self) -> Any:
        return next(self._epoch_iterator)


class _Run:
    """One worker's part of a training."""

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        cluster: Cluster,
        training: dict[str, Any],
        validation: dict[str, Any] | None,
    ) -> None:
        self._model, self._strategy = model, strategy
        self._training = _Parts(strategy, cluster, **training)
        self._validation = _Parts(strategy, cluster, **validation) if validation else None
        build(model, strategy, EpochIterator(**training))
        self._train_step = self._make_step(model.train_step)
        self._test_step = self._make_step(model.test_step)

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
        model = self._model
        called = keras.callbacks.CallbackList(
            callbacks,
            add_progbar=verbose != 0,
            verbose=1 if verbose == "auto" else verbose,
            epochs=epochs,
            steps=self._training.num_batches,
            model=model,
        )
        replicas = self._strategy.num_replicas_in_sync
        if self._sum(float(initial_epoch)) != replicas * initial_epoch:
            raise InputError(
                f"the workers do not all begin with epoch {initial_epoch + 1}; give each the same "
                "initial_epoch, and a directory that all can read"
            )
        model.stop_training = False
        called.on_train_begin()
        logs: dict[str, Any] = {}
        for epoch in range(initial_epoch, epochs):
            called.on_epoch_begin(epoch)
            logs = self._run_epoch(
                self._training, self._train_step, called.on_train_batch_begin,
                called.on_train_batch_end,
            )  # fmt: skip
            if self._validation and model._should_eval(epoch, validation_freq):
                called.on_test_begin()
                found = self._run_epoch(
                    self._validation, self._test_step, called.on_test_batch_begin,
                    called.on_test_batch_end,
                )  # fmt: skip
                called.on_test_end(found)
                logs |= {f"val_{name}": value for name, value in found.items()}
            called.on_epoch_end(epoch, logs)
            model.stop_training = self._sum(float(model.stop_training)) > 0
            if model.stop_training:
                break
        model.optimizer.finalize_variable_values(model.trainable_weights)
        called.on_train_end(logs)
        barrier(self._strategy)  # No worker may leave while another needs it.

    def _run_epoch(
        self,
        parts: _Parts,
        step: Callable[..., dict[str, tf.Tensor]],
        begin: Callable[[int], None],
        end: Callable[[int, Any], None],
    ) -> dict[str, float]:
        """Run a step on every batch; return the logs of all replicas."""
        model = self._model
        model.reset_metrics()
        if parts is self._validation:
            parts.reset()  # Each epoch is validated on the same steps.
        logs: dict[str, Any] = {}
        with parts.catch_stop_iteration():
            for number, _, iterator in parts:
                begin(number)
                local, total = next(iterator)
                rows, counts = (self._distribute(of) for of in zip(*local, strict=True))
                logs = step(rows, counts, total)
                end(number, logs)
        measured = model.get_metrics_result()
        # A train_step of the user's own may return other values: the last ones' mean is shown.
        others = {
            name: self._sum(logs[name]) / self._strategy.num_replicas_in_sync
            for name in sorted(set(logs) - set(measured))
        }
        found = measured if not others else {**measured, **others}
        return {name: float(value) for name, value in found.items() if name in logs}

    def _distribute(self, values: Sequence[Any]) -> Any:
        """Return values of local replicas as one of tf.distribute's."""
        if len(values) == 1:
            return values[0]
        return keras.tree.map_structure(
            lambda *parts: self._strategy.experimental_distribute_values_from_function(
                lambda context: parts[context.replica_id_in_sync_group % len(parts)]
            ),
            *values,
        )

    def _make_step(self, function: Callable[[Any], Any]) -> Callable[..., dict[str, tf.Tensor]]:
        """Return a function that runs Keras' train_step or test_step on all replicas."""

        share = [tf.constant(1.0)]

        def replica_step(rows: Any, count: tf.Tensor, total: tf.Tensor) -> Any:
            share[0] = count / total
            states = [one.value for of in self._model.metrics for one in of.variables]
            before = [tf.convert_to_tensor(state) for state in states]
            logs = function(rows)
            for state, value in zip(states, before, strict=True):
                state.assign(tf.where(count > 0, state, value))
            return logs

        @tf.function(autograph=False, reduce_retracing=True)
        def step(rows: Any, counts: Any, total: tf.Tensor) -> Any:
            with _means_of_local_rows(), _sum_gradients(self._model.optimizer, share):
                logs = self._strategy.run(replica_step, args=(rows, counts, total))
            local = self._strategy.experimental_local_results
            return keras.tree.map_structure(lambda value: local(value)[0], logs)

        return step

    def _sum(self, value: Any) -> float:
        """Return the sum of the replicas' values; one worker's replicas have the same."""
        total = self._strategy.run(_add, args=(tf.cast(value, tf.float32),))
        return float(self._strategy.experimental_local_results(total)[0])


@tf.function(autograph=False)
def _add(value: tf.Tensor) -> tf.Tensor:
    context = tf.distribute.get_replica_context()
    # On the replica's device, which the argument does not have.
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value * tf.ones([]))


@contextlib.contextmanager
def _means_of_local_rows() -> Iterator[None]:
    """Let Keras' losses be means over a replica's rows.

    Keras divides them by the number of replicas, which is right only if all have equally many rows;
    the losses of a train_step of the user's own may not be divided.
    """
    with contextlib.ExitStack() as stack:
        for name in ("scale_loss_for_distribution", "unscale_loss_for_distribution"):
            stack.enter_context(mock.patch.object(keras_loss, name, lambda value: value))
        yield


@contextlib.contextmanager
def _sum_gradients(optimizer: keras.optimizers.Optimizer, share: list[tf.Tensor]) -> Iterator[None]:
    """Let an optimizer apply the sum of the replicas' gradients, each times the replica's share.

    Keras would sum them after it has clipped those of each replica. `share` has the share of the
    replica whose step is traced.
    """
    apply = optimizer.apply

    def apply_sum(grads: Any, trainable_variables: Any = None) -> Any:
        context = tf.distribute.get_replica_context()
        known = [tf.convert_to_tensor(one) for one in grads if one is not None]
        # A replica without rows has a loss that may be NaN.
        parts = [tf.math.multiply_no_nan(one, tf.cast(share[0], one.dtype)) for one in known]
        summed = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, parts))
        return apply([one if one is None else next(summed) for one in grads], trainable_variables)

    inner: Any = optimizer
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(optimizer, "apply", apply_sum))
        while inner is not None:
            unchanged = mock.patch.object(
                inner, "_all_reduce_sum_gradients", lambda grads_and_vars: grads_and_vars
            )
            stack.enter_context(unchanged)
            inner = getattr(inner, "inner_optimizer", None)
        yield


def build(model: keras.Model, strategy: tf.distribute.Strategy, batches: EpochIterator) -> None:
    """Build a model, its metrics and its optimizer from the shapes of a batch."""
    # Not from a batch itself, because a dataset may shuffle otherwise after an iterator was made.
    specification = batches.data_adapter.get_tf_dataset().element_spec
    data = keras.tree.map_structure(
        lambda of: of if isinstance(of, tf.TensorSpec) else None, specification
    )
    with strategy.scope():
        model._symbolic_build(data_batch=data)
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)


class Checkpoints(keras.callbacks.Callback):
    """Save and restore a training after each epoch, with the state of its callbacks.

    Every worker saves, as tf.distribute requires; those other than the chief to a temporary folder.
    """

    def __init__(
        self,
        directory: str,
        cluster: Cluster,
        model: keras.Model,
        history: keras.callbacks.History,
        callbacks: Sequence[keras.callbacks.Callback],
    ) -> None:
        super().__init__()
        self._history, self._callbacks = history, callbacks
        self._temporary = "" if cluster.is_chief else tempfile.mkdtemp(prefix="fit-")
        metrics = {id(variable) for metric in model.metrics for variable in metric.variables}
        variables = [one for one in model.variables if id(one) not in metrics]
        # The finished epochs, their history and the callbacks' numbers; and their arrays.
        self._numbers, self._arrays = (tf.Variable("", dtype=tf.string) for _ in range(2))
        checkpoint = tf.train.Checkpoint(
            variables=[one.value for one in (*variables, *model.optimizer.variables)],
            numbers=self._numbers,
            arrays=self._arrays,
        )
        self._newest = tf.train.latest_checkpoint(directory)
        self._manager = tf.train.CheckpointManager(
            checkpoint, self._temporary or directory, max_to_keep=2
        )

    def restore(self) -> int:
        """Restore the newest checkpoint, if there is one; return the next epoch, from 0."""
        if not self._newest:
            return 0
        self._manager.checkpoint.restore(self._newest).assert_consumed()
        state = json.loads(self._numbers.numpy())
        self._history.history = state["history"]
        return int(state["epoch"])

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the state of the other callbacks, whose on_train_begin was called before."""
        if not self._newest:
            return
        state = json.loads(self._numbers.numpy())
        self._history.epoch = list(range(state["epoch"]))
        arrays = np.load(io.BytesIO(self._arrays.numpy()))
        for name, callback in self._named():
            # Callbacks that compare values set this up at the end of their first epoch.
            if getattr(callback, "monitor_op", False) is None:
                callback._set_monitor_op()
            vars(callback).update(state["callbacks"].get(name, {}))
            for attribute, count in state["arrays"].get(name, {}).items():
                restored = [arrays[f"{name}/{attribute}/{place}"] for place in range(count)]
                setattr(callback, attribute, restored)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        numbers: dict[str, dict[str, Any]] = {}
        lists: dict[str, dict[str, list[np.ndarray]]] = {}
        for name, callback in self._named():
            numbers[name], lists[name] = {}, {}
            for attribute, value in vars(callback).items():
                if isinstance(value, bool | int | float | str | np.number):
                    numbers[name][attribute] = value
                if isinstance(value, list) and all(isinstance(one, np.ndarray) for one in value):
                    lists[name][attribute] = value
        arrays = io.BytesIO()
        named: Any = {
            f"{name}/{attribute}/{place}": array
            for name, of in lists.items()
            for attribute, value in of.items()
            for place, array in enumerate(value)
        }
        np.savez(arrays, **named)
        counts = {
            name: {attribute: len(value) for attribute, value in of.items()}
            for name, of in lists.items()
        }
        state = {"epoch": epoch + 1, "callbacks": numbers, "arrays": counts}
        state["history"] = self._history.history
        self._numbers.assign(json.dumps(state, default=float))
        self._arrays.assign(arrays.getvalue())
        self._manager.save(checkpoint_number=epoch + 1)
        if self._temporary:
            shutil.rmtree(self._temporary)

    def _named(self) -> Iterator[tuple[str, keras.callbacks.Callback]]:
        """Yield the callbacks, with names that are the same in each process."""
        for place, callback in enumerate(self._callbacks):
            yield f"{place}-{type(callback).__name__}", callback
