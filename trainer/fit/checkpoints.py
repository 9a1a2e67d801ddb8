"""Checkpoints of a training by `trainer.fit`, with the state of the user's callbacks."""

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


def find_finished(directory: str) -> int:
    """Return the number of epochs before the newest checkpoint; 0 without one."""
    newest = tf.train.latest_checkpoint(directory) if directory else None
    return int(newest.rpartition("-")[2]) if newest else 0


class Checkpoints(keras.callbacks.Callback):
    """Save and restore a training after each epoch, with the state of its callbacks.

    Every worker saves, as tf.distribute requires; those other than the chief to a temporary folder.
    """

    def __init__(
        self,
        directory: str,
        cluster: Cluster,
        model: keras.Model,
        history: keras.callbacks.History,
        callbacks: Sequence[keras.callbacks.Callback],
    ) -> None:
        super().__init__()
        self._history, self._callbacks = history, callbacks
        self._temporary = "" if cluster.is_chief else tempfile.mkdtemp(prefix="fit-")
        metrics = {id(variable) for metric in model.metrics for variable in metric.variables}
        variables = [one for one in model.variables if id(one) not in metrics]
        variables += [one for of in list_optimizers(model) for one in of.variables]
        unseeded = draws.get_unseeded(model.distribute_strategy)
        self._variables = [*variables, unseeded.state]
        # The finished epochs, their history and the callbacks' numbers; and their arrays.
        self._numbers, self._arrays = (tf.Variable("", dtype=tf.string) for _ in range(2))
        checkpoint = tf.train.Checkpoint(
            variables=[one.value for one in self._variables],
            numbers=self._numbers,
            arrays=self._arrays,
        )
        self._newest = tf.train.latest_checkpoint(directory)
        self._manager = tf.train.CheckpointManager(
            checkpoint, self._temporary or directory, max_to_keep=2
        )

    def restore(self) -> int:
        """Restore the newest checkpoint, if there is one; return the next epoch, from 0."""
        if not self._newest:
            return 0
        shapes = tf.train.load_checkpoint(self._newest).get_variable_to_shape_map()
        for place, one in enumerate(self._variables):
            saved = shapes.get(f"variables/{place}/.ATTRIBUTES/VARIABLE_VALUE")
            if saved != [*one.shape]:
                raise InputError(
                    f"{self._newest} is of another model or optimizer: {one.path} has the shape "
                    f"{[*one.shape]}, there {saved}; give another directory"
                )
        self._manager.checkpoint.restore(self._newest).assert_consumed()
        state = json.loads(self._numbers.numpy())
        self._history.history = state["history"]
        return int(state["epoch"])

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
                restored = [arrays[f"{name}/{attribute}/{place}"] for place in range(count)]
                setattr(callback, attribute, restored)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        numbers: dict[str, dict[str, Any]] = {}
        lists: dict[str, dict[str, list[np.ndarray]]] = {}
        for name, callback in self._named():
            numbers[name], lists[name] = {}, {}
            for attribute, value in vars(callback).items():
                if isinstance(value, bool | int | float | np.number):
                    numbers[name][attribute] = value
                if isinstance(value, list) and all(isinstance(one, np.ndarray) for one in value):
                    lists[name][attribute] = value
        arrays = io.BytesIO()
        named: Any = {
            f"{name}/{attribute}/{place}": array
            for name, of in lists.items()
            for attribute, value in of.items()
            for place, array in enumerate(value)
        }
        np.savez(arrays, **named)
        counts = {
            name: {attribute: len(value) for attribute, value in of.items()}
            for name, of in lists.items()
        }
        state = {"epoch": epoch + 1, "callbacks": numbers, "arrays": counts}
        state["history"] = self._history.history
        self._numbers.assign(json.dumps(state, default=float))
        self._arrays.assign(arrays.getvalue())
        self._manager.save(checkpoint_number=epoch + 1)
        if self._temporary:
            shutil.rmtree(self._temporary)

    def _named(self) -> Iterator[tuple[str, keras.callbacks.Callback]]:
        """Yield the callbacks, with names that are the same in each process."""
        for place, callback in enumerate(self._callbacks):
            yield f"{place}-{type(callback).__name__}", callback
