"""The state of the user's callbacks, as JSON and arrays; nothing is pickled."""

import collections
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.engine.applied_optimizers import get_tf_variable, list_kept, list_variables
from trainer.engine.internals import set_monitor
from vertex.errors import InputError

_CONTAINERS: dict[str, Any] = {
    "dict": dict,
    "list": list,
    "tuple": tuple,
    "set": set,
    "deque": collections.deque,
}
_ARRAYS: dict[str, tuple[type, Callable[[np.ndarray], Any]]] = {
    "number": (np.generic, lambda array: array[()]),
    "array": (np.ndarray, lambda array: array),
    "tensor": (tf.Tensor, tf.convert_to_tensor),
}
_MISSING = object()
"""The value of an attribute or an item that a callback does not have yet."""


class CallbackState:
    """The attributes of callbacks that have changed since a training was begun.

    The others are settings, which the next start may give otherwise.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback], model: keras.Model) -> None:
        self._callbacks, self._model = callbacks, model
        self._settings = {digest for *_, digest in self._encode()}

    def save(self) -> tuple[dict[str, dict[str, Any]], dict[str, np.ndarray]]:
        """Return what has ever changed, as JSON, and the arrays by name."""
        encoded = [*self._encode()]
        self._settings &= {digest for *_, digest in encoded}
        changed: dict[str, dict[str, Any]] = {name: {} for name, _ in self._named()}
        named: dict[str, np.ndarray] = {}
        for name, attribute, value, arrays, digest in encoded:
            if digest not in self._settings:
                changed[name][attribute] = value, len(arrays)
                named |= {f"{name}/{attribute}/{n}": array for n, array in enumerate(arrays)}
        return changed, named

    def restore(
        self, changed: dict[str, dict[str, Any]], arrays: dict[str, np.ndarray], origin: str
    ) -> None:
        """Restore what was saved; `origin` is where, for an error."""
        known = list_kept(self._model).keys()
        for name, callback in self._named():
            set_monitor(callback)
            for attribute, (saved, count) in changed.get(name, {}).items():
                found = [arrays[f"{name}/{attribute}/{number}"] for number in range(count)]
                value = vars(callback).get(attribute, _MISSING)
                try:
                    value = _decode(saved, value, found, known)
                except LookupError:
                    raise InputError(
                        f"{origin} has other variables of {type(callback).__name__}."
                        f"{attribute} than the callback; create them before its on_train_begin "
                        "ends, or give another directory"
                    ) from None
                if value is not _MISSING:
                    vars(callback)[attribute] = value

    def _named(self) -> Iterator[tuple[str, keras.callbacks.Callback]]:
        """Yield the callbacks, with names that are the same in each process."""
        for number, callback in enumerate(self._callbacks):
            yield f"{number}-{type(callback).__name__}", callback

    def _encode(self) -> Iterator[tuple[str, str, Any, list[np.ndarray], int]]:
        """Yield the names of a callback and an attribute, its JSON, arrays and their hash."""
        known = list_kept(self._model).keys()
        for name, callback in self._named():
            for attribute in vars(callback).keys() - vars(keras.callbacks.Callback()).keys():
                arrays: list[np.ndarray] = []
                value = _encode(vars(callback)[attribute], arrays, known)
                content = json.dumps(value), *(array.tobytes() for array in arrays)
                yield name, attribute, value, arrays, hash((name, attribute, *content))


def _encode(value: Any, arrays: list[np.ndarray], known: Collection[int]) -> Any:
    """Return a value as JSON, and add its arrays to a list.

    Of objects of other classes these are the variables, except those `known`.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    for kind, container in _CONTAINERS.items():
        if isinstance(value, container) and not hasattr(value, "_fields"):
            parts = [*value, *value.values()] if kind == "dict" else value
            return [kind, [_encode(part, arrays, known) for part in parts]]
    first = len(arrays)
    for kind, (array, _) in _ARRAYS.items():
        if isinstance(value, array) and np.asarray(value).dtype != object:
            arrays.append(_to_array(value))
            return [kind, first]
    arrays += [_to_array(variable) for variable in _list_others(value, known)]
    return ["variables", [*range(first, len(arrays))]]


def _decode(saved: Any, value: Any, arrays: list[np.ndarray], known: Collection[int]) -> Any:
    """Return what was encoded, in the containers and variables of the present value, if it has any.

    Objects of other classes are those of the present value. Raise LookupError if they have other
    variables.
    """

    def decode(saved: list[Any], values: list[Any]) -> list[Any]:
        values = [*values, *[_MISSING] * len(saved)]
        return [_decode(*pair, arrays, known) for pair in zip(saved, values, strict=False)]

    if not isinstance(saved, list):
        return saved
    kind, content = saved
    if kind in _ARRAYS:
        return _ARRAYS[kind][1](arrays[content])
    if kind == "variables":
        variables = _list_others(value, known)
        if [variable.shape for variable in variables] != [arrays[n].shape for n in content]:
            raise LookupError
        for variable, number in zip(variables, content, strict=True):
            variable.assign(tf.cast(arrays[number], variable.dtype))
        return value
    present = value if isinstance(value, _CONTAINERS[kind]) else _CONTAINERS[kind]()
    if kind == "dict":
        keys = decode(content[: len(content) // 2], [*present])
        items = decode(content[len(keys) :], [present.get(key, _MISSING) for key in keys])
        pairs = [*zip(keys, items, strict=True)]
        present.clear()
        present.update(pair for pair in pairs if not any(part is _MISSING for part in pair))
        return present
    items = [item for item in decode(content, [*present]) if item is not _MISSING]
    if kind == "tuple":
        return tuple(items)
    present.clear()
    (present.update if kind == "set" else present.extend)(items)
    return present


def _list_others(value: Any, known: Collection[int]) -> list[tf.Variable]:
    """Return the variables of a value that are not known, each once."""
    variables = {id(one): one for one in map(get_tf_variable, list_variables(value))}
    return [variable for key, variable in variables.items() if key not in known]


def _to_array(value: Any) -> np.ndarray:
    """Return a NumPy array that np.load can read, as float32 instead of bfloat16."""
    array = value.numpy() if isinstance(value, tf.Variable) else np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "V" else array
