"""CheckpointCallback of a training by `trainer.fit`, with the state of the user's callbacks."""

import dataclasses
import io
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.engine import draws
from trainer.engine.applied_optimizers import list_optimizers
from trainer.engine.cluster import Cluster
from trainer.engine.compile_checks import list_states
from trainer.errors import InputError
from trainer.fit.fit_loop import FitLoop

_NUMBERS = "numbers/.ATTRIBUTES/VARIABLE_VALUE"


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
        self._initial: dict[str, dict[str, Any]] = {}
        self._history, self._callbacks = history, callbacks
        self._temporary = "" if cluster.is_chief else tempfile.mkdtemp(prefix="fit-")
        self._loop = loop
        measured = {id(variable) for variable in list_states(model)}
        variables = [variable for variable in model.variables if id(variable) not in measured]
        variables += [
            variable for optimizer in list_optimizers(model) for variable in optimizer.variables
        ]
        unseeded = draws.get_unseeded(model.distribute_strategy)
        self._variables = [*variables, unseeded.state]
        # The finished epochs and steps, the history and the callbacks' numbers; and their arrays.
        self._numbers, self._arrays = (tf.Variable("", dtype=tf.string) for _ in range(2))
        checkpoint = tf.train.Checkpoint(
            variables=[variable.value for variable in self._variables],
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
                    f"{self._newest} is of another model or optimizer: {variable.path} has the "
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
        self._loop.totals = tf.constant(arrays["metrics"])

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the state of the other callbacks, whose on_train_begin was called before."""
        self._initial = {name: _list_numbers(callback) for name, callback in self._named()}
        if not self._newest:
            return
        state = json.loads(self._numbers.numpy())
        self._history.epoch = state["history"]["epoch"]
        arrays = np.load(io.BytesIO(self._arrays.numpy()))
        for name, callback in self._named():
            # Callbacks that compare values set this up at the end of their first epoch.
            if getattr(callback, "monitor_op", False) is None:
                callback._set_monitor_op()
            vars(callback).update(state["callbacks"].get(name, {}))
            for attribute, count in state["arrays"].get(name, {}).items():
                restored = [arrays[f"{name}/{attribute}/{number}"] for number in range(count)]
                setattr(callback, attribute, restored)

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
        numbers: dict[str, dict[str, Any]] = {}
        lists: dict[str, dict[str, list[np.ndarray]]] = {}
        for name, callback in self._named():
            initial = self._initial[name]
            # What has not changed is a setting, which the next start may give otherwise.
            numbers[name] = {
                attribute: value
                for attribute, value in _list_numbers(callback).items()
                if attribute not in initial or initial[attribute] != value
            }
            lists[name] = {}
            for attribute, value in vars(callback).items():
                if isinstance(value, list) and all(isinstance(item, np.ndarray) for item in value):
                    lists[name][attribute] = value
        arrays = io.BytesIO()
        named: Any = {
            f"{name}/{attribute}/{number}": array
            for name, found in lists.items()
            for attribute, value in found.items()
            for number, array in enumerate(value)
        }
        if step:
            named["metrics"] = self._loop.totals.numpy()
        np.savez(arrays, **named)
        counts = {
            name: {attribute: len(value) for attribute, value in found.items()}
            for name, found in lists.items()
        }
        state = {
            "epoch": epoch,
            "step": step,
            "epochs": self._epochs,
            "stopped": bool(self.model.stop_training),
            "finished": is_finished,
            "callbacks": numbers,
            "arrays": counts,
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


def _list_numbers(callback: keras.callbacks.Callback) -> dict[str, Any]:
    """Return the attributes of a callback that are numbers."""
    attributes = vars(callback).items()
    return {
        name: value
        for name, value in attributes
        if isinstance(value, bool | int | float | np.number)
    }
