"""Numbers of all replicas, by which the workers of a job wait for and compare each other."""

import zlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.engine.replica_sums import all_reduce
from vertex.errors import InputError

_add = tf.function(all_reduce, autograph=False)


def add_up(strategy: tf.distribute.Strategy, values: Any) -> np.ndarray:
    """Return the sums over the replicas, of which those of one worker have the same values."""
    total = strategy.run(_add, args=(tf.cast(values, tf.float64),))
    return strategy.experimental_local_results(total)[0].numpy()


def barrier(strategy: tf.distribute.Strategy) -> None:
    """Wait until every worker of a multi-worker job has called this; do nothing in other jobs."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        add_up(strategy, 1.0)


def agree(strategy: tf.distribute.Strategy, value: int) -> bool:
    """Return whether all workers have the same number, which is below 2^20."""
    total, squares = add_up(strategy, [value, value * value])
    return bool(total * total == squares * strategy.num_replicas_in_sync)


def check_weights(strategy: tf.distribute.Strategy, variables: Sequence[keras.Variable]) -> None:
    """Raise InputError if the workers of a multi-worker job have different weights."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    checksum = 0
    for variable in variables:
        checksum = zlib.crc32(variable.numpy().tobytes(), checksum)
    if not agree(strategy, checksum % 2**20):
        raise InputError(
            "the workers' weights differ after an epoch, so that something changed them on one "
            "worker alone: look for what depends on the worker, its files or its clock in "
            "callbacks, in layers and in train_step"
        )
