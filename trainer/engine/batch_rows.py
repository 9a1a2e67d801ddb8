"""Batches: nested structures of tensors whose first dimension is rows."""

from typing import Any

import keras
import tensorflow as tf


def count_rows(data: Any) -> tf.Tensor:
    """Return the number of rows of a batch, int32 []."""
    return tf.shape(next(part for part in keras.tree.flatten(data) if tf.is_tensor(part)))[0]


def slice_rows(data: Any, start: Any, stop: Any) -> Any:
    """Return some rows of a batch, whose missing parts are tf.experimental.Optional."""
    return keras.tree.map_structure(
        lambda part: part[start:stop] if tf.is_tensor(part) else part, data
    )


def unwrap(batch: Any) -> Any:
    """Return what train_step is given for a batch: without labels, the inputs alone."""
    return batch[0] if isinstance(batch, tuple) and len(batch) == 1 else batch


def any_rows(specification: Any) -> Any:
    """Return a specification for any number of rows.

    Otherwise a draw of a constant shape, as of weights, looks like one of a replica's rows.
    """
    return keras.tree.map_structure(
        lambda spec: (
            tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
            if isinstance(spec, tf.TensorSpec) and spec.shape.rank
            else spec
        ),
        specification,
    )
