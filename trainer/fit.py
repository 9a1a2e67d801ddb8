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
  of the mean over the global batch, however its rows are divided, and so are dropout and other
  draws of keras.random (trainer/training/draws.py).
- Metrics are sums over all rows. Their states are added up at the end of each epoch; the logs of a
  batch are the worker's own.
- All workers run the callbacks, and stop together. Only the chief writes their files, and shows
  progress.
- With `directory`, the chief saves a checkpoint after each epoch. A job that is started again goes
  on with the next one.

Without a strategy of several replicas, the model's own `fit` trains.

Workers that import this module before they have set a random seed get the same one, so that they
shuffle alike.
"""

import atexit
import contextlib
import functools
import hashlib
import io
import itertools
import json
import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src.losses import loss as keras_loss
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.src.utils.python_utils import pythonify_logs
from tensorflow.python.eager import context

from trainer.errors import InputError
from trainer.training import draws, strategies
from trainer.training.cluster import Cluster, from_environment

_WRITERS = (
    keras.callbacks.CSVLogger,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
)
"""Callbacks that only the chief runs."""
_DIFFERENT = (
    "The workers read different batches, and each learns from its rows of its own. If more than "
    "augmentation differs, rows are learned twice or never: import trainer.fit, or call "
    "keras.utils.set_random_seed, before the data is shuffled, or seed every shuffle."
)
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
    _check(model, strategy, cluster, callbacks or ())
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
        "shuffle": shuffle and not isinstance(x, tf.data.Dataset),
        "class_weight": class_weight,
        "steps_per_execution": model.steps_per_execution,
    }
    both = [one for one in callbacks or () if not isinstance(one, _WRITERS)]
    if not cluster.is_chief:
        _save_elsewhere(both)
    called = [*(callbacks or ())] if cluster.is_chief else [*both]
    history = keras.callbacks.History()
    called.append(history)
    if verbose == "auto":
        verbose = 1 if sys.stdout.isatty() else 2
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
        training.pop("steps_per_execution")
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


def _save_elsewhere(callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Let models be saved to a temporary folder: saving may need all workers."""
    for one in callbacks:
        if isinstance(one, keras.callbacks.ModelCheckpoint):
            folder = tempfile.mkdtemp(prefix="fit-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            one.filepath = str(Path(folder) / Path(one.filepath).name)


def create_strategy() -> tf.distribute.Strategy:
    """Return the tf.distribute strategy for all workers of this process's job and their GPUs.

    Call it before any other TensorFlow operation.
    """
    cluster = from_environment(os.environ)
    name = strategies.resolve("auto", cluster)
    # In OneDeviceStrategy's scope, Keras' fit takes a batch before the first epoch.
    alone = name == "one_device"
    return tf.distribute.get_strategy() if alone else strategies.create_strategy(name, cluster)


def _check(
    model: keras.Model,
    strategy: tf.distribute.Strategy,
    cluster: Cluster,
    callbacks: Sequence[keras.callbacks.Callback],
) -> None:
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
    if any(isinstance(one, keras.callbacks.BackupAndRestore) for one in callbacks):
        raise InputError(
            "the callback BackupAndRestore can't be used on several replicas; give fit a directory"
        )
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


def _seed_workers(cluster: Cluster) -> None:
    """Give the workers of a job the same random seed, unless this one has set its own."""
    if cluster.trainers > 1 and context.global_seed() is None:
        addresses = json.dumps(cluster.addresses, sort_keys=True).encode()
        keras.utils.set_random_seed(int(hashlib.sha256(addresses).hexdigest()[:8], 16))


_seed_workers(from_environment(os.environ))


class _Parts(EpochIterator):
    """Batches divided among replicas.

    An element is the rows, their place and number for each local replica, and the batch's size and
    its checksum if it is an iterator's first, else 0.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, cluster: Cluster, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._replicas = strategy.num_replicas_in_sync
        local = len(strategy.extended.worker_devices)
        self.first = local * cluster.trainer_index
        self._places = range(self.first, self.first + local)
        dataset = self.data_adapter.get_tf_dataset().enumerate()
        if isinstance(arguments["x"], keras.utils.PyDataset):  # It reads ahead itself.
            self._dataset = dataset.map(self._divide)
        else:
            self._dataset = dataset.map(self._divide, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
        self.specification = self._dataset.element_spec

    def _divide(self, number: tf.Tensor, batch: Any) -> Any:
        """Return the element of a batch; a replica without rows gets one that does not count."""
        data = batch if not isinstance(batch, tuple) or len(batch) > 1 else batch[0]
        tensors = keras.tree.flatten(data)
        total = tf.shape(tensors[0])[0]
        parts = []
        for place in self._places:
            start = place * total // self._replicas
            count = (place + 1) * total // self._replicas - start
            start = tf.minimum(start, total - 1)
            stop = start + tf.maximum(count, 1)
            rows = keras.tree.map_structure(lambda of, a=start, b=stop: of[a:b], data)
            parts.append((rows, start, count))
        checksum = tf.cond(number == 0, lambda: _hash(tensors), lambda: tf.constant(0, tf.int64))
        return tuple(parts), total, checksum

    def _get_iterator(self) -> Any:
        return self._dataset

    def __next__(self) -> Any:
        return next(self._epoch_iterator)


def _hash(tensors: Sequence[Any]) -> tf.Tensor:
    """Return a checksum of tensors, below 2^20, int64 []."""
    flat = tf.nest.flatten(tensors, expand_composites=True)
    serialized = tf.strings.join([tf.io.serialize_tensor(one) for one in flat])
    return tf.strings.to_hash_bucket_fast(serialized, 2**20)


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
        self._is_alone = cluster.trainers == 1
        build(model, strategy, EpochIterator(**training))
        self._training = _Parts(strategy, cluster, **training)
        self._validation = _Parts(strategy, cluster, **validation) if validation else None
        self._check_metrics()
        self._build_optimizers()
        self._train_step = self._make_step(model.train_step, self._training)
        self._test_step = self._validation and self._make_step(model.test_step, self._validation)

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
            verbose=verbose,
            epochs=epochs,
            steps=self._training.num_batches,
            model=model,
        )
        if not self._agree(initial_epoch):
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
            if self._validation and self._test_step and model._should_eval(epoch, validation_freq):
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
        strategies.barrier(self._strategy)  # No worker may leave while another needs it.

    def _run_epoch(
        self,
        parts: _Parts,
        step: Callable[..., tuple[dict[str, Any], tf.Tensor]],
        begin: Callable[[int], None],
        end: Callable[[int, Any], None],
    ) -> dict[str, float]:
        """Run a step on every batch; return the logs of all replicas."""
        model = self._model
        model.reset_metrics()
        if parts is self._validation:
            parts.reset()  # Each epoch is validated on the same steps.
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
                    warnings.warn(_DIFFERENT, stacklevel=4)
                # Other workers learn of a stop by the next step, and this one does not wait for it.
                if before > 0 or (self._is_alone and model.stop_training):
                    break
        measured, logs = model.get_metrics_result(), _flatten(logs)
        # A train_step of the user's own may return other values: those of the last batch are shown.
        found = {name: measured.get(name, value) for name, value in logs.items()}
        return pythonify_logs(keras.tree.map_structure(tf.convert_to_tensor, found))

    def _make_step(self, function: Callable[[Any], Any], parts: _Parts) -> Any:
        """Return a function that runs Keras' train_step or test_step on all replicas."""
        kept = (keras.Model.train_step, keras.Model.test_step)
        has_own_logs = (type(self._model).train_step, type(self._model).test_step) != kept
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
                states = [one.value for of in self._model.metrics for one in of.variables]
                before = [tf.convert_to_tensor(state) for state in states]
                logs = function(rows)
                if has_own_logs:  # Of which metrics are replaced at the end of the epoch.
                    logs = {name: _mean(of, share.value) for name, of in _flatten(logs).items()}
                for state, value in zip(states, before, strict=True):
                    state.assign(tf.where(count > 0, state, value))
                stops = 0.0 if self._is_alone else _all_reduce(stop)
                return logs, stops

            summed = [_sum_gradients(one, share) for one in _optimizers(self._model)]
            with contextlib.ExitStack() as stack:
                for one in (_means_of_local_rows(), draws.by_place(), *summed):
                    stack.enter_context(one)
                results = self._strategy.run(replica_step)
            local_results = self._strategy.experimental_local_results
            return keras.tree.map_structure(lambda value: local_results(value)[0], results)

        return step

    def _check_metrics(self) -> None:
        """Raise InputError unless the states of the user's own metrics are sums over the rows."""
        listed = [one for of in self._model.metrics for one in getattr(of, "metrics", [of])]
        own = [one for one in listed if not type(one).__module__.startswith("keras.")]
        if not own:
            return
        batch = next(iter(self._training.data_adapter.get_tf_dataset()))
        data = batch if not isinstance(batch, tuple) or len(batch) > 1 else batch[0]
        half = len(keras.tree.flatten(data)[0]) // 2

        @tf.function(autograph=False)
        def measure() -> Any:
            def replica_measure() -> Any:
                variables = [[variable.value for variable in one.variables] for one in own]
                states = [tf.nest.map_structure(tf.identity, variables)]
                for rows in (slice(None), slice(half), slice(half, None)):
                    self._model.test_step(keras.tree.map_structure(lambda of, r=rows: of[r], data))
                    states.append(tf.nest.map_structure(tf.identity, variables))
                tf.nest.map_structure(lambda one, value: one.assign(value), variables, states[0])
                return states

            results = self._strategy.run(replica_measure)
            local_results = self._strategy.experimental_local_results
            return tf.nest.map_structure(lambda value: local_results(value)[0], results)

        for one, *states in zip(own, *measure(), strict=True):
            for values in zip(*states, strict=True):
                whole, first, second = np.diff(values, axis=0)
                if not np.allclose(whole, first + second, rtol=1e-3, atol=1e-5):
                    raise InputError(
                        f"the metric {one.name!r} can't be computed by several replicas, because "
                        "its state over two halves of a batch does not add up to that over the "
                        "batch; leave it out, or keep sums over rows in its variables"
                    )

    def _build_optimizers(self) -> None:
        """Build the optimizers that a train_step of the user's own would build in its first call.

        On several devices, a step can't create variables.
        """
        used: dict[keras.optimizers.Optimizer, dict[int, keras.Variable]] = {}
        with contextlib.ExitStack() as stack:
            for optimizer in _optimizers(self._model):
                if not optimizer.built:
                    used[optimizer] = {}
                    record = functools.partial(_record, used[optimizer])
                    stack.enter_context(mock.patch.object(optimizer, "apply", record))
            if used:
                self._make_step(self._model.train_step, self._training).get_concrete_function()
        with self._strategy.scope():
            for optimizer, variables in used.items():
                optimizer.build([*variables.values()])

    def _agree(self, value: int) -> bool:
        """Return whether all workers have the same number, which is below 2^20."""
        total, squares = self._sum([value, value * value])
        return total * total == squares * self._strategy.num_replicas_in_sync

    def _sum(self, values: Any) -> np.ndarray:
        """Return the sums over the replicas, of which those of one worker have the same values."""
        total = self._strategy.run(_add, args=(tf.cast(values, tf.float64),))
        return self._strategy.experimental_local_results(total)[0].numpy()


def _flatten(logs: dict[str, Any]) -> dict[str, Any]:
    """Return logs with the values of dicts in them, as Keras shows them."""
    flat: dict[str, Any] = {}
    for name, value in logs.items():
        flat |= _flatten(value) if isinstance(value, dict) else {name: value}
    return flat


def _mean(value: Any, share: tf.Tensor) -> tf.Tensor:
    """Return the mean over all rows of a value that is a mean over a replica's rows."""
    value = tf.cast(tf.convert_to_tensor(value), tf.float32)
    return _all_reduce(tf.math.multiply_no_nan(value, tf.cast(share, tf.float32)))


def _all_reduce(values: tf.Tensor) -> tf.Tensor:
    """Return the sum over the replicas of values that may be on another device."""
    here = values * tf.ones([], values.dtype)
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, here)


