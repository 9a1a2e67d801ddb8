"""Losses that compare the rows of a batch, computed by each replica from the outputs for all rows.

A replica computes its outputs for its own rows, and gets those of the others. So each has the loss
of the whole batch; its gradient flows back to the replica's own rows alone.
"""

import contextlib
from typing import Any

import keras
import tensorflow as tf

from trainer.engine import draws
from trainer.engine.internals import find, masking, replaced
from trainer.engine.replica_sums import ReplicaShare, all_reduce


def losses_of_all_rows(
    model: keras.Model, share: ReplicaShare
) -> contextlib.AbstractContextManager[None]:
    """Let the compute_loss of a model get the outputs, labels and weights of the whole batch."""
    compute_loss = find(model, "compute_loss")
    is_of_keras = type(model).compute_loss is keras.Model.compute_loss

    def compute(x: Any = None, *arguments: Any, **options: Any) -> Any:
        training = {name: options.pop(name) for name in ("training",) if name in options}
        known = (None if is_of_keras else x), *arguments
        known, options = _gather((known, options), share)
        draws.set_rows(tf.zeros_like(share.offset), share.size)
        loss = compute_loss(*known, **options, **training)
        draws.set_rows(share.offset, tf.maximum(share.count, 1))
        return loss

    return replaced(model, compute_loss=compute)


def squares_as_losses(model: keras.Model) -> contextlib.AbstractContextManager[None]:
    """Let a model minimize its outputs, to try how all but its loss depends on a batch's rows."""

    def compute(x: Any, y: Any, y_pred: Any, *_: Any, **__: Any) -> Any:
        outputs = [tf.cast(output, tf.float32) for output in keras.tree.flatten(y_pred)]
        return tf.add_n([tf.reduce_mean(tf.square(output)) for output in outputs])

    return replaced(model, compute_loss=compute)


def _gather(values: Any, share: ReplicaShare) -> Any:
    """Return tensors of a replica's rows, or None, with the rows of all replicas."""

    def gather(own: tf.Tensor | None) -> tf.Tensor | None:
        if own is None:
            return None
        whole = _with_gradient(own, _add_rows(own, share), share)
        mask = masking.get_keras_mask(own)
        if mask is not None:
            masking.set_keras_mask(whole, _add_rows(mask, share))
        return whole

    return keras.tree.map_structure(gather, values)


def _add_rows(own: tf.Tensor, share: ReplicaShare) -> tf.Tensor:
    """Return the rows of all replicas: the sum of theirs, each at its place among zeros."""
    kind = own.dtype if own.dtype.is_floating else tf.float64  # Exact for integers below 2^53.
    rows = tf.cast(tf.stop_gradient(own[: share.count]), kind)
    ends = [share.offset, share.size - share.offset - share.count]
    total = all_reduce(tf.pad(rows, [ends, *[[0, 0]] * (own.shape.rank - 1)]))
    return tf.cast(tf.ensure_shape(total, [None, *own.shape[1:]]), own.dtype)


def _with_gradient(own: tf.Tensor, whole: tf.Tensor, share: ReplicaShare) -> tf.Tensor:
    """Return the rows of all replicas, whose gradient is that of this replica's own rows.

    It is divided by the replica's share, by which the gradient of weights is multiplied.
    """
    if not own.dtype.is_floating:
        return whole
    begin, count, value = share.offset, share.count, share.value

    @tf.custom_gradient
    def replace(own: tf.Tensor) -> Any:
        def gradient(upstream: Any) -> tf.Tensor:
            rows = tf.convert_to_tensor(upstream)[begin : begin + count]
            part = tf.math.divide_no_nan(rows, tf.cast(value, rows.dtype))
            without = tf.shape(own)[0] - count  # One row that does not count, or none.
            return tf.pad(part, [[0, without], *[[0, 0]] * (rows.shape.rank - 1)])

        return tf.identity(whole), gradient

    return replace(own)
