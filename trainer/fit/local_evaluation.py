"""Evaluations, predictions and float(), which fail in Keras for a model on several replicas.

Each process that evaluates or predicts computes it alone, for all data.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer.engine.internals import find, outside_strategies, replaced


def evaluate_in_this_process(model: keras.Model) -> None:
    """Let evaluations and predictions of the model be computed by the process that calls them."""
    model.jit_compile = False
    for name in ("evaluate", "predict", "test_on_batch", "predict_on_batch"):
        alone = functools.partial(_call_alone, model, getattr(type(model), name))
        setattr(model, name, alone)


def _call_alone(
    model: keras.Model, function: Callable[..., Any], *args: Any, **options: Any
) -> Any:
    get_strategy = find(type(model), "distribute_strategy")

    def get_none(other: keras.Model) -> tf.distribute.Strategy:
        return tf.distribute.get_strategy() if other is model else get_strategy(other)

    with outside_strategies(), replaced(type(model), distribute_strategy=get_none):
        return function(model, *args, **options)


def numbers_of_variables() -> contextlib.AbstractContextManager[None]:
    """Let float() and int() take a variable of several replicas, as a callback's learning rate."""
    return replaced(
        keras.Variable,
        __float__=lambda self: float(self.numpy()),
        __int__=lambda self: int(self.numpy()),
    )
