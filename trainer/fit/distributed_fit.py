"""Keras' `fit` on all workers of a job, with its arguments, data and callbacks."""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from trainer.engine import agreement, parameter_servers, strategies
from trainer.engine.building import build, build_without_data
from trainer.engine.checkpoints import repair_lists
from trainer.engine.cluster import Cluster, from_environment
from trainer.engine.compile_checks import check_compiled
from trainer.engine.internals import (
    EpochIterator,
    GeneratorDataAdapter,
    global_seed,
    train_validation_split,
    validates_after,
)
from trainer.fit import local_evaluation
from trainer.fit.checkpoint_callback import CheckpointCallback, find_done
from trainer.fit.data_order import check_order, skip_epochs, skip_validations
from trainer.fit.fit_loop import FitLoop
from trainer.fit.mirrored import MirroredFit
from trainer.fit.parameter_server_fit import AsynchronousFit
from vertex.errors import InputError

_WRITERS = (
    keras.callbacks.CSVLogger,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
)
"""Callbacks that only the chief runs."""
_TRAINS = threading.RLock()


def fit(
    model: keras.Model,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
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
    checkpoint_steps: int = 0,
    gather_batch: bool = False,
) -> keras.callbacks.History:
    """Train a compiled model as `keras.Model.fit` does, and return its History.

    All arguments but the last three are those of `keras.Model.fit`; a batch is that of all replicas
    together. Every worker of a job must give the same ones. Raise InputError for what can't be
    trained on several workers.

    Args:
        directory: folder of checkpoints, which all workers can read. If it has one, training goes
            on from it.
        checkpoint_steps: steps after which a checkpoint is saved within an epoch; 0: at its end
            alone. Steps before it are not trained again, but their batches are read.
        gather_batch: the loss is computed of the whole batch's outputs, which the replicas send to
            each other, as one needs that compares rows; otherwise, of each replica's rows.
    """
    cluster = from_environment(os.environ)
    strategy = model.distribute_strategy
    callbacks = [] if callbacks is None else keras.tree.flatten(callbacks)
    _check(model, strategy, cluster, callbacks)
    if checkpoint_steps:
        _check_checkpoint_steps(checkpoint_steps, directory, strategy, x, shuffle)
    check_order(x, validation_data, cluster.trainers, directory, checkpoint_steps)
    if directory and cluster.is_chief:
        repair_lists(directory)
    agreement.barrier(strategy)
    done = find_done(directory, epochs)
    if validation_split and validation_data is None:
        (x, y, sample_weight), validation_data = train_validation_split(
            (x, y, sample_weight), validation_split=validation_split
        )
    training = {
        "x": skip_epochs(x, done.epoch, steps_per_epoch),
        "y": y,
        "sample_weight": sample_weight,
        "batch_size": batch_size,
        "steps_per_epoch": steps_per_epoch,
        "shuffle": shuffle and not isinstance(x, tf.data.Dataset),
        "class_weight": class_weight,
        "steps_per_execution": model.steps_per_execution,
    }
    on_every_worker = [callback for callback in callbacks if not isinstance(callback, _WRITERS)]
    callback_list = [*callbacks] if cluster.is_chief else [*on_every_worker]
    history = keras.callbacks.History()
    callback_list.append(history)
    if verbose == "auto":
        verbose = 1 if sys.stdout.isatty() else 2
    loop: FitLoop | None = None
    validated = sum(validates_after(model, epoch, validation_freq) for epoch in range(done.epoch))
    skip_validations(validation_data, validated, validation_steps)
    if _is_distributed(strategy) or checkpoint_steps or done.step:
        validation = None
        if validation_data is not None:
            parts = keras.utils.unpack_x_y_sample_weight(validation_data)
            validation = {
                **dict(zip(("x", "y", "sample_weight"), parts, strict=True)),
                "batch_size": validation_batch_size or batch_size,
                "steps_per_epoch": validation_steps,
                "steps_per_execution": model.steps_per_execution,
            }
        local_evaluation.evaluate_in_this_process(model)
        kind = AsynchronousFit if _has_servers(strategy) else MirroredFit
        loop = kind(model, cluster, training, validation, epochs, gather_batch=gather_batch)
    elif directory and not build_without_data(model):
        adapter = EpochIterator(**training).data_adapter
        data = adapter.get_tf_dataset()
        build(model, data.element_spec)
        if isinstance(adapter, GeneratorDataAdapter):  # It has taken batches from the generator.
            training["x"] = data
    begun: dict[str, Any] = {}
    if directory:
        saved = CheckpointCallback(
            directory,
            cluster,
            model,
            history,
            on_every_worker,
            steps=checkpoint_steps,
            epochs=epochs,
            done=done,
            loop=loop,
        )
        callback_list.append(saved)
        saved.restore()
        if done.is_finished:
            model.history = history
            return history
        if done.step and done.epoch >= initial_epoch:
            begun = {"initial_step": done.step, "restore_begun_epoch": saved.restore_begun_epoch}
    initial_epoch = max(done.epoch, initial_epoch)
    if done.is_stopped:
        epochs = initial_epoch
    common: dict[str, Any] = {
        "initial_epoch": initial_epoch,
        "epochs": epochs,
        "validation_freq": validation_freq,
    }
    if loop:
        alone = _train_alone() if _is_distributed(strategy) else contextlib.nullcontext()
        with alone, _save_elsewhere([] if cluster.is_chief else on_every_worker):
            loop.train(callback_list, verbose=verbose if cluster.is_chief else 0, **common, **begun)
        return history
    training.pop("steps_per_execution")
    return model.fit(
        **training,
        **common,
        verbose=verbose,
        callbacks=callback_list,
        validation_data=validation_data,
        validation_steps=validation_steps,
        validation_batch_size=validation_batch_size,
    )


