"""The optimizers that a model's train_step applies, and its variables, wherever they are kept."""

import collections
import contextlib
from typing import Any

import keras
import tensorflow as tf

from trainer.engine import draws
from trainer.engine.internals import find, replaced
from vertex.errors import InputError

_PARTS = (
    keras.Operation,  # Layers are operations.
    keras.Loss,
    keras.Metric,
    keras.Optimizer,
    keras.optimizers.schedules.LearningRateSchedule,
    keras.random.SeedGenerator,
    keras.regularizers.Regularizer,
    tf.Module,
    tf.random.Generator,
)


def list_optimizers(model: keras.Model) -> list[keras.Optimizer]:
    """Return the optimizers that a model and its layers keep: as attributes, in lists or dicts.

    The inner ones of an optimizer are not among them.
    """
    found = _find([model.optimizer, model], keras.Optimizer, set())
    inner = {id(one) for outer in found for one in list_inner(outer)}
    return [optimizer for optimizer in found if id(optimizer) not in inner]


def list_inner(optimizer: keras.Optimizer) -> list[keras.Optimizer]:
    """Return the optimizers to which one delegates, as LossScaleOptimizer and MultiOptimizer do."""
    return _find(vars(optimizer), keras.Optimizer, {id(optimizer)})


def list_variables(*values: Any) -> list[keras.Variable | tf.Variable]:
    """Return the variables that models, losses, containers and the like keep.

    Their order is the same in each process. A variable may be there twice.
    """
    return list_parts((keras.Variable, tf.Variable), *values)


def list_parts(kind: Any, *values: Any) -> list[Any]:
    """Return the parts of a kind that models, losses, containers and the like keep, each once."""
    return _find(values, kind, set())


def list_kept(model: keras.Model) -> dict[int, keras.Variable | tf.Variable]:
    """Return what a training of a model may change, by id: all variables but those of callbacks."""
    kept = [*model.variables, *list_variables(model.optimizer, model)]
    kept.append(draws.get_unseeded(model.distribute_strategy).state)
    return {id(get_tf_variable(variable)): variable for variable in kept}


def get_tf_variable(variable: keras.Variable | tf.Variable) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _find(value: Any, kind: Any, seen: set[int]) -> list[Any]:
    if id(value) in seen:
        return []
    seen.add(id(value))
    parts: Any = ()
    if isinstance(value, _PARTS):
        parts = vars(value).values()
    elif isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple | collections.deque):
        parts = value
    elif isinstance(value, set):
        parts = sorted(value, key=lambda part: str(getattr(part, "name", part)))
    found = [value] if isinstance(value, kind) else []
    for part in [*parts]:
        found += _find(part, kind, seen)
    return found


def others_refused(model: keras.Model) -> contextlib.AbstractContextManager[None]:
    """Raise InputError in this context if a step applies an optimizer that is not listed."""
    listed = list_optimizers(model)
    known = {id(one) for outer in listed for one in (outer, *list_inner(outer))}
    apply = find(keras.Optimizer, "apply")

    def apply_known(self: keras.Optimizer, *arguments: Any, **options: Any) -> Any:
        if id(self) not in known:
            raise InputError(
                f"train_step applies the optimizer {self.name!r}, which the model "
                f"{model.name!r} does not keep; make it an attribute of the model, or an item of "
                "a list or dict that is one"
            )
        return apply(self, *arguments, **options)

    return replaced(keras.Optimizer, apply=apply_known)
