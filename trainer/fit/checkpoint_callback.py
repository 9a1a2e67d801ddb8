"""CheckpointCallback of a training by `trainer.fit`, with the state of the user's callbacks."""

import dataclasses
import io
import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.engine.applied_optimizers import get_tf_variable, list_kept, list_variables
from trainer.engine.checkpoints import Checkpoints, list_checkpoints, read_state
from trainer.engine.cluster import Cluster
from trainer.engine.compile_checks import list_states
from trainer.fit.callback_state import CallbackState
from trainer.fit.fit_loop import FitLoop
from vertex.errors import InputError


class _State(tf.train.experimental.PythonState):
    """Values as JSON, and arrays."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.arrays: dict[str, np.ndarray] = {}

    def serialize(self) -> bytes:
        content = io.BytesIO()
        values = json.dumps(self.values, default=lambda value: np.asarray(value).tolist())
        arrays: dict[str, Any] = {"values": np.array(values), **self.arrays}
        np.savez(content, **arrays)
        return content.getvalue()

    def deserialize(self, string_value: bytes) -> None:
        self.arrays = dict(np.load(io.BytesIO(string_value)))
        self.values = json.loads(str(self.arrays.pop("values")))


@dataclasses.dataclass(frozen=True)
class Done:
    """The part of a training that is done."""

    checkpoint: str
    """The newest checkpoint; empty if there is none."""
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
    for path in reversed(list_checkpoints(directory) if directory else []):
        state = _State()
        read_state(path, state)
        values = state.values
        if not values:
            raise InputError(
                f"{path} was saved by another version of this program, in another form; finish "
                "its training with that version, or give another directory"
            )
        is_enough = values["epochs"] >= epochs
        if values["finished"] and not is_enough:
            continue  # It goes on from the state before `on_train_end`.
        stopped = (values["stopped"] and is_enough) or values["epoch"] >= epochs
        return Done(path, values["epoch"], values["step"], stopped, values["finished"])
    return Done("", 0, 0, False, False)


class CheckpointCallback(keras.callbacks.Callback):
    """Save and restore a training after each epoch and at its end, with its callbacks' state.

    With a number of `steps`, save within an epoch, too, each time that so many are done.
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
        self._history, self._loop = history, loop
        self._trained, self._kept = model, list_kept(model)
        self._callback_state = CallbackState(callbacks, model)
        measured = self._list_measured()
        variables = [one for key, one in self._kept.items() if key not in measured]
        self._state = _State()
        self._checkpoints = Checkpoints(directory, cluster, variables, self._state)

    def restore(self) -> None:
        """Restore the newest checkpoint, if there is one."""
        if not self._newest:
            return
        self._checkpoints.restore(self._newest)
        history = self._state.values["history"]
        self._history.epoch = history["epoch"]
        self._history.history = {
            name: [np.array(value) if isinstance(value, list) else value for value in values]
            for name, values in history["values"].items()
        }

    def restore_begun_epoch(self) -> None:
        """Restore what callbacks may have changed in on_epoch_begin, and what was measured."""
        self.restore()
        self.on_train_begin()

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the state of the other callbacks, whose on_train_begin was called before."""
        self._callback_state.save()
        if self._loop and "metrics" in self._state.arrays:
            # Also those that are never reset.
            self._loop.totals = tf.constant(self._state.arrays["metrics"])
            self._loop.states.assign(self._loop.totals)
        if self._newest:
            values = self._state.values
            self._history.epoch = values["history"]["epoch"]
            self._callback_state.restore(values["callbacks"], self._state.arrays, self._newest)

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

    def _list_measured(self) -> set[int]:
        """Return the ids of the variables that metrics reset, or that the loop's states hold.

        Keras builds some of them in the first step.
        """
        model = self._trained
        states = list_states(model) if self._loop else []
        return {id(get_tf_variable(one)) for one in [*list_variables(model.metrics), *states]}

    def _save(self, epoch: int, step: int, *, is_finished: bool = False) -> None:
        """Save a checkpoint with which training goes on in an epoch, after so many steps."""
        known = self._kept.keys() | self._list_measured()
        for key, variable in list_kept(self._trained).items():
            if key not in known:
                raise InputError(
                    f"the model {self._trained.name!r} has created the variable {variable.name} "
                    "in a step, which a checkpoint can't restore; create it when the model is "
                    "made or built"
                )
        callbacks, arrays = self._callback_state.save()
        if self._loop:
            arrays["metrics"] = self._loop.states.take_over(self._loop.totals).numpy()
        self._state.arrays = arrays
        self._state.values = {
            "epoch": epoch,
            "step": step,
            "epochs": self._epochs,
            "stopped": bool(self.model.stop_training),
            "finished": is_finished,
            "callbacks": callbacks,
            "history": {"epoch": self._history.epoch, "values": self._history.history},
        }
        self._checkpoints.save(epoch * 10**9 + is_finished * 10**8 + step)
