"""Passes of a trial: a step that records what it would change, instead of changing it."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow import raw_ops

from trainer.engine import draws
from trainer.engine.applied_optimizers import list_optimizers, others_refused
from trainer.engine.batch_rows import any_rows, count_rows
from trainer.engine.compile_checks import find_reason, list_states
from trainer.engine.internals import (
    find,
    get_variable_type,
    inlined_functions,
    losses,
    replaced,
)
from trainer.engine.metric_states import MetricStates
from trainer.engine.replica_sums import masks_of_all_rows, means_of_local_rows
from trainer.engine.scales import flatten_logs
from vertex.errors import InputError

PARTS = 2
"""Parts of a batch in a trial, which the step takes for the number of replicas."""
GRADIENT, SCALED = "the gradient for the optimizer", "the loss for the optimizer"
_READS = ("ReadVariableOp", "ResourceGather", "VariableShape")
"""Types of operations that don't assign to a variable."""


class _Values:
    """Values that a replica's step has computed, recorded instead of applied."""

    def __init__(self, known: tf.Tensor | None) -> None:
        """Record a replica's values; `known` is what all replicas have found, see `exchange`."""
        self._graph = tf.compat.v1.get_default_graph()
        self._known = known
        self.exchanged = [tf.zeros([0])]
        self.means: set[int] = set()
        """Ids of the variables of means to which the step has added a value of the whole batch."""
        self.states: list[int] = []
        """Indices of the metrics' states that rows have changed."""
        self.of_means: list[tf.Tensor] = []
        """Changes of the metrics' states that were made with these values."""
        self.names: list[str] = []
        self.tensors: list[tf.Tensor] = []
        self.constants: list[int] = []
        """Indices of the values that no row has an effect on."""
        self.gradients: list[Any] = []
        """Of the tapes, as they are before the step changes them."""
        self.has_changed_gradients = False
        """The step applies other gradients than those that its tapes have computed."""

    def add(self, name: str, value: tf.Tensor) -> None:
        if tf.compat.v1.get_default_graph() is not self._graph:
            raise InputError(
                f"several replicas can't compute {name} in a branch, as of tf.cond, or in a loop; "
                "compute it in each step: to accumulate gradients over steps, give the optimizer "
                "gradient_accumulation_steps"
            )
        if tf.get_static_value(value) is not None:
            self.constants.append(len(self.names))
        self.names.append(name)
        self.tensors.append(value)

    def exchange(self, value: tf.Tensor) -> tf.Tensor:
        """Return what the replicas would add up to with this one's value, float32 [n]."""
        if self._known is None:
            self.exchanged.append(value)
            return value
        size = value.shape[0]
        of_whole, self._known = self._known[:size], self._known[size:]
        return tf.ensure_shape(of_whole, [size])


