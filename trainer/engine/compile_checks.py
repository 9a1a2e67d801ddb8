"""Refuse what a model's `compile` may say that several replicas can't train."""

import itertools
import re

import keras
import tensorflow as tf

from trainer.engine.applied_optimizers import list_inner, list_optimizers, list_parts
from trainer.engine.internals import get_metric_function, is_of_keras
from vertex.errors import InputError, first_line

_MEANS = ("mean", "sum_over_batch_size")
"""Reductions of losses that are means over the rows."""


def is_own_metric(metric: keras.Metric) -> bool:
    """Return whether a metric is the user's own, whose states may be no sums over rows."""
    return not is_of_keras(type(metric))


def list_metrics(model: keras.Model) -> list[keras.Metric]:
    """Return a model's metrics, those that `compile` was given, and others that it keeps."""
    return list_parts(keras.Metric, model.metrics, model)


def list_states(model: keras.Model) -> list[keras.Variable]:
    """Return the variables in which a model's metrics keep their states."""
    states = [variable for metric in list_metrics(model) for variable in metric.variables]
    # A metric may refer to a weight, which Keras takes for a variable of the metric, too.
    return [*{id(variable): variable for variable in states if not variable.trainable}.values()]


def has_steps_of_keras(model: keras.Model) -> bool:
    """Return whether all of a model's steps but its loss is Keras' own."""
    names = ("train_step", "test_step", "compute_metrics", "get_metrics_result")
    return all(getattr(type(model), name) is getattr(keras.Model, name) for name in names)


def is_plain(model: keras.Model) -> bool:
    """Return whether the steps of a model, and its metrics, are Keras' own."""
    return has_steps_of_keras(model) and all(
        is_of_keras(get_metric_function(metric) or type(metric)) and not is_own_metric(metric)
        for metric in list_metrics(model)
    )


def find_reason(error: Exception) -> str:
    """Return the line of an error in a layer that gives the reason, without Keras' heading."""
    text = re.sub(r"Exception encountered when calling .*|\x1b\[\d*m", "", str(error))
    return first_line(ValueError(text))


def check_compiled(model: keras.Model) -> None:
    """Raise InputError for losses that are no means, and what no workers can do independently."""
    if model.run_eagerly:
        raise InputError("run_eagerly=True can't be used on several replicas; leave it out")
    if isinstance(model.distribute_strategy, tf.distribute.ParameterServerStrategy):
        applied = [(one, *list_inner(one)) for one in list_optimizers(model)]
        names = ("gradient_accumulation_steps", "ema_overwrite_frequency")
        for optimizer, name in itertools.product(itertools.chain(*applied), names):
            if value := getattr(optimizer, name, None):
                raise InputError(
                    f"{name}={value} can't be used with parameter servers, whose workers take "
                    "steps independently; leave it out"
                )
    for variable in list_states(model):
        dtype = tf.as_dtype(variable.dtype)
        if not (dtype.is_floating or dtype.is_integer):
            raise InputError(
                f"the metric's variable {variable.path!r} has the type {dtype.name}, which can't "
                "be a sum over rows; keep numbers in it"
            )
    for loss in tf.nest.flatten(model.loss):
        reduction = getattr(loss, "reduction", _MEANS[0])
        if reduction not in _MEANS:
            raise InputError(
                f"the loss {loss.name!r} has reduction={reduction!r}, which is not a mean over the "
                f"rows of all replicas; use {_MEANS[1]!r}"
            )
