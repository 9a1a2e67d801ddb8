"""The states of a model's metrics: sums over rows, which steps add up as tensors."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.engine.compile_checks import list_metrics, list_states
from trainer.engine.internals import create_here, find, held_here, replaced
from trainer.engine.scales import flatten_logs
from vertex.errors import InputError


class MetricStates:
    """The states of a model's metrics, to which the replicas of a step add their rows' parts.

    Code that a step calls finds them in the metrics' variables: a metric's update_state those of
    the replica's rows, all else those of the whole batch.

    Variables would be added up in float32, in which a sum of 2^24 no longer grows by 1; and with
    parameter servers, assignments of several workers would overwrite each other.
    """

    def __init__(self, model: keras.Model) -> None:
        """Reset the metrics of a model that is built."""
        self._model = model
        self._variables = list_states(model)
        self._indices = {id(variable): index for index, variable in enumerate(self._variables)}
        model.reset_metrics()
        self._initial = [np.array(variable) for variable in self._variables]
        self._sizes = [value.size for value in self._initial]
        self._held: list[tf.Variable] = []
        self._step = _ReplicaStep()

    def begin(self, totals: tf.Tensor, add: Callable[[tf.Tensor], tf.Tensor] | None = None) -> None:
        """Begin a replica's step.

        Args:
            totals: sums of earlier steps' changes, float64 [k].
            add: returns the changes of all replicas, float32 [k], from this one's. Without it, the
                step is computed by one replica, whose metrics go on from the totals and need not be
                sums.
        """
        step = self._step
        step.graph = tf.compat.v1.get_default_graph()
        step.totals, step.add, step.of_batch = totals, add, None
        step.begun = self._find(totals if add is None else self.make_totals())
        step.states = [*step.begun]

    @contextlib.contextmanager
    def kept(self, *, measure_after: bool = False) -> Iterator[None]:
        """Keep the states as tensors while a step that has begun is traced in this context.

        With `measure_after`, its logs are not read, but measured when the replicas' changes are
        added up.
        """
        owner, step = keras.Variable, self._step
        get_value, assign = find(owner, "value"), find(owner, "_direct_assign")
        assign_add = find(owner, "assign_add")

        def local(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                with step.local():
                    return function(*arguments, **options)

            return call

        def is_kept(variable: keras.Variable) -> bool:
            return id(variable) in self._indices and bool(step.states)

        def get_kept(variable: keras.Variable) -> Any:
            if not is_kept(variable):
                return get_value(variable)
            states = step.states if step.is_local else self._add_up(variable)
            state = tf.stop_gradient(states[self._indices[id(variable)]])
            with keras.StatelessScope([(variable, state)]):
                return get_value(variable)

        def assign_kept(variable: keras.Variable, value: Any) -> None:
            if not is_kept(variable):
                assign(variable, value)
                return
            if not step.is_local:
                raise self._refuse(variable, "assigns to", "outside of its update_state")
            self._check_graph(variable)
            dtype = tf.as_dtype(variable.dtype)
            step.states[self._indices[id(variable)]] = tf.cast(value, dtype)
            step.of_batch = None

        def add_kept(variable: keras.Variable, value: Any) -> Any:
            return (local(assign_add) if is_kept(variable) else assign_add)(variable, value)

        with contextlib.ExitStack() as stack:
            stack.enter_context(
                replaced(owner, value=get_kept, _direct_assign=assign_kept, assign_add=add_kept)
            )
            stack.enter_context(replaced(keras.Metric, add_variable=_refuse_variable))
            for metric in list_metrics(self._model):
                update = local(find(metric, "update_state"))
                stack.enter_context(replaced(metric, update_state=update))
            if measure_after:
                measure = local(find(keras.Model, "get_metrics_result"))
                stack.enter_context(replaced(keras.Model, get_metrics_result=measure))
            yield

    def get_changes(self) -> tf.Tensor:
        """Return what the replica's step has added to the states so far, float32 [k]."""
        changes = [
            tf.reshape(tf.cast(tf.convert_to_tensor(state) - begun, tf.float32), [-1])
            for state, begun in zip(self._step.states, self._step.begun, strict=True)
        ]
        return tf.concat([tf.zeros([0]), *changes], 0)

    def list_changed(self) -> list[int]:
        """Return the indices of the states that the replica's step has changed so far."""
        step = self._step
        known = zip(step.states, step.begun, strict=True)
        return [index for index, (state, begun) in enumerate(known) if state is not begun]

    def make_totals(self, saved: Sequence[float] = ()) -> tf.Tensor:
        """Return sums of steps' changes, float64 [k]: saved ones, or those of no steps."""
        return tf.constant(saved or [0.0] * sum(self._sizes), tf.float64, [sum(self._sizes)])

    def measure(self, totals: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the metrics of sums of steps' changes, by name."""
        known = zip(self._variables, self._find(totals), strict=True)
        self._step.states = []  # Of no step.
        with keras.StatelessScope([*known]):
            found = flatten_logs(self._model.get_metrics_result())
            return {name: tf.convert_to_tensor(value) for name, value in found.items()}

    @contextlib.contextmanager
    def held_here(self) -> Iterator[None]:
        """Let the metrics' variables be this process's own, as one process's are."""
        if not self._held:  # Steps are traced with these.
            self._held = [*map(create_here, self._initial)]
        with held_here(self._variables, self._held):
            yield

    def assign(self, totals: tf.Tensor) -> None:
        """Give the metrics' variables the sums of steps' changes."""
        for variable, value in zip(self._variables, self._find(totals), strict=True):
            variable.assign(value)

    def take_over(self, totals: tf.Tensor) -> tf.Tensor:
        """Return the sums of steps' changes as callbacks have changed them in the variables."""
        parts = [tf.zeros([0], tf.float64)]
        known = zip(
            self._variables, self._initial, self._find(totals), self.split(totals), strict=True
        )
        for variable, initial, assigned, total in known:
            value = tf.convert_to_tensor(variable.value)
            change = tf.cast(value, tf.float64) - initial.astype(np.float64)
            parts.append(tf.reshape(tf.where(value == assigned, total, change), [-1]))
        return tf.concat(parts, 0)

    def split(self, totals: tf.Tensor) -> list[tf.Tensor]:
        """Return changes of all states, or sums of them, as those of each, in its shape."""
        parts = zip(tf.split(totals, self._sizes), self._initial, strict=True)
        return [tf.reshape(part, initial.shape) for part, initial in parts]

    def _find(self, totals: tf.Tensor) -> list[tf.Tensor]:
        """Return the states, from sums of steps' changes."""
        parts = zip(self.split(totals), self._initial, strict=True)
        return [tf.cast(initial + part, initial.dtype) for part, initial in parts]

    def _add_up(self, variable: keras.Variable) -> list[tf.Tensor]:
        """Return the states with the changes of all replicas so far."""
        step = self._step
        if step.of_batch is None and step.add:
            self._check_graph(variable)
            totals = step.totals
            if self.list_changed():
                totals = add_changes(totals, step.add(self.get_changes()))
            step.of_batch = self._find(totals)
        return step.of_batch or step.states

    def _check_graph(self, variable: keras.Variable) -> None:
        if self._step.graph is not tf.compat.v1.get_default_graph():
            raise self._refuse(variable, "uses", "in a branch, as of tf.cond, or in a loop")

    def _refuse(self, variable: keras.Variable, does: str, where: str) -> InputError:
        return InputError(
            f"a step of the model {self._model.name!r} {does} the variable {variable.path!r} of a "
            f"metric {where}, which replicas can't do together; call update_state in each step"
        )


class _ReplicaStep(threading.local):
    """A replica's step that is traced; tf.distribute traces each in a thread of its own."""

    graph: Any
    totals: tf.Tensor
    add: Callable[[tf.Tensor], tf.Tensor] | None
    begun: list[tf.Tensor]
    """The states with which the replica has begun."""
    states: list[tf.Tensor]
    """Those that it has now; empty if no step is traced."""
    of_batch: list[tf.Tensor] | None = None
    """Those of all replicas, if they have been added up since the last change."""
    _updates = 0

    def __init__(self) -> None:
        self.states = []

    @property
    def is_local(self) -> bool:
        """Return whether the code that runs finds the replica's states in the variables."""
        return self._updates > 0 or self.add is None

    @contextlib.contextmanager
    def local(self) -> Iterator[None]:
        """Let the code that runs in this context find the replica's states."""
        self._updates += 1
        try:
            yield
        finally:
            self._updates -= 1


def _refuse_variable(metric: keras.Metric, *_: Any, **__: Any) -> Any:
    raise InputError(
        f"the metric {metric.name!r} creates its variables in a step; give it to compile, or call "
        "its update_state once where it is made, and then reset_state"
    )


def add_changes(totals: tf.Tensor, changes: tf.Tensor) -> tf.Tensor:
    """Return sums of steps' changes, float64 [k], with those of another step, float32 [k]."""
    return totals + tf.cast(changes, tf.float64)
