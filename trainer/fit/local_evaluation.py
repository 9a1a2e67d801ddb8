"""Evaluations, predictions and float(), which fail in Keras for a model on several replicas.

Each process that evaluates or predicts computes it alone, for all data.
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
def numbers_of_variables() -> Iterator[None]:
    """Let float() and int() take a variable of several replicas, as a callback's learning rate."""
    with (
        mock.patch.object(keras.Variable, "__float__", lambda self: float(self.numpy())),
        mock.patch.object(keras.Variable, "__int__", lambda self: int(self.numpy())),
    ):
        yield


@contextlib.contextmanager
def _outside_strategies() -> Iterator[None]:
    """Leave the scope of the current tf.distribute strategy, as if none had been entered."""
    distribute_lib._push_per_thread_mode(distribute_lib._get_default_replica_mode())
    try:
        yield
    finally:
        distribute_lib._pop_per_thread_mode()