_add = tf.function(_all_reduce, autograph=False)


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


def _scale(gradient: Any, share: tf.Tensor) -> Any:
    """Return a replica's part of a gradient; without rows its loss may be NaN, and its part is 0.

    Gradients of embeddings stay sparse: Keras squares their rows one by one.
    """
    if isinstance(gradient, tf.IndexedSlices):
        values = _scale(gradient.values, share)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return tf.math.multiply_no_nan(gradient, tf.cast(share, gradient.dtype))


def _record(used: dict[int, keras.Variable], gradients: Any, variables: Any) -> None:
    """Add the variables that an optimizer's `apply` is given to `used`."""
    used.update({id(one): one for one in variables})


def _optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return the model's optimizer, and others that a train_step of the user's own may use."""
    listed = [model.optimizer, *vars(model).values()]
    return [*{id(one): one for one in listed if isinstance(one, keras.Optimizer)}.values()]


@contextlib.contextmanager
def _sum_gradients(optimizer: keras.optimizers.Optimizer, share: threading.local) -> Iterator[None]:
    """Let an optimizer apply the sum of the replicas' gradients, each times the replica's share.

    Keras would sum them after it has clipped those of each replica. `share.value` is that of the
    replica which is traced in the thread.
    """
    apply = optimizer.apply

    def apply_sum(grads: Any, trainable_variables: Any = None) -> Any:
        replica_context = tf.distribute.get_replica_context()
        parts = [_scale(one, share.value) for one in grads if one is not None]
        summed = iter(replica_context.all_reduce(tf.distribute.ReduceOp.SUM, parts))
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
    for one in tf.nest.flatten(specification):
        if isinstance(one, tf.RaggedTensorSpec | tf.SparseTensorSpec):
            raise InputError(
                f"the data has {one}, which can't be divided among replicas; make it dense"
            )
    data = keras.tree.map_structure(
        lambda of: of if isinstance(of, tf.TensorSpec) else None, specification
    )
    with strategy.scope():
        try:
            model._symbolic_build(data_batch=data)
        except RuntimeError:
            # A train_step of the user's own need not call the model.
            if type(model).train_step is keras.Model.train_step:
                raise
            return
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
        self._variables = [*variables, *model.optimizer.variables]
        # The finished epochs, their history and the callbacks' numbers; and their arrays.
        self._numbers, self._arrays = (tf.Variable("", dtype=tf.string) for _ in range(2))
        checkpoint = tf.train.Checkpoint(
            variables=[one.value for one in self._variables],
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
        shapes = tf.train.load_checkpoint(self._newest).get_variable_to_shape_map()
        for place, one in enumerate(self._variables):
            saved = shapes.get(f"variables/{place}/.ATTRIBUTES/VARIABLE_VALUE")
            if saved != [*one.shape]:
                raise InputError(
                    f"{self._newest} is of another model or optimizer: {one.path} has the shape "
                    f"{[*one.shape]}, there {saved}; give another directory"
                )
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
