"""Sums over the replicas of a step that Keras wrote for one: gradients, losses, logs.

A replica's share is the part of the global batch's rows that it has.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer.engine import embeddings
from trainer.engine.applied_optimizers import list_inner
from trainer.engine.internals import find, losses, normalization, replaced
from trainer.engine.periodic_updates import branch_across_replicas
from trainer.engine.scales import Scale, Scales


def _count_replicas() -> int:
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def all_reduce(values: tf.Tensor) -> tf.Tensor:
    """Return the sum over the replicas of values that may be on another device."""
    here = values * tf.ones([], values.dtype)
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, here)


def all_reduce_each(values: list[Any]) -> list[Any]:
    """Return the sums over the replicas of each tensor, which are sent together."""
    context = tf.distribute.get_replica_context()
    return [*context.all_reduce(tf.distribute.ReduceOp.SUM, values)]


def _join(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return small tensors as one, float32 [n]."""
    return tf.concat([tf.reshape(tf.cast(value, tf.float32), [-1]) for value in values], 0)


def _split(flat: tf.Tensor, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the parts of a joined tensor in the shapes and types of `values`."""
    parts = tf.split(flat, [tf.size(value) for value in values], num=len(values))
    return [
        tf.cast(tf.ensure_shape(tf.reshape(part, tf.shape(value)), value.shape), value.dtype)
        for part, value in zip(parts, values, strict=True)
    ]


class ReplicaShare(threading.local):
    """A replica's part of a step; tf.distribute traces each replica in its own thread."""

    offset: tf.Tensor
    """The first of the replica's rows in the batch."""
    count: tf.Tensor
    """The replica's number of rows."""
    size: tf.Tensor
    """The batch's number of rows."""
    value: tf.Tensor
    """The replica's number of rows, divided by the batch's."""
    scaled: set[int]
    """Ids of the optimizers whose losses, of which gradients are computed, are multiplied by it."""

    def begin(self, offset: tf.Tensor, count: tf.Tensor, size: tf.Tensor) -> None:
        """Begin a replica's step."""
        self.offset, self.count, self.size = offset, count, size
        self.value, self.scaled = tf.cast(count / size, tf.float32), set()

    def weigh(self, value: Any, scale: Scale) -> Any:
        """Return what a replica adds to the sum over the replicas of a value."""
        replicas = _count_replicas()
        if replicas == 1:
            return value
        return _multiply(value, scale.factor(self.value, replicas))

    def average(self, value: tf.Tensor) -> tf.Tensor:
        """Return the mean over all rows of a value that is a mean over a replica's rows."""
        return all_reduce(_multiply(value, self.value))


def means_of_local_rows() -> contextlib.AbstractContextManager[None]:
    """Let Keras' losses be means over a replica's rows.

    Keras divides them by the number of replicas, which is right only if all have equally many rows;
    the losses of a train_step of the user's own may not be divided.
    """
    return replaced(losses, scale_loss_for_distribution=lambda value: value)


def masks_of_all_rows(
    average: Callable[[tf.Tensor], tf.Tensor],
) -> contextlib.AbstractContextManager[None]:
    """Let masked losses be sums divided by the valid entries of the batch, as on one process.

    Keras divides them by those of the replica. `average` returns the share of entries that are
    valid in the batch, from that in a replica's rows.
    """
    apply_mask = find(losses, "apply_mask")

    def apply_batch_mask(sample_weight: Any, mask: Any, dtype: Any, reduction: Any) -> Any:
        if mask is None or reduction == "sum":
            return apply_mask(sample_weight, mask, dtype, reduction)
        valid = average(tf.reduce_mean(tf.cast(mask, tf.float32)))
        weight = apply_mask(sample_weight, mask, dtype, "sum")
        return weight * tf.cast(tf.math.reciprocal_no_nan(valid), weight.dtype)

    return replaced(losses, apply_mask=apply_batch_mask)


def moments_of_all_rows(share: ReplicaShare) -> contextlib.AbstractContextManager[None]:
    """Let layers that are synchronized normalize by the batch, also if replicas' rows are uneven.

    The gradient of a replica's mean loss counts by its share, which Keras takes for equal, unless
    the loss is already multiplied by it.
    """

    @tf.custom_gradient
    def add(values: tf.Tensor) -> Any:
        part = share.value  # That of the replica which is traced in this thread.

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            if share.scaled:
                return all_reduce(share.weigh(upstream, Scale.ONE))
            total = all_reduce(_multiply(upstream, part))
            return tf.math.divide_no_nan(total, tf.cast(part, total.dtype))

        return all_reduce(values), gradient

    def compute(x: tf.Tensor, axes: Sequence[int], keepdims: bool) -> tuple[tf.Tensor, tf.Tensor]:
        has_rows = tf.cast(share.value > 0, x.dtype)
        sums = [
            tf.reduce_sum(values, axes, keepdims=keepdims)
            for values in (x, tf.square(x), tf.ones_like(x))
        ]
        total, squares, count = tf.unstack(add(_multiply(tf.stack(sums), has_rows)))
        mean = total / count
        return mean, tf.maximum(squares / count - tf.square(mean), 0.0)

    return replaced(normalization, _compute_moments_sync=compute)


@contextlib.contextmanager
def batch_means(share: ReplicaShare, scales: Scales) -> Iterator[None]:
    """Let trackers of means count a value of a batch once, not once a replica.

    Keras' trackers count the loss with its rows, and those of several outputs without; a train_step
    of the user's own may do either.
    """
    update_state = find(keras.metrics.Mean, "update_state")

    def mean_of_rows(loss: tf.Tensor) -> tf.Tensor:
        scale = scales.take()
        if scale is Scale.SHARE:
            return loss
        return tf.math.divide_no_nan(share.weigh(loss, scale), tf.cast(share.value, loss.dtype))

    def update(self: keras.metrics.Mean, values: Any, sample_weight: Any = None) -> None:
        if sample_weight is not None or tf.convert_to_tensor(values).shape.rank:
            update_state(self, values, sample_weight)
            return
        part = share.weigh(tf.cast(values, self.dtype), scales.take())
        self.total.assign_add(part)
        self.count.assign_add(tf.cast(share.value, self.dtype))

    with (
        replaced(keras.metrics.Mean, update_state=update),
        replaced(losses, unscale_loss_for_distribution=mean_of_rows),
    ):
        yield


def _multiply(value: Any, factor: tf.Tensor) -> Any:
    """Return a replica's part of a value; without rows it may be NaN, and its part is 0.

    Gradients of embeddings stay sparse: Keras squares their rows one by one.
    """
    if isinstance(value, tf.IndexedSlices):
        values = _multiply(value.values, factor)
        return tf.IndexedSlices(values, value.indices, value.dense_shape)
    return tf.math.multiply_no_nan(value, tf.cast(factor, value.dtype))


def _round_as(total: Any, part: Any) -> Any:
    """Return a sum of gradients, infinite if it overflows the 16 bits that a part was computed in.

    On one process, a layer computes it in them, and casts it for its variable.
    """
    if isinstance(part, tf.IndexedSlices) or part.op.type != "Cast":
        return total
    return tf.cast(tf.cast(total, part.op.inputs[0].dtype), total.dtype)


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


class Gradients:
    """Gradients that optimizers apply: those of the batch, summed over the replicas by their scale.

    Keras would sum them after it has clipped those of each replica. A loss that the optimizer
    scales is multiplied by the replica's share before, to overflow where the batch's does.
    """

    def __init__(
        self, share: ReplicaShare, scales: Scales, *, wait: bool, merge_rows: bool
    ) -> None:
        """Open the gradients of a step.

        Args:
            wait: gradients are summed by `add`, in one message with other values.
            merge_rows: rows of embeddings that a batch looks up several times have one gradient,
                which Keras' optimizers would square one by one.
        """
        self._share, self._scales = share, scales
        self._waits, self._merge_rows = wait, merge_rows
        self._waiting = threading.local()  # tf.distribute traces each replica in its own thread.

    @contextlib.contextmanager
    def of(self, optimizer: keras.Optimizer) -> Iterator[None]:
        """Let an optimizer apply the gradients of the batch."""
        apply, scale_loss = find(optimizer, "apply"), find(optimizer, "scale_loss")
        share = self._share

        def scale_part(loss: Any) -> Any:
            share.scaled.add(id(optimizer))
            return scale_loss(share.weigh(loss, self._scales.take()))

        def apply_sum(grads: Any, trainable_variables: Any = None) -> None:
            if self._merge_rows:
                grads = [*map(embeddings.complete, grads, trainable_variables)]
            scale = self._scales.take()
            computed = [one for one in grads if one is not None]
            known = computed
            if id(optimizer) in share.scaled:
                share.scaled.remove(id(optimizer))
            else:
                known = [share.weigh(one, scale) for one in computed]
            fixed = [not self._merge_rows and _has_fixed_rows(part) for part in known]
            sent = [
                part.values if keeps else part for part, keeps in zip(known, fixed, strict=True)
            ]

            def apply_summed(summed: list[Any]) -> None:
                for index, part in enumerate(known):
                    if fixed[index]:
                        summed[index] = tf.IndexedSlices(
                            summed[index], part.indices, part.dense_shape
                        )
                if self._merge_rows:
                    summed = [*map(embeddings.add_rows, summed)]
                of_known = map(_round_as, summed, computed)
                apply(
                    [None if one is None else next(of_known) for one in grads], trainable_variables
                )

            if self._waits:
                self._waiting.sent, self._waiting.apply = sent, apply_summed
            else:
                apply_summed(all_reduce_each(sent))

        with contextlib.ExitStack() as stack:
            stack.enter_context(replaced(optimizer, apply=apply_sum, scale_loss=scale_part))
            for one in (optimizer, *list_inner(optimizer)):
                stack.enter_context(replaced(one, _all_reduce_sum_gradients=lambda pairs: pairs))
                if not list_inner(one):
                    stack.enter_context(branch_across_replicas(one))
            yield

    def get_waiting(self) -> list[Any]:
        """Return the replica's gradients that wait to be summed."""
        return getattr(self._waiting, "sent", [])

    def add(self, waiting: list[Any], values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the sums over the replicas of small tensors; apply gradients that wait."""
        if _count_replicas() == 1:
            summed, added = waiting, [*values]
        else:
            *summed, flat = all_reduce_each([*waiting, _join(values)])
            added = _split(flat, values)
        if waiting:
            self._waiting.apply(summed)
        return added
