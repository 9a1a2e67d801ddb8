"""Random draws for the rows of a replica, as if one process drew them for the whole batch.

tf.distribute gives each replica the same seeds, so each would draw the same dropout masks and
flips. TensorFlow's stateless operations use a counter-based generator (Salmon et al. 2011,
"Parallel Random Numbers: As Easy as 1, 2, 3"), whose draws can begin at any element. A replica's
draws begin at the offset of its first row, so they don't depend on the number of replicas.
Keras has no hook for it: its functions are replaced while a step is traced.
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
"""Operations of tf.random, and functions that draw as they do, from a seed."""
_BYTES = 16
"""Bytes that the generator draws for a value of its counter."""


_rows = threading.local()
"""The rows of a replica; tf.distribute traces each replica of a process in its own thread."""


def by_row() -> contextlib.AbstractContextManager[None]:
    """Let replicas that are traced in this context draw for their rows, set by `set_rows`.

    A draw whose first dimension counts rows, or is a multiple of them, is that of the rows. Other
    draws are the same on each replica, as those of keras.random's categorical, gamma, beta,
    binomial and truncated_normal are. XLA draws normal numbers otherwise for other sizes.
    """
    _check_functions()
    return _operations_by_row()


@functools.cache
def _check_functions() -> None:
    """Raise RuntimeError if Keras or TensorFlow draw by other operations than those replaced."""
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
    """Let functions of tf.random draw the same in each function that is traced in this context.

    They draw by row, too, if `by_row` is entered before.
    """
    calls = threading.local()

    def repeat(stateless: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        def draw(shape: Any, *arguments: Any, **_: Any) -> tf.Tensor:
            calls.number = getattr(calls, "number", 0) + 1
            return stateless(shape, [calls.number, 0], *arguments)

        return draw

    return replaced(random_ops, **{name: repeat(drawn) for name, drawn in _STATEFUL.items()})


def get_unseeded(strategy: tf.distribute.Strategy) -> keras.random.SeedGenerator:
    """Return the generator of keras.random's draws without a seed, which a step can't create.

    Python's `random`, which seeds it, stays as it was: most models have no such draws.
    """
    state = random.getstate()
    with strategy.scope():
        generator = seed_generator.global_seed_generator()
    random.setstate(state)
    return generator


def shared_by_threads(
    generator: keras.random.SeedGenerator,
) -> contextlib.AbstractContextManager[None]:
    """Let all replicas draw without a seed by `generator`; Keras gives each thread its own."""
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
        kwargs["name"] = None  # Which one of the two operations would repeat.
        values = operation([1], key, counter, *args, **kwargs)
        # The generator draws 16 bytes at once, of which a value of 2 bytes also takes 4.
        group = _BYTES // max(4, values.dtype.size)
        skipped = tf.cast(begin // group, tf.uint64)
        counter = tf.concat([counter[:1] + skipped, counter[1:]], axis=0)
        values = operation([begin % group + size], key, counter, *args, **kwargs)
        return tf.ensure_shape(tf.reshape(values[begin % group :], shape), static)

    return draw