@contextlib.contextmanager
def _train_alone() -> Iterator[None]:
    """Raise InputError if another thread trains on several replicas.

    Workers would not sum the steps of both in the same order.
    """
    if not _TRAINS.acquire(blocking=False):
        raise InputError(
            "another thread of this process trains on several replicas by fit; train the models "
            "one after the other, or in processes of their own"
        )
    try:
        with local_evaluation.numbers_of_variables():
            yield
    finally:
        _TRAINS.release()


@contextlib.contextmanager
def _save_elsewhere(callbacks: Sequence[keras.callbacks.Callback]) -> Iterator[None]:
    """Let models be saved to a temporary folder, because saving may need all workers.

    In the end, the files are moved to where the chief's are, if this worker does not see those.
    """
    saving = [
        callback for callback in callbacks if isinstance(callback, keras.callbacks.ModelCheckpoint)
    ]
    paths = [callback.filepath for callback in saving]
    with contextlib.ExitStack() as stack:
        for callback in saving:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fit-"))
            callback.filepath = str(Path(folder) / Path(callback.filepath).name)
        yield
        for callback, path in zip(saving, paths, strict=True):
            for file in Path(callback.filepath).parent.iterdir():
                folder = path.rpartition("/")[0] or "."  # Perhaps in gs://.
                target = f"{folder}/{file.name}"
                if not tf.io.gfile.exists(target):
                    tf.io.gfile.makedirs(folder)
                    tf.io.gfile.copy(str(file), target)
            callback.filepath = path


def is_chief() -> bool:
    """Return whether this process is the one that should write files, of all that train a model.

    A callback of your own runs on every worker.
    """
    return from_environment(os.environ).is_chief


def create_strategy() -> tf.distribute.Strategy:
    """Return the tf.distribute strategy for all workers of this process's job and their GPUs.

    Call it before any other TensorFlow operation. With parameter servers, it returns on the chief
    only: the other replicas serve it until their processes are ended.
    """
    cluster = from_environment(os.environ)
    if cluster.addresses.get("ps"):
        return parameter_servers.start(cluster)
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
    if cluster.addresses.get("ps") and not _has_servers(strategy):
        raise InputError(
            f"TF_CONFIG lists parameter servers, but the model {model.name!r} was built without "
            "them; build and compile it in the scope of trainer.fit.create_strategy()"
        )
    known = tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.ParameterServerStrategy
    if cluster.trainers > 1 and not isinstance(strategy, known):
        raise InputError(
            f"TF_CONFIG lists {cluster.trainers} workers, but the model {model.name!r} was built "
            "without them; first create tf.distribute.MultiWorkerMirroredStrategy(), and build and "
            "compile the model in its scope"
        )
    if not _is_distributed(strategy):
        return
    if any(isinstance(callback, keras.callbacks.BackupAndRestore) for callback in callbacks):
        raise InputError(
            "the callback BackupAndRestore can't be used on several replicas; give fit a directory"
        )
    check_compiled(model)


def _check_checkpoint_steps(
    steps: int, directory: str, strategy: tf.distribute.Strategy, data: Any, shuffle: bool
) -> None:
    """Raise InputError if a training could not go on after some steps of an epoch."""
    if steps < 0 or not directory:
        raise InputError(f"checkpoint_steps={steps} needs a directory, and a positive number")
    if _has_servers(strategy):
        raise InputError(
            f"checkpoint_steps={steps} can't be used with parameter servers, whose workers take "
            "steps independently; give a smaller steps_per_epoch"
        )
    if isinstance(data, types.GeneratorType):
        raise InputError(
            f"checkpoint_steps={steps} needs data that can be read again, but this is a generator; "
            "give a tf.data.Dataset or a PyDataset"
        )
    if isinstance(data, keras.utils.PyDataset) and shuffle:
        raise InputError(
            f"checkpoint_steps={steps} needs batches in the same order again; give shuffle=False "
            "with a PyDataset"
        )


def _has_servers(strategy: tf.distribute.Strategy) -> bool:
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def _is_distributed(strategy: tf.distribute.Strategy) -> bool:
    return strategy.num_replicas_in_sync > 1 or _has_servers(strategy)


def _seed_workers(cluster: Cluster) -> None:
    """Give the workers of a job the same random seed, unless this one has set its own."""
    if cluster.trainers > 1 and global_seed() is None:
        addresses = json.dumps(cluster.addresses, sort_keys=True).encode()
        keras.utils.set_random_seed(int(hashlib.sha256(addresses).hexdigest()[:8], 16))


_seed_workers(from_environment(os.environ))
