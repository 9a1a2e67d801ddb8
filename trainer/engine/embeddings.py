"""Gradients of embeddings: dense, or, for large tables, of the rows that a batch has looked up."""

from typing import Any

import keras
import tensorflow as tf

LARGE = 4_000_000
"""Weights of a table whose gradient stays sparse. Smaller ones are summed as fast by replicas that
send all rows, to the bit as before."""


def complete(gradient: Any, variable: keras.Variable) -> Any:
    """Return a gradient: IndexedSlices for a large table of which it has few rows, else a tensor.

    Weights that do not affect the outputs have no gradient.
    """
    if gradient is None:
        return tf.zeros(variable.shape, variable.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        rows, size = gradient.values.shape[0], variable.shape.num_elements()
        # The number of a batch's rows may be known only when the step runs.
        if size >= LARGE and (rows is None or 4 * rows < variable.shape[0]):
            return gradient
    return tf.convert_to_tensor(gradient)


def add_rows(gradient: Any) -> Any:
    """Return a gradient without repeated rows, which optimizers would square one by one."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)
