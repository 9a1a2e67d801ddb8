"""CheckpointCallback of a training by `trainer.fit`, with the state of the user's callbacks."""

import io
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.errors import InputError
from trainer.fit.replica_sums import list_optimizers
from trainer.training import draws
from trainer.training.cluster import Cluster

_NUMBERS = "numbers/.ATTRIBUTES/VARIABLE_VALUE"


def find_done(directory: str) -> tuple[int, int]:
    """Return the epochs before the newest checkpoint, and the steps of the next; 0 without one."""
    newest = tf.train.latest_checkpoint(directory) if directory else None
    if not newest:
        return 0, 0
    state = json.loads(tf.train.load_checkpoint(newest).get_tensor(_NUMBERS))
    return state["epoch"], state.get("step", 0)


class CheckpointCallback(keras.callbacks.Callback):
    """Save and restore a training after each epoch, with the state of its callbacks.

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
        steps: int,
    ) -> None:
        super().__init__()
        self._every, self._epoch, self._step = steps, 0, 0
        self._history, self._callbacks = history, callbacks
        self._temporary = "" if cluster.is_chief else tempfile.mkdtemp(prefix="fit-")
        self._measured = [variable for metric in model.metrics for variable in metric.variables]
        measured = {id(variable) for variable in self._measured}
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
        self._newest = tf.train.latest_checkpoint(directory)
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
        self._history.history = json.loads(self._numbers.numpy())["history"]

    def restore_begun_epoch(self) -> None:
        """Restore what callbacks may have changed in on_epoch_begin, and what was measured."""
        self.restore()
        self.on_train_begin()
        arrays = np.load(io.BytesIO(self._arrays.numpy()))
        for number, variable in enumerate(self._measured):
            variable.assign(arrays[f"metrics/{number}"])

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the state of the other callbacks, whose on_train_begin was called before."""
        if not self._newest:
            return
        state = json.loads(self._numbers.numpy())
        self._history.epoch = list(range(state["epoch"]))
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
        self._save(epoch + 1, 0)

    def _save(self, epoch: int, step: int) -> None:
        """Save a checkpoint with which training goes on in an epoch, after so many steps."""
        numbers: dict[str, dict[str, Any]] = {}
        lists: dict[str, dict[str, list[np.ndarray]]] = {}
        for name, callback in self._named():
            numbers[name], lists[name] = {}, {}
            for attribute, value in vars(callback).items():
                if isinstance(value, bool | int | float | np.number):
                    numbers[name][attribute] = value
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
            named |= {
                f"metrics/{number}": np.array(variable)
                for number, variable in enumerate(self._measured)
            }
        np.savez(arrays, **named)
        counts = {
            name: {attribute: len(value) for attribute, value in found.items()}
            for name, found in lists.items()
        }
        state = {"epoch": epoch, "step": step, "callbacks": numbers, "arrays": counts}
        state["history"] = self._history.history
        self._numbers.assign(json.dumps(state, default=float))
        self._arrays.assign(arrays.getvalue())
        self._manager.save()
        if self._temporary:
            shutil.rmtree(self._temporary)

    def _named(self) -> Iterator[tuple[str, keras.callbacks.Callback]]:
        """Yield the callbacks, with names that are the same in each process."""
        for number, callback in enumerate(self._callbacks):
            yield f"{number}-{type(callback).__name__}", callback
