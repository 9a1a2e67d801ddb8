"""The steps of a model that `fit` has traced, for its next `fit`."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras

from trainer.engine import draws
from trainer.engine.applied_optimizers import list_optimizers
from trainer.engine.compile_checks import list_states
from trainer.engine.internals import get_loss_tracker
from trainer.engine.metric_states import MetricStates

_ATTRIBUTE = "_steps_traced_by_fit"


@dataclasses.dataclass
class TracedSteps:
    """Functions of steps, and the states of the metrics that they change.

    As those of Keras' own `fit`, they are the model's until it is compiled again.
    """

    used: list[Any]
    """Objects that they were traced with, besides the model."""
    states: MetricStates
    functions: dict[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)
    """By the step's name, and the specification of its arguments."""
    untried: set[str] = dataclasses.field(default_factory=set)
    """Those of them that were not tried, because the first batch had a single row."""


def find_traced(model: keras.Model) -> TracedSteps:
    """Return the steps that were traced by an earlier `fit`, none if the model has changed."""
    used = [
        get_loss_tracker(model),
        draws.get_unseeded(model.distribute_strategy),
        *list_optimizers(model),
        *list_states(model),
    ]
    known = getattr(model, _ATTRIBUTE, None)
    if known is None or [*map(id, known.used)] != [*map(id, used)]:
        known = TracedSteps(used, MetricStates(model))
        setattr(model, _ATTRIBUTE, known)
    return known
