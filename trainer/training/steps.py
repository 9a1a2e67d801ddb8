"""The steps of a run: those of trainer/engine, for the records' rows and the model of its task."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer.data.read import reader
from trainer.data.schema import limit_examples
from trainer.engine import tried_step
from trainer.engine.step_trial import ROWS_TRIED
from trainer.engine.strategies import distribute
from trainer.training.task_model import TaskModel


def make_step(
    model: TaskModel, function: Callable[[Any], Any], *, jit_compile: bool = False
) -> Callable[..., Any]:
    """Return a function of (batch, rows, totals, stop) that computes a step of all replicas.

    `function` is the model's train_step or test_step. The batch is (inputs, labels, weights) of
    this worker's replicas; `rows` are those of `InputShare.rows_at`, int64 [3]; the others, and
    what it returns, are those of `Step.run`.
    """
    local_replicas = len(model.distribute_strategy.extended.worker_devices)

    def read_rows() -> Any:
        first = limit_examples(model.task.dataset, "train", ROWS_TRIED)
        batches = reader.read_for_keras(first, "train", ROWS_TRIED)
        inputs, labels, *_ = next(iter(batches))
        return inputs, labels, tf.ones(len(labels))

    replicas_step, _ = tried_step.make_step(
        model,
        function,
        model.states,
        read_rows,
        written=model.recipe_model,
        is_plain=model.is_plain,
        merge_rows=True,
        jit_compile=jit_compile,
    )

    @tf.function(autograph=False)
    def step(batch: Any, rows: tf.Tensor, totals: Any, stop: tf.Tensor) -> Any:
        offset, own, size = tf.unstack(rows)

        def select(replica: int, *batch: Any) -> Any:
            """Return a replica's rows without padding, their offset and their number."""
            most = batch[-1].shape[0]
            begin = replica % local_replicas * most
            count = tf.clip_by_value(own - begin, 0, most)
            kept = keras.tree.map_structure(lambda part: part[: tf.maximum(count, 1)], batch)
            return kept, offset + begin, count

        _, totals, stops = replicas_step.run(select, batch, size, totals, stop)
        return totals, stops

    return step


def make_validation(
    model: TaskModel, share: reader.InputShare, after_step: Callable[[], None] = lambda: None
) -> Callable[[], dict[str, float]]:
    """Return a function that returns loss and metrics of the validation split; {} if empty."""
    dataset = model.task.dataset
    count = reader.steps_per_epoch(dataset, "validation", share.batch_size)
    if not count:
        return dict
    batches = reader.read_evaluation_batches(dataset, "validation", share)
    batches = distribute(model.distribute_strategy, batches)
    step = make_step(model, model.test_step)
    examples = dataset.splits["validation"].examples

    def score() -> dict[str, float]:
        totals = model.states.make_totals()
        for position, batch in zip(range(count), batches, strict=False):
            rows = tf.constant(share.rows_at(position, examples), tf.int64)
            totals, stops = step(batch, rows, totals, tf.zeros([]))
            stops.numpy()  # Wait for the step.
            after_step()
        return model.read(totals)

    return score
