"""The states of a model's metrics: sums over rows, which steps add up as tensors."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.engine.compile_checks import list_states
from trainer.engine.internals import find, replaced
from trainer.engine.scales import flatten_logs


class MetricStates:
    """The states of a model's metrics, from which each step begins anew.

    Variables would be added up in float32, in which a sum of 2^24 no longer grows by 1; and with
    parameter servers, assignments of several workers would overwrite each other.
    """

    def __init__(self, model: keras.Model) -> None:
        """Reset the metrics of a model that is built."""
        self._model = model
        self._variables = list_states(model)
        model.reset_metrics()
        self._initial = [np.array(variable) for variable in self._variables]
        self._sizes = [value.size for value in self._initial]
        self._local = threading.local()  # tf.distribute traces each replica in its own thread.

    def begin(self, totals: tf.Tensor | None = None) -> None:
        """Begin a replica's step; with `totals`, metrics go on from these sums of changes."""
        self._local.begun = self._find(self.make_totals() if totals is None else totals)
        self._local.states = self._local.begun

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Let metrics of a step that is traced in this context keep their states as tensors."""

        def keep(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                known = zip(self._variables, self._local.states, strict=True)
                with keras.StatelessScope([*known]) as scope:
                    result = function(*arguments, **options)
                self._local.states = [scope.get_current_value(one) for one in self._variables]
                return result

            return call

        with contextlib.ExitStack() as stack:
            for metric in self._model.metrics:
                for name in ("update_state", "result"):
                    kept = keep(find(metric, name))
                    stack.enter_context(replaced(metric, name, kept))
            yield

    def get_changes(self) -> tf.Tensor:
        """Return what the replica's step has added to the states, float32 [k]."""
        changes = [
            tf.reshape(tf.cast(tf.convert_to_tensor(state) - begun, tf.float32), [-1])
            for state, begun in zip(self._local.states, self._local.begun, strict=True)
        ]
        return tf.concat([tf.zeros([0]), *changes], 0)

    def make_totals(self, saved: Sequence[float] = ()) -> tf.Tensor:
        """Return sums of steps' changes, float64 [k]: saved ones, or those of no steps."""
        return tf.constant(saved or [0.0] * sum(self._sizes), tf.float64, [sum(self._sizes)])

    def measure(self, totals: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the metrics of sums of steps' changes, by name."""
        self._local.states = self._find(totals)
        with keras.StatelessScope([*zip(self._variables, self._local.states, strict=True)]):
            found = flatten_logs(self._model.get_metrics_result())
            return {name: tf.convert_to_tensor(value) for name, value in found.items()}

    def assign(self, totals: tf.Tensor) -> None:
        """Give the metrics' variables the sums of steps' changes."""
        for variable, value in zip(self._variables, self._find(totals), strict=True):
            variable.assign(value)

    def _find(self, totals: tf.Tensor) -> list[tf.Tensor]:
        """Return the states, from sums of steps' changes."""
        parts = tf.split(totals, self._sizes)
        return [
            tf.cast(initial + tf.reshape(part, initial.shape), initial.dtype)
            for initial, part in zip(self._initial, parts, strict=True)
        ]


def add_changes(totals: tf.Tensor, changes: tf.Tensor) -> tf.Tensor:
    """Return sums of steps' changes, float64 [k], with those of another step, float32 [k]."""
    return totals + tf.cast(changes, tf.float64)
