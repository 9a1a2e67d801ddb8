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
import itertools
import json
import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.src.utils.python_utils import pythonify_logs
from tensorflow.python.eager import context

from trainer.errors import InputError
from trainer.training import draws, replica_sums, strategies
from trainer.training.cluster import Cluster, from_environment
from trainer.training.divided_batches import DividedBatches, build, unwrap
from trainer.training.fit_checkpoints import Checkpoints

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
    callbacks = [*(callbacks or ())]
    both = [one for one in callbacks if not isinstance(one, _WRITERS)]
    if not cluster.is_chief:
        _save_elsewhere(both)
    called = [*callbacks] if cluster.is_chief else [*both]
    history = keras.callbacks.History()
    called.append(history)
    if verbose == "auto":
        verbose = 1 if sys.stdout.isatty() else 2
    run = None
    if strategy.num_replicas_in_sync > 1:
        validation = None
        if validation_data is not None:
            of_validation = data_adapter_utils.unpack_x_y_sample_weight(validation_data)
            validation = dict(zip(("x", "y", "sample_weight"), of_validation, strict=True))
            validation["batch_size"] = validation_batch_size or batch_size
            validation["steps_per_epoch"] = validation_steps
        run = _Run(model, strategy, cluster, training, validation)
    elif directory and not model.built:
        build(model, strategy, EpochIterator(**training).data_adapter.get_tf_dataset())
    if directory:
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
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
    if run:
        run.train(called, verbose=verbose if cluster.is_chief else 0, **common)
        return history
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
        # Keras' adapter is made once: each takes batches from a generator.
        self._training = DividedBatches(strategy, cluster, **training)
        build(model, strategy, self._training.undivided)
        self._validation = DividedBatches(strategy, cluster, **validation) if validation else None
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
        parts: DividedBatches,
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

    def _make_step(self, function: Callable[[Any], Any], parts: DividedBatches) -> Any:
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
                    logs = {
                        name: replica_sums.mean(of, share.value)
                        for name, of in _flatten(logs).items()
                    }
                for state, value in zip(states, before, strict=True):
                    state.assign(tf.where(count > 0, state, value))
                stops = 0.0 if self._is_alone else replica_sums.all_reduce(stop)
                return logs, stops

            summed = [
                replica_sums.sum_gradients(one, share)
                for one in replica_sums.list_optimizers(self._model)
            ]
            with contextlib.ExitStack() as stack:
                for one in (replica_sums.means_of_local_rows(), draws.by_place(), *summed):
                    stack.enter_context(one)
                results = self._strategy.run(replica_step)
            return self._take_first(results)

        return step

    def _check_metrics(self) -> None:
        """Raise InputError unless the states of the user's own metrics are sums over the rows."""
        listed = [one for of in self._model.metrics for one in getattr(of, "metrics", [of])]
        own = [one for one in listed if not type(one).__module__.startswith("keras.")]
        if not own:
            return
        data = unwrap(next(iter(self._training.undivided)))
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

            return self._take_first(self._strategy.run(replica_measure))

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
            for optimizer in replica_sums.list_optimizers(self._model):
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
        total = self._strategy.run(replica_sums.add, args=(tf.cast(values, tf.float64),))
        return self._take_first(total).numpy()

    def _take_first(self, results: Any) -> Any:
        """Return what the first of this worker's replicas has returned."""
        local_results = self._strategy.experimental_local_results
        return keras.tree.map_structure(lambda value: local_results(value)[0], results)


def _flatten(logs: dict[str, Any]) -> dict[str, Any]:
    """Return logs with the values of dicts in them, as Keras shows them."""
    flat: dict[str, Any] = {}
    for name, value in logs.items():
        flat |= _flatten(value) if isinstance(value, dict) else {name: value}
    return flat


def _record(used: dict[int, keras.Variable], gradients: Any, variables: Any) -> None:
    """Add the variables that an optimizer's `apply` is given to `used`."""
    used.update({id(one): one for one in variables})
