"""A step of training or validation, which all replicas compute together."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer.engine import draws, replica_sums
from trainer.engine.applied_optimizers import list_optimizers, others_refused
from trainer.engine.gathered_losses import losses_of_all_rows
from trainer.engine.internals import inlined_functions
from trainer.engine.metric_states import MetricStates, add_changes
from trainer.engine.scales import Scale, Scales, flatten_logs


class Step:
    """A model's train_step or test_step, computed by replicas for their rows of a batch.

    It assigns to the weights what one process would that has the whole batch.
    """

    def __init__(
        self,
        model: keras.Model,
        function: Callable[[Any], dict[str, Any]],
        states: MetricStates,
        scales: Scales,
        *,
        is_plain: bool = False,
        carry_states: bool = False,
        gather_batch: bool = False,
        merge_rows: bool = False,
        jit_compile: bool = False,
    ) -> None:
        """Prepare a step.

        Args:
            model: a model that is built and compiled.
            function: its train_step or test_step.
            states: the states of the model's metrics.
            scales: how the values of the step add up over the replicas.
            is_plain: after the gradients, the step only updates metrics, which read no weights, and
                returns their results; so what replicas add up is sent in one message.
            carry_states: metrics go on from the totals; on one replica, they need not be sums.
            gather_batch: each replica computes the loss of all rows; see gathered_losses.py.
            merge_rows: see `replica_sums.Gradients`.
            jit_compile: gradients are computed by XLA.
        """
        self._model, self._strategy = model, model.distribute_strategy
        self._function = function
        self._states, self._scales = states, scales
        self._is_plain, self._gather_batch = is_plain, gather_batch
        self._carry_states, self._jit_compile = carry_states, jit_compile
        self._share = replica_sums.ReplicaShare()
        self._gradients = replica_sums.Gradients(
            self._share, scales, wait=is_plain, merge_rows=merge_rows
        )

    def run(
        self,
        select: Callable[..., tuple[Any, Any, Any]],
        arguments: Sequence[Any],
        size: tf.Tensor,
        totals: tf.Tensor,
        stop: tf.Tensor,
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        """Compute the step of a batch; call this in a tf.function.

        Args:
            select: function of a replica's number and the arguments, which returns its rows, the
                offset of the first in the batch, and their number. If that is 0, one row is given
                which does not count.
            arguments: those of `select`, perhaps a value for each replica.
            size: number of the batch's rows.
            totals: sums of the changes of metrics' states, float64 [k], to which those of this step
                are added.
            stop: 1.0 if this process was asked to stop.

        Returns:
            The logs by name, the totals, and the number of replicas that were asked to stop.
        """

        def replica_step(*arguments: Any) -> Any:
            context = tf.distribute.get_replica_context()
            replica = int(tf.get_static_value(context.replica_id_in_sync_group))
            given = (*select(replica, *arguments), size, totals)
            compute: Any = self._compute
            if self._jit_compile:
                compiled = tf.function(compute, autograph=False, jit_compile=True)
                compute = compiled.get_concrete_function(*given)  # Which is not inlined.
            own, changes, waiting = compute(*given)
            stops, changes, *sums = self._gradients.add(waiting, [stop, changes, *own.values()])
            after = add_changes(totals, changes)
            found = dict(zip(own, sums, strict=True))
            if self._is_plain:
                found = self._states.measure(after)
            return found, after, stops

        with self._replaced():
            results = self._strategy.run(replica_step, args=arguments)
        local_results = self._strategy.experimental_local_results
        return keras.tree.map_structure(lambda value: local_results(value)[0], results)

    def _compute(self, rows: Any, offset: Any, count: Any, size: Any, totals: Any) -> Any:
        """Return a replica's parts of logs, of changes of metrics' states, and of gradients.

        There are no logs if metrics measure them, and no gradients if the step has applied them.
        """
        self._share.begin(offset, count, size)
        self._scales.begin()

        def drop_without_rows(changes: tf.Tensor) -> tf.Tensor:
            return tf.where(count > 0, changes, 0.0)

        def add(changes: tf.Tensor) -> tf.Tensor:
            return replica_sums.all_reduce(drop_without_rows(changes))

        self._states.begin(totals, None if self._carry_states else add)
        draws.set_rows(offset, tf.maximum(count, 1))
        logs = flatten_logs(self._function(rows))
        own = {
            name: self._share.weigh(
                tf.cast(value, tf.float32), self._scales.logs.get(name, Scale.SHARE)
            )
            for name, value in ({} if self._is_plain else logs).items()
        }
        changes = drop_without_rows(self._states.get_changes())
        return own, changes, self._gradients.get_waiting()

    @contextlib.contextmanager
    def _replaced(self) -> Iterator[None]:
        """Let functions of Keras and TensorFlow compute a part of the batch."""
        changes: list[contextlib.AbstractContextManager[None]] = []
        if self._strategy.num_replicas_in_sync > 1:
            changes += [
                replica_sums.means_of_local_rows(),
                replica_sums.masks_of_all_rows(self._share.average),
                replica_sums.moments_of_all_rows(self._share),
                replica_sums.batch_means(self._share, self._scales),
                draws.by_row(),
            ]
        if self._gather_batch:
            changes.append(losses_of_all_rows(self._model, self._share))
        changes += [
            # It calls what these have replaced.
            self._states.kept(measure_after=self._is_plain),
            inlined_functions(),
            others_refused(self._model),
            *(self._gradients.of(optimizer) for optimizer in list_optimizers(self._model)),
        ]
        with contextlib.ExitStack() as stack:
            for change in changes:
                stack.enter_context(change)
            yield


def repeat(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of (batches, count, results, ...), which runs `count` steps in a graph.

    `step` is a function of a batch, which is taken from the iterator `batches`; the step's number,
    from 0; what the step before has returned, `results` for the first; and the other arguments.
    """

    @tf.function(autograph=False)
    def steps(batches: Any, count: tf.Tensor, results: Any, *others: Any) -> Any:
        def run_next(number: tf.Tensor, *results: Any) -> Any:
            return number + 1, *step(next(batches), number, results, *others)

        return tf.while_loop(
            lambda number, *_: number < count,
            run_next,
            (tf.constant(0), *results),
            parallel_iterations=1,
        )[1:]

    return steps
