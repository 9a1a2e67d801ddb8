"""A step of training by one worker, which applies its gradients to parameter servers at once."""

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer.engine import embeddings
from trainer.engine.applied_optimizers import list_optimizers, others_refused
from trainer.engine.internals import find, replaced
from trainer.engine.metric_states import MetricStates
from trainer.engine.scales import flatten_logs


def make_worker_step(
    model: keras.Model,
    function: Callable[[Any], dict[str, Any]],
    states: MetricStates,
    *,
    merge_rows: bool = False,
) -> Callable[[Any], tuple[dict[str, Any], tf.Tensor]]:
    """Return a function of a batch; it returns the logs, and the changes of metrics' states.

    Args:
        model: a model that is built and compiled.
        function: its train_step or test_step.
        states: the states of the model's metrics.
        merge_rows: see `replica_sums.Gradients`.
    """

    def step(batch: Any) -> Any:
        states.begin(states.make_totals())
        with contextlib.ExitStack() as stack:
            stack.enter_context(others_refused(model))
            stack.enter_context(states.kept())
            for optimizer in list_optimizers(model):
                stack.enter_context(_exact_count(optimizer))
                if merge_rows:
                    stack.enter_context(_merged_rows(optimizer))
            logs = flatten_logs(function(batch))
        return logs, states.get_changes()

    return step


def _exact_count(optimizer: keras.Optimizer) -> contextlib.AbstractContextManager[None]:
    """Let an optimizer count its steps by additions, which don't overwrite each other.

    Keras assigns the sum.
    """
    count = optimizer.iterations
    return replaced(count, assign_add=count.value.assign_add)


def _merged_rows(optimizer: keras.Optimizer) -> contextlib.AbstractContextManager[None]:
    """Let rows of embeddings that a batch looks up several times have one gradient."""
    apply = find(optimizer, "apply")

    def apply_merged(grads: Any, trainable_variables: Any = None) -> None:
        complete = map(embeddings.complete, grads, trainable_variables)
        apply([*map(embeddings.add_rows, complete)], trainable_variables)

    return replaced(optimizer, apply=apply_merged)
