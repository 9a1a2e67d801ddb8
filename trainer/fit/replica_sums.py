"""Sums over the replicas of a step that Keras wrote for one: gradients, losses, logs.

A replica's share is the part of the global batch's rows that it has.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import keras
import tensorflow as tf
from keras.src.losses import loss as keras_loss

from trainer.training.periodic_updates import branch_across_replicas


def mean(value: Any, share: tf.Tensor) -> tf.Tensor:
    """Return the mean over all rows of a value that is a mean over a replica's rows."""
    return all_reduce(_scale(tf.cast(tf.convert_to_tensor(value), tf.float32), share))


def all_reduce(values: tf.Tensor) -> tf.Tensor:
    """Return the sum over the replicas of values that may be on another device."""
    here = values * tf.ones([], values.dtype)
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, here)


add = tf.function(all_reduce, autograph=False)


@contextlib.contextmanager
def means_of_local_rows() -> Iterator[None]:
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


def _has_fixed_rows(gradient: Any) -> bool:
    """Return whether a gradient is of rows that all replicas look up, as embedded positions."""
    if not isinstance(gradient, tf.IndexedSlices):
        return False
    waiting = [gradient.indices.op]
    seen: set[str] = set()
    while waiting:
        operation = waiting.pop()
        is_read = operation.type == "ReadVariableOp"
        # Other inputs of the step's graph than variables are, or may hang on, a replica's rows.
        is_input = operation.type == "Placeholder" and operation.outputs[0].dtype != tf.resource
        if is_input or (operation.op_def.is_stateful and not is_read):
            return False
        fresh = {
            tensor.op.name: tensor.op for tensor in operation.inputs if tensor.op.name not in seen
        }
        seen.update(fresh)
        waiting += fresh.values()
    return True


def list_optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return the model's optimizer, and others that a train_step of the user's own may use."""
    listed = [model.optimizer, *vars(model).values()]
    return [*{id(value): value for value in listed if isinstance(value, keras.Optimizer)}.values()]


@contextlib.contextmanager
def sum_gradients(optimizer: keras.optimizers.Optimizer, share: threading.local) -> Iterator[None]:
    """Let an optimizer apply the sum of the replicas' gradients, each times the replica's share.

    Keras would sum them after it has clipped those of each replica. `share.value` is that of the
    replica which is traced in the thread.
    """
    apply = optimizer.apply

    def apply_sum(grads: Any, trainable_variables: Any = None) -> Any:
        replica_context = tf.distribute.get_replica_context()
        parts = [_scale(gradient, share.value) for gradient in grads if gradient is not None]
        fixed = [_has_fixed_rows(gradient) for gradient in parts]
        sent = [
            gradient.values if keeps else gradient
            for gradient, keeps in zip(parts, fixed, strict=True)
        ]
        summed = replica_context.all_reduce(tf.distribute.ReduceOp.SUM, sent)
        for index, gradient in enumerate(parts):
            if fixed[index]:
                summed[index] = tf.IndexedSlices(
                    summed[index], gradient.indices, gradient.dense_shape
                )
        known = iter(summed)
        return apply(
            [gradient if gradient is None else next(known) for gradient in grads],
            trainable_variables,
        )

    inner: Any = optimizer
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(optimizer, "apply", apply_sum))
        while inner is not None:
            unchanged = mock.patch.object(
                inner, "_all_reduce_sum_gradients", lambda grads_and_vars: grads_and_vars
            )
            stack.enter_context(unchanged)
            inner = getattr(inner, "inner_optimizer", None)
        stack.enter_context(branch_across_replicas(optimizer))
        yield