class Pass:
    """A function of a step that changes nothing: it records."""

    def __init__(
        self,
        model: keras.Model,
        function: Callable[[Any], Any],
        states: MetricStates,
        rows: Any,
        *,
        is_whole: bool,
        is_plain: bool,
    ) -> None:
        """Trace the step for rows of any number, as one process's if it is `is_whole`."""
        self._model, self._strategy = model, model.distribute_strategy
        self._function, self._states = function, states
        self._is_whole, self._is_plain = is_whole, is_plain
        self.recorded: _Values
        """The values of the first replica."""
        specification = any_rows(keras.tree.map_structure(tf.type_spec_from_value, rows))
        arguments = tf.TensorSpec([], tf.int32), tf.TensorSpec([2]), tf.TensorSpec([None])
        self._step = tf.function(self._trace, autograph=False)
        with self._patches():
            try:
                self._concrete = self._step.get_concrete_function(specification, *arguments)
            except (TypeError, ValueError) as error:
                raise self._refuse(error) from error

    @contextlib.contextmanager
    def _patches(self) -> Iterator[None]:
        normalize = find(keras.layers.BatchNormalization, "call")
        replicas = 1 if self._is_whole else PARTS

        def infer(layer: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
            return normalize(layer, inputs, training=False, mask=mask)

        with (
            replaced(tf.distribute.Strategy, num_replicas_in_sync=lambda _: replicas),
            # Its statistics are those of a replica, as in Keras.
            replaced(keras.layers.BatchNormalization, call=infer),
            means_of_local_rows(),
            draws.by_row(),
            draws.repeated(),
            inlined_functions(),
        ):
            yield

    def _trace(self, rows: Any, offset: tf.Tensor, factors: tf.Tensor, known: tf.Tensor) -> Any:
        per_replica: list[_Values] = []
        local = threading.local()

        def replica_step() -> Any:
            local.values = values = _Values(None if self._is_whole else known)
            draws.set_rows(offset, count_rows(rows))
            self._states.begin(self._states.make_totals(), values.exchange)
            logs = flatten_logs(self._function(rows))
            own = {
                name: tf.cast(tf.convert_to_tensor(value), tf.float32)
                for name, value in ({} if self._is_plain else logs).items()
            }
            per_replica.append(values)
            states = self._states.split(self._states.get_changes() - sum(values.of_means))
            values.states = [
                index
                for index in self._states.list_changed()
                if id(list_states(self._model)[index]) not in values.means
            ]
            return values.tensors, own, states, tf.concat(values.exchanged, 0)

        with self._recorded(local, *tf.unstack(factors)):
            results = self._strategy.run(replica_step)
        self.recorded = per_replica[0]
        first = self._strategy.experimental_local_results
        return keras.tree.map_structure(lambda value: first(value)[0], results)

    @contextlib.contextmanager
    def _recorded(
        self, local: threading.local, factor: tf.Tensor, loss_factor: tf.Tensor
    ) -> Iterator[None]:
        """Record values of metrics, and gradients times a factor; scale losses by another."""
        update = find(keras.metrics.Mean, "update_state")
        differentiate = find(tf.GradientTape, "gradient")

        def gradients_times(*arguments: Any, **options: Any) -> Any:
            found = differentiate(*arguments, **options)
            scaled = tf.nest.map_structure(
                lambda gradient: None if gradient is None else _times(gradient, factor), found
            )
            local.values.gradients += tf.nest.flatten(scaled)
            return scaled

        states = self._states

        def update_recorded(mean: Any, values: Any, sample_weight: Any = None) -> Any:
            if sample_weight is not None or tf.convert_to_tensor(values).shape.rank:
                return update(mean, values, sample_weight)
            local.values.add(f"the metric {mean.name!r}", tf.cast(values, tf.float32))
            before = states.get_changes()
            update(mean, values)
            local.values.of_means.append(states.get_changes() - before)
            local.values.means.update(map(id, mean.variables))

        def loss_recorded(loss: tf.Tensor) -> tf.Tensor:
            local.values.add("the loss", tf.cast(loss, tf.float32))
            return tf.zeros_like(loss)

        def average_of_whole(valid: tf.Tensor) -> tf.Tensor:
            return local.values.exchange(tf.reshape(valid, [1]))[0]

        with contextlib.ExitStack() as stack:
            stack.enter_context(others_refused(self._model))
            for optimizer in list_optimizers(self._model):

                def record(
                    gradients: Any, variables: Any = None, name: str = optimizer.name
                ) -> None:
                    gradients = [*gradients]
                    of_tapes = {id(gradient) for gradient in local.values.gradients}
                    if any(id(gradient) not in of_tapes for gradient in gradients):
                        local.values.has_changed_gradients = True
                    summary = [_project(one) for one in gradients if one is not None]
                    local.values.add(f"{GRADIENT} {name!r}", tf.stack(summary))

                def scale(loss: Any, name: str = optimizer.name) -> Any:
                    total = tf.reduce_sum(tf.cast(loss, tf.float32))
                    local.values.add(f"{SCALED} {name!r}", total)
                    return loss * tf.cast(loss_factor, loss.dtype)

                stack.enter_context(replaced(optimizer, apply=record, scale_loss=scale))
            stack.enter_context(replaced(keras.metrics.Mean, update_state=update_recorded))
            stack.enter_context(replaced(tf.GradientTape, gradient=gradients_times))
            stack.enter_context(masks_of_all_rows(average_of_whole))
            stack.enter_context(replaced(losses, unscale_loss_for_distribution=loss_recorded))
            stack.enter_context(states.kept(measure_after=self._is_plain))
            yield

    def run(
        self,
        rows: Any,
        offset: int = 0,
        *,
        factor: float = 1.0,
        loss_factor: float = 1.0,
        known: tf.Tensor | None = None,
    ) -> "PassResult":
        """Compute the step of some rows, of which all is `known`, and undo its assignments."""
        handles = self._list_assigned()
        before = {id(handle): _read(handle) for handle in handles}
        try:
            known = tf.zeros([0]) if known is None else known
            factors = tf.constant([factor, loss_factor])
            values, logs, states, known = self._concrete(rows, tf.constant(offset), factors, known)
        except tf.errors.InvalidArgumentError as error:
            raise self._refuse(error) from None
        after = {id(handle): _read(handle) for handle in handles}
        for handle in handles:
            raw_ops.AssignVariableOp(resource=handle, value=before[id(handle)])
        return PassResult(
            values=[np.array(value) for value in values],
            logs={name: np.array(value) for name, value in logs.items()},
            states=[np.array(change, np.float64) for change in states],
            known=known,
            begin=before,
            end=after,
        )

    def _refuse(self, error: Exception) -> InputError:
        return InputError(
            f"several replicas can't compute {self._function.__name__} of the model "
            f"{self._model.name!r}, which fails with fewer rows, or a number that is not known "
            f"when it is traced: {find_reason(error)}; let it take batches of any "
            "size, by keras.ops.shape(x)[0], or train on one replica"
        )

    def _list_assigned(self) -> list[Any]:
        """Return the handles of the variables that the step assigns, or may assign."""
        assigned = []
        for outer, inner in self._concrete.graph.captures:
            if get_variable_type(outer) is None:
                continue
            if any(not consumer.type.startswith(_READS) for consumer in inner.consumers()):
                assigned.append(outer)
        return assigned


@dataclasses.dataclass(frozen=True)
class PassResult:
    values: list[np.ndarray]
    logs: dict[str, np.ndarray]
    states: list[np.ndarray]
    """Changes of the states of metrics."""
    known: tf.Tensor
    """Values that replicas which compute parts of the rows would exchange."""
    begin: dict[int, tf.Tensor]
    end: dict[int, tf.Tensor]
    """Values of the variables that the step has assigned, by id of handle."""

    def change(self, key: int) -> np.ndarray:
        return np.array(self.end[key], np.float64) - np.array(self.begin[key], np.float64)


def _read(handle: Any) -> tf.Tensor:
    return raw_ops.ReadVariableOp(resource=handle, dtype=get_variable_type(handle))


def _times(gradient: Any, factor: tf.Tensor) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            _times(gradient.values, factor), gradient.indices, gradient.dense_shape
        )
    return gradient * tf.cast(factor, gradient.dtype)


def _project(gradient: Any) -> tf.Tensor:
    """Return projections of a gradient to four directions, float32 [4]."""
    flat = tf.reshape(tf.cast(tf.convert_to_tensor(gradient), tf.float32), [-1])
    places = tf.range(tf.cast(tf.size(flat), tf.float32))
    directions = [tf.cos(places * factor + 1) for factor in (0.61, 1.13, 1.7, 2.3)]
    return tf.stack([tf.reduce_sum(flat * direction) for direction in directions])
