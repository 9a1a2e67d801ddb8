"""Let optimizers on several replicas do what Keras does at some steps only.

Keras accumulates gradients, and overwrites weights with their averages, in a branch of each
replica's step. There, tf.distribute can't update variables; so the branch is taken outside of the
replicas' steps, as Keras' LossScaleOptimizer does. Keras has no hook for it: its functions are
replaced while a step is traced.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from trainer.engine.internals import (
    find,
    get_count,
    optimizer_ops,
    overwrite_with_averages,
    replaced,
)


@contextlib.contextmanager
def branch_across_replicas(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """Let an optimizer, or the one that it scales losses for, branch outside of replicas' steps."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    accumulated = optimizer.gradient_accumulation_steps
    overwritten = optimizer.ema_overwrite_frequency
    if not (accumulated or overwritten):
        yield
        return
    apply = find(optimizer, "_backend_apply_gradients")

    def apply_across(strategy: Any, gradients: list[Any], variables: list[Any]) -> None:
        def take(branch: int) -> Callable[[], None]:
            def run() -> None:
                with replaced(optimizer_ops, cond=lambda _, *branches: branches[branch]()):
                    arguments = (gradients, variables)
                    strategy.extended.call_for_each_replica(apply, args=arguments)

            return run

        optimizer.ema_overwrite_frequency = None
        try:
            if accumulated:
                tf.cond(_is_due(get_count(optimizer), accumulated), take(0), take(1))
            else:
                strategy.extended.call_for_each_replica(apply, args=(gradients, variables))
        finally:
            optimizer.ema_overwrite_frequency = overwritten
        if overwritten:
            is_due = _is_due(optimizer.iterations, overwritten)
            tf.cond(is_due, lambda: overwrite_with_averages(optimizer), lambda: None)

    def apply_merged(gradients: list[Any], variables: list[Any]) -> None:
        context = tf.distribute.get_replica_context()
        context.merge_call(apply_across, args=(gradients, variables))

    with replaced(optimizer, _backend_apply_gradients=apply_merged):
        yield


def _is_due(iterations: Any, period: int) -> tf.Tensor:
    """Return whether the step that is being computed is the last of its period."""
    return tf.equal((tf.convert_to_tensor(iterations) + 1) % period, 0)
