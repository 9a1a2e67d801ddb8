"""The steps of a run: those of trainer/engine, for the records' rows and the model of its task."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer.data.read import reader
from trainer.engine.compile_checks import is_own_metric, list_metrics
from trainer.engine.scales import Scales
from trainer.engine.step import Step
from trainer.engine.step_trial import ROWS_TRIED, find_scales, is_trial_needed
from trainer.training.task_model import TaskModel


def make_step(
    model: TaskModel, function: Callable[[Any], Any], *, jit_compile: bool = False
) -> Callable[..., Any]:
    """Return a function of (batch, rows, totals, stop) that computes a step of all replicas.

    `function` is the model's train_step or test_step. The batch is (inputs, labels, weights) of
    this worker's replicas; `rows` are those of `InputShare.rows_at`, int64 [3]; the others, and
    what it returns, are those of `Step.run`.
    """
    strategy = model.distribute_strategy
    local_replicas = len(strategy.extended.worker_devices)
    replicas_step = Step(
        model,
        strategy,
        function,
        model.states,
        _find_scales(model, function),
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


def _find_scales(model: TaskModel, function: Callable[[Any], Any]) -> Scales:
    """Return how the values of a step add up, which is tried if the user's model needs it."""
    one, strategy = model.recipe_model, model.distribute_strategy
    has_own_metrics = any(is_own_metric(metric) for metric in list_metrics(one))
    if not is_trial_needed(one) or (strategy.num_replicas_in_sync == 1 and not has_own_metrics):
        return Scales()
    batches = reader.read_for_keras(model.task.dataset, "train", ROWS_TRIED)
    inputs, labels, *_ = next(iter(batches))
    batch = inputs, labels, tf.ones(len(labels))
    return find_scales(model, strategy, function, model.states, batch, is_plain=model.is_plain)


def repeat(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of (batches, count, rows, totals, stop), which runs `count` steps.

    It takes the batches from their iterator; `rows` are those of each step. It returns what the
    last step has returned.
    """

    @tf.function(autograph=False)
    def steps(batches: Any, count: tf.Tensor, rows: tf.Tensor, totals: Any, stop: tf.Tensor) -> Any:
        def run_next(number: tf.Tensor, totals: Any, _: tf.Tensor) -> Any:
            return number + 1, *step(next(batches), rows[number], totals, stop)

        _, totals, stops = tf.while_loop(
            lambda number, *_: number < count,
            run_next,
            (tf.constant(0), totals, tf.zeros([])),
            parallel_iterations=1,
        )
        return totals, stops

    return steps


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


def distribute(strategy: tf.distribute.Strategy, batches: tf.data.Dataset) -> Any:
    """Distribute the elements of `batches` to this worker's replicas.

    The number of steps is known, so the dataset is declared infinite. Otherwise, each step of a
    multi-worker job would begin with a collective operation that asks which workers still have
    data. A single CPU uses `batches` directly, because distribution takes as long as half a step of
    a small model.
    """
    devices = strategy.extended.worker_devices
    if len(devices) == 1 and "CPU:" in devices[0]:
        return batches
    infinite = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return strategy.distribute_datasets_from_function(lambda _: batches.apply(infinite))
