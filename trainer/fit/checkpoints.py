"""CheckpointCallback of a training by `trainer.fit`, with the state of the user's callbacks."""

import collections
import dataclasses
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.engine import draws
from trainer.engine.applied_optimizers import list_variables
from trainer.engine.cluster import Cluster
from trainer.engine.compile_checks import list_states
from trainer.errors import InputError
from trainer.fit.fit_loop import FitLoop

_NUMBERS = "numbers/.ATTRIBUTES/VARIABLE_VALUE"
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


@dataclasses.dataclass(frozen=True)
class Done:
    """The part of a training that is done."""

    checkpoint: str | None
    epoch: int
    """Finished epochs."""
    step: int
    """Steps of the next epoch that are done."""
    is_stopped: bool
    """No epoch follows: a callback has stopped the training, or it was the last one."""
    is_finished: bool
    """`on_train_end` was called, too, as when the best weights are restored."""


def find_done(directory: str, epochs: int) -> Done:
    """Return what is done, by the newest checkpoint, of a training of so many epochs."""
    state = tf.train.get_checkpoint_state(directory) if directory else None
    for path in reversed(state.all_model_checkpoint_paths if state else []):
        numbers = json.loads(tf.train.load_checkpoint(path).get_tensor(_NUMBERS))
        if "arrays" in numbers:
            raise InputError(
                f"{path} was saved by an older version of this program, in another form; finish "
                "its training with that version, or give another directory"
            )
        is_enough = numbers["epochs"] >= epochs
        if numbers["finished"] and not is_enough:
            continue  # It goes on from the state before `on_train_end`.
        stopped = (numbers["stopped"] and is_enough) or numbers["epoch"] >= epochs
        return Done(path, numbers["epoch"], numbers["step"], stopped, numbers["finished"])
    return Done(None, 0, 0, False, False)


