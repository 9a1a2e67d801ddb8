"""Make replicas draw the random numbers that one process would draw for the whole batch.

    with draws.by_row():               # while a step is traced
        draws.set_rows(offset, count)  # on each replica
        keras.random.dropout(rows, 0.5, seed=seed)  # the masks of these rows of the batch

tf.distribute gives each replica the same seeds, so the replicas would repeat each other's dropout
masks and flips. TensorFlow's stateless operations use a counter-based generator (Salmon et al.
2011, "Parallel Random Numbers: As Easy as 1, 2, 3"), which can start at any element. Each replica
starts it at its first row, so the number of replicas does not change what a row gets.
Keras has no option for the start: the operations that it calls are replaced during tracing.
"""

import contextlib
import functools
import random
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.engine.internals import (
    constant_value_as_shape,
    find,
    random_ops,
    replaced,
    seed_generator,
    stateless_random_ops,
)

_OPERATIONS = (
    "stateless_random_normal_v2",
    "stateless_random_uniform_full_int_v2",
    "stateless_random_uniform_int_v2",
    "stateless_random_uniform_v2",
)
_STATEFUL: dict[str, Callable[..., tf.Tensor]] = {
    "random_standard_normal": lambda shape, seed, dtype: tf.random.stateless_normal(
        shape, seed, dtype=dtype
    ),
    "truncated_normal": lambda shape, seed, dtype: tf.clip_by_value(
        tf.random.stateless_normal(shape, seed, dtype=dtype), -2, 2
    ),
    "random_uniform": lambda shape, seed, dtype: tf.random.stateless_uniform(
        shape, seed, dtype=dtype
    ),
    "random_uniform_int": lambda shape, seed, low, high: tf.random.stateless_uniform(
        shape, seed, low, high, low.dtype
    ),
}
"""Stateless functions by the stateful operation of tf.random that each replaces."""
_BYTES = 16
"""Bytes that the generator draws for a value of its counter."""


_rows = threading.local()
"""The rows of a replica; tf.distribute traces each replica of a process in its own thread."""


def by_row() -> contextlib.AbstractContextManager[None]:
    """Trace steps in this context whose replicas draw for the rows given to `set_rows`.

    A draw is for the rows if its first dimension is a multiple of their number. Any other draw is
    the same on each replica, and so are all draws of keras.random's categorical, gamma, beta,
    binomial and truncated_normal. Under XLA, normal numbers also depend on the size of the draw.
    """
    _check_functions()
    return _operations_by_row()


@functools.cache
def _check_functions() -> None:
    """Raise RuntimeError if Keras or TensorFlow calls other operations than those replaced."""
    shape = 6, 3
    functions: list[Callable[..., Any]] = [
        keras.random.normal,
        keras.random.uniform,
        lambda rows, seed: keras.random.dropout(keras.ops.ones(rows), 0.5, seed=seed),
    ]
    with tf.init_scope():
        for function in functions:
            whole = function(shape, seed=1)
            with _operations_by_row():
                set_rows(tf.constant(4), 2)
                rows = function((2, *shape[1:]), seed=1)
            if not np.array_equal(whole[4:], rows):
                raise RuntimeError(
                    f"Keras {keras.__version__} with TensorFlow {tf.__version__} draws by other "
                    "operations than trainer.engine.draws divides among replicas"
                )


def _operations_by_row() -> contextlib.AbstractContextManager[None]:
    by_name = {name: _draw_for_rows(find(stateless_random_ops, name)) for name in _OPERATIONS}
    return replaced(stateless_random_ops, **by_name)


def repeated() -> contextlib.AbstractContextManager[None]:
    """Make tf.random draw the same numbers in each function that is traced in this context.

    Inside `by_row`, they are also drawn by row.
    """
    calls = threading.local()

    def repeat(stateless: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        def draw(shape: Any, *arguments: Any, **_: Any) -> tf.Tensor:
            calls.number = getattr(calls, "number", 0) + 1
            return stateless(shape, [calls.number, 0], *arguments)

        return draw

    return replaced(random_ops, **{name: repeat(drawn) for name, drawn in _STATEFUL.items()})


def get_unseeded(strategy: tf.distribute.Strategy) -> keras.random.SeedGenerator:
    """Return the generator that keras.random uses without a seed, created before any step needs it.

    Keras seeds it from Python's `random`, whose state is restored: most models don't use it.
    """
    state = random.getstate()
    with strategy.scope():
        generator = seed_generator.global_seed_generator()
    random.setstate(state)
    return generator


def shared_by_threads(
    generator: keras.random.SeedGenerator,
) -> contextlib.AbstractContextManager[None]:
    """Use one generator for all replicas' draws without a seed; Keras has one for each thread."""
    return replaced(seed_generator, global_seed_generator=lambda: generator)


def set_rows(offset: tf.Tensor, count: Any) -> None:
    """Set the rows of the replica that is traced in this thread.

    Args:
        offset: the first row's offset in the batch, an integer [].
        count: number of rows, an integer, or a tensor if it differs between batches.
    """
    _rows.offset, _rows.count = tf.cast(offset, tf.int64), count


def _draw_for_rows(operation: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Return `operation` (shape, key, counter, ...) with draws that begin at the replica's rows."""

    def draw(shape: Any, key: Any, counter: tf.Tensor, *args: Any, **kwargs: Any) -> tf.Tensor:
        static = constant_value_as_shape(tf.convert_to_tensor(shape))
        first, known = static[0] if static.rank else 1, tf.get_static_value(_rows.count)
        if first is not None and (known is None or first % known):
            return operation(shape, key, counter, *args, **kwargs)
        size = tf.reduce_prod(tf.cast(shape, tf.int64))
        begin = _rows.offset * (size // tf.cast(_rows.count, tf.int64))
        kwargs["name"] = None  # The operation is called twice, and names are unique.
        values = operation([1], key, counter, *args, **kwargs)
        # The generator draws 16 bytes at once, of which a value of 2 bytes also takes 4.
        group = _BYTES // max(4, values.dtype.size)
        skipped = tf.cast(begin // group, tf.uint64)
        counter = tf.concat([counter[:1] + skipped, counter[1:]], axis=0)
        values = operation([begin % group + size], key, counter, *args, **kwargs)
        return tf.ensure_shape(tf.reshape(values[begin % group :], shape), static)

    return draw
