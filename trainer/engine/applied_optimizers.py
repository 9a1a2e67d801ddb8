"""The optimizers that a model's train_step applies, wherever the model keeps them."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import keras
from keras.src.optimizers.base_optimizer import BaseOptimizer

from trainer.errors import InputError


def list_optimizers(model: keras.Model) -> list[keras.Optimizer]:
    """Return the optimizers that a model and its layers keep: as attributes, in lists or dicts.

    The inner ones of an optimizer are not among them.
    """
    found = _find([model.optimizer, model], set())
    inner = {id(one) for outer in found for one in list_inner(outer)}
    return [optimizer for optimizer in found if id(optimizer) not in inner]


def list_inner(optimizer: keras.Optimizer) -> list[keras.Optimizer]:
    """Return the optimizers to which one delegates, as LossScaleOptimizer and MultiOptimizer do."""
    return _find(vars(optimizer), {id(optimizer)})


def _find(value: Any, seen: set[int]) -> list[keras.Optimizer]:
    if id(value) in seen:
        return []
    seen.add(id(value))
    found: list[keras.Optimizer] = []
    parts: Any = ()
    if isinstance(value, keras.Optimizer):
        found, parts = [value], vars(value).values()
    elif isinstance(value, keras.Layer):
        parts = vars(value).values()
    elif isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple | set):
        parts = value
    for part in [*parts]:
        found += _find(part, seen)
    return found


@contextlib.contextmanager
def others_refused(model: keras.Model) -> Iterator[None]:
    """Raise InputError in this context if a step applies an optimizer that is not listed."""
    listed = list_optimizers(model)
    known = {id(one) for outer in listed for one in (outer, *list_inner(outer))}
    apply = BaseOptimizer.apply

    def apply_known(self: keras.Optimizer, *arguments: Any, **options: Any) -> Any:
        if id(self) not in known:
            raise InputError(
                f"train_step applies the optimizer {self.name!r}, which the model "
                f"{model.name!r} does not keep; make it an attribute of the model, or an item of "
                "a list or dict that is one"
            )
        return apply(self, *arguments, **options)

    with mock.patch.object(BaseOptimizer, "apply", apply_known):
        yield