class CheckpointCallback(keras.callbacks.Callback):
    """Save and restore a training after each epoch and at its end, with its callbacks' state.

    With a number of `steps`, save within an epoch, too, each time that so many are done.

    Every worker saves, as tf.distribute requires; those other than the chief to a temporary folder.
    """

    def __init__(
        self,
        directory: str,
        cluster: Cluster,
        model: keras.Model,
        history: keras.callbacks.History,
        callbacks: Sequence[keras.callbacks.Callback],
        *,
        steps: int,
        epochs: int,
        done: Done,
        loop: FitLoop | None,
    ) -> None:
        super().__init__()
        self._every, self._epoch, self._step = steps, done.epoch, 0
        self._epochs, self._newest = epochs, done.checkpoint
        self._history, self._callbacks = history, callbacks
        self._temporary = "" if cluster.is_chief else tempfile.mkdtemp(prefix="fit-")
        self._loop = loop
        self._trained, self._kept = model, _list_kept(model)
        measured = {id(_get_value(variable)) for variable in list_states(model)}
        self._variables = [one for key, one in self._kept.items() if key not in measured]
        self._settings = {digest for *_, digest in self._encode_callbacks()}
        # The finished epochs and steps, the history and the callbacks' state; and its arrays.
        self._numbers, self._arrays = (tf.Variable("", dtype=tf.string) for _ in range(2))
        checkpoint = tf.train.Checkpoint(
            variables=[_get_value(variable) for variable in self._variables],
            numbers=self._numbers,
            arrays=self._arrays,
        )
        self._manager = tf.train.CheckpointManager(
            checkpoint, self._temporary or directory, max_to_keep=2
        )

    def restore(self) -> None:
        """Restore the newest checkpoint, if there is one."""
        if not self._newest:
            return
        shapes = tf.train.load_checkpoint(self._newest).get_variable_to_shape_map()
        for number, variable in enumerate(self._variables):
            saved = shapes.get(f"variables/{number}/.ATTRIBUTES/VARIABLE_VALUE")
            if saved != [*variable.shape]:
                raise InputError(
                    f"{self._newest} is of another model or optimizer: {_name(variable)} has the "
                    f"shape {[*variable.shape]}, there {saved}; give another directory"
                )
        self._manager.checkpoint.restore(self._newest).assert_consumed()
        state = json.loads(self._numbers.numpy())
        self._history.epoch = state["history"]["epoch"]
        self._history.history = {
            name: [np.array(value) if isinstance(value, list) else value for value in values]
            for name, values in state["history"]["values"].items()
        }

    def restore_begun_epoch(self) -> None:
        """Restore what callbacks may have changed in on_epoch_begin, and what was measured."""
        self.restore()
        self.on_train_begin()
        arrays = np.load(io.BytesIO(self._arrays.numpy()))
        if self._loop:
            self._loop.totals = tf.constant(arrays["metrics"])

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the state of the other callbacks, whose on_train_begin was called before."""
        self._list_changed()
        if not self._newest:
            return
        state = json.loads(self._numbers.numpy())
        self._history.epoch = state["history"]["epoch"]
        arrays = np.load(io.BytesIO(self._arrays.numpy()))
        known = _list_kept(self._trained).keys()
        for name, callback in self._named():
            # Callbacks that compare values set this up at the end of their first epoch.
            if getattr(callback, "monitor_op", False) is None:
                callback._set_monitor_op()
            for attribute, (saved, count) in state["callbacks"].get(name, {}).items():
                found = [arrays[f"{name}/{attribute}/{number}"] for number in range(count)]
                value = vars(callback).get(attribute, _MISSING)
                try:
                    value = _decode(saved, value, found, known)
                except LookupError:
                    raise InputError(
                        f"{self._newest} has other variables of {type(callback).__name__}."
                        f"{attribute} than the callback; create them before its on_train_begin "
                        "ends, or give another directory"
                    ) from None
                if value is not _MISSING:
                    vars(callback)[attribute] = value

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch, self._step = epoch, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        before, self._step = self._step, batch + 1
        if self._every and self._step // self._every > before // self._every:
            self._save(self._epoch, self._step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch + 1
        self._save(self._epoch, 0)

    def on_train_end(self, logs: Any = None) -> None:
        self._save(self._epoch, 0, is_finished=True)

    def _save(self, epoch: int, step: int, *, is_finished: bool = False) -> None:
        """Save a checkpoint with which training goes on in an epoch, after so many steps."""
        measured = {id(_get_value(variable)) for variable in list_states(self._trained)}
        for key, variable in _list_kept(self._trained).items():
            if key not in self._kept and key not in measured:
                raise InputError(
                    f"the model {self._trained.name!r} has created the variable {_name(variable)} "
                    "in a step, which a checkpoint can't restore; create it when the model is "
                    "made or built"
                )
        callbacks, named = self._list_changed()
        if self._loop and step:
            named["metrics"] = self._loop.totals.numpy()
        arrays = io.BytesIO()
        np.savez(arrays, **named)
        state = {
            "epoch": epoch,
            "step": step,
            "epochs": self._epochs,
            "stopped": bool(self.model.stop_training),
            "finished": is_finished,
            "callbacks": callbacks,
            "history": {"epoch": self._history.epoch, "values": self._history.history},
        }
        self._numbers.assign(json.dumps(state, default=lambda value: np.asarray(value).tolist()))
        self._arrays.assign(arrays.getvalue())
        self._manager.save()
        if self._temporary:
            shutil.rmtree(self._temporary)

    def _named(self) -> Iterator[tuple[str, keras.callbacks.Callback]]:
        """Yield the callbacks, with names that are the same in each process."""
        for number, callback in enumerate(self._callbacks):
            yield f"{number}-{type(callback).__name__}", callback

    def _list_changed(self) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        """Return the callbacks' attributes that have ever changed, as JSON, and their arrays.

        The others are settings, which the next start may give otherwise.
        """
        encoded = [*self._encode_callbacks()]
        self._settings &= {digest for *_, digest in encoded}
        changed: dict[str, dict[str, Any]] = {name: {} for name, _ in self._named()}
        named: dict[str, Any] = {}
        for name, attribute, value, arrays, digest in encoded:
            if digest not in self._settings:
                changed[name][attribute] = value, len(arrays)
                named |= {f"{name}/{attribute}/{n}": array for n, array in enumerate(arrays)}
        return changed, named

    def _encode_callbacks(self) -> Iterator[tuple[str, str, Any, list[np.ndarray], int]]:
        """Yield the names of a callback and an attribute, its JSON, arrays and their hash."""
        known = _list_kept(self._trained).keys()
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


def _list_kept(model: keras.Model) -> dict[int, keras.Variable | tf.Variable]:
    """Return what a training of a model may change, by id: all variables but those of callbacks."""
    kept = [*model.variables, *list_variables(model.optimizer, model)]
    kept.append(draws.get_unseeded(model.distribute_strategy).state)
    return {id(_get_value(variable)): variable for variable in kept}


def _list_others(value: Any, known: Collection[int]) -> list[tf.Variable]:
    """Return the variables of a value that are not known, each once."""
    variables = {id(one): one for one in map(_get_value, list_variables(value))}
    return [variable for key, variable in variables.items() if key not in known]


def _get_value(variable: keras.Variable | tf.Variable) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _name(variable: keras.Variable | tf.Variable) -> str:
    return getattr(variable, "path", variable.name)


def _to_array(value: Any) -> np.ndarray:
    """Return a NumPy array that np.load can read, as float32 instead of bfloat16."""
    array = value.numpy() if isinstance(value, tf.Variable) else np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "V" else array
