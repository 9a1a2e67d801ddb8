"""Keras' evaluations and predictions of a model on several replicas, which fail there.

Each process that calls them computes them alone, for all data.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import keras
from tensorflow.python.distribute import distribute_lib


def evaluate_in_this_process(model: keras.Model) -> None:
    """Let evaluations and predictions of the model be computed by the process that calls them."""
    model.jit_compile = False
    for name in ("evaluate", "predict", "test_on_batch", "predict_on_batch"):
        alone = functools.partial(_call_alone, model, getattr(type(model), name))
        setattr(model, name, alone)


def _call_alone(
    model: keras.Model, function: Callable[..., Any], *args: Any, **options: Any
) -> Any:
    with _outside_strategies(), mock.patch.object(model, "_distribute_strategy", None):
        return function(model, *args, **options)


@contextlib.contextmanager
def _outside_strategies() -> Iterator[None]:
    """Leave the scope of the current tf.distribute strategy, as if none had been entered."""
    distribute_lib._push_per_thread_mode(distribute_lib._get_default_replica_mode())
    try:
        yield
    finally:
        distribute_lib._pop_per_thread_mode()
