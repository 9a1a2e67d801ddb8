"""Batches of any data that Keras' `fit` takes, divided among the replicas of a job."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer.engine.batch_rows import any_rows, count_rows, slice_rows, unwrap
from trainer.engine.cluster import Cluster
from trainer.engine.internals import EpochIterator, next_batch
from trainer.engine.step_trial import ROWS_TRIED
from vertex.errors import InputError

_UNEQUAL = "the parts of a batch have different numbers of rows and cannot be divided"


class DividedBatches(EpochIterator):
    """Batches divided among replicas.

    An element is the rows, their offset and number for each local replica; the batch's size; and of
    an iterator's first batch, a checksum, else 0, and the first rows, else none.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, cluster: Cluster, epochs: int, **arguments: Any
    ) -> None:
        """Open data; `arguments` are those of EpochIterator, `epochs` those of an iterator."""
        super().__init__(**arguments)
        self._replicas = strategy.num_replicas_in_sync
        local = self._replicas // cluster.trainers
        self.first = local * cluster.trainer_index
        self._own_replicas = range(self.first, self.first + local)
        self.undivided = self.data_adapter.get_tf_dataset()
        check_dense(self.undivided)
        # Reading further ahead would change the order of a dataset's next use if it shuffles anew.
        calls = math.ceil((self.steps_per_epoch or 0) / self.steps_per_execution)
        limit = calls * self.steps_per_execution * epochs or -1
        dataset = self.undivided.take(limit).enumerate()
        if isinstance(arguments["x"], keras.utils.PyDataset):  # It reads ahead itself.
            self._dataset = dataset.map(self._divide)
        else:
            self._dataset = dataset.map(self._divide, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
        self.specification = any_rows(self._dataset.element_spec)

    def _divide(self, number: tf.Tensor, batch: Any) -> Any:
        """Return the element of a batch; a replica without rows gets one that does not count."""
        data = unwrap(batch)
        tensors = [part for part in keras.tree.flatten(data) if tf.is_tensor(part)]
        total = count_rows(data)
        for tensor in tensors:
            tf.debugging.Assert(tf.equal(tf.shape(tensor)[0], total), [_UNEQUAL])
        parts = []
        for replica in self._own_replicas:
            start = replica * total // self._replicas
            count = (replica + 1) * total // self._replicas - start
            start = tf.minimum(start, total - 1)
            stop = start + tf.maximum(count, 1)
            parts.append((slice_rows(data, start, stop), start, count))
        checksum = tf.cond(number == 0, lambda: _hash(tensors), lambda: tf.constant(0, tf.int64))
        tried = tf.maximum(ROWS_TRIED, total // self._replicas)
        head = slice_rows(data, 0, tf.where(number == 0, tried, 0))
        return tuple(parts), total, checksum, head

    def _get_iterator(self) -> Any:
        return self._dataset

    def __next__(self) -> Any:
        return next_batch(self)

    @contextlib.contextmanager
    def catch_stop_iteration(self) -> Iterator[None]:
        """End an epoch with its data; raise InputError for a batch that can't be divided."""
        try:
            with super().catch_stop_iteration():
                yield
        except tf.errors.InvalidArgumentError as error:
            if _UNEQUAL not in str(error):
                raise
            raise InputError(
                f"{_UNEQUAL} among replicas; give each part one row for each example"
            ) from None


def _hash(tensors: Sequence[Any]) -> tf.Tensor:
    """Return a checksum of tensors, below 2^20, int64 []."""
    serialized = tf.strings.join([tf.io.serialize_tensor(tensor) for tensor in tensors])
    return tf.strings.to_hash_bucket_fast(serialized, 2**20)


def check_dense(dataset: tf.data.Dataset) -> None:
    """Raise InputError for batches that can't be divided."""
    for spec in tf.nest.flatten(dataset.element_spec):
        if isinstance(spec, tf.RaggedTensorSpec | tf.SparseTensorSpec):
            raise InputError(
                f"the data has {spec}, which can't be divided among replicas; make it dense"
            )
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0:
            raise InputError(
                f"the data has {spec}, which has no rows to divide among replicas; batch the data, "
                "or repeat the value for each row"
            )
