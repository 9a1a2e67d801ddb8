"""Time a step of two workers that train a large table of embeddings, whose gradient stays sparse.

    python -m tests.benchmarks.sharded_embeddings RESULT ROWS ...    (a worker)

The other way, the gradient of all rows is summed. Both take turns; FTRL trains tables of one
column, as that of wide_and_deep's wide part.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests import replicas
from tests.benchmarks.measuring import Row
from trainer.engine import embeddings
from trainer.engine.cluster import from_environment
from trainer.engine.strategies import create_strategy

ROWS = (1_000_000, 10_000_000, 100_000_000)
LOOKED_UP = (128, 20)
"""Ids of a worker's step: examples, and ids of each."""
STEPS = 5


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        arguments, logs = [str(result), *map(str, ROWS)], Path(folder, "logs")
        replicas.run(__name__, arguments, replicas.CHIEF_AND_WORKER, logs, seconds=1800)
        measured = json.loads(result.read_text())
    return [
        (
            f"{int(count):,} rows: step with the sums of all / of those looked up",
            dense / sparse,
            1.0,
            f"{1000 * dense:.1f} ms / {1000 * sparse:.1f} ms",
        )
        for count, (dense, sparse) in measured.items()
    ]


def main(result: str, *counts: str) -> None:
    cluster = from_environment(os.environ)
    strategy = create_strategy("multi_worker_mirrored", cluster)
    measured = {count: measure(strategy, count) for count in map(int, counts)}
    if cluster.is_chief:
        Path(result).write_text(json.dumps(measured))


def measure(strategy: tf.distribute.Strategy, count: int) -> list[float]:
    """Return the median seconds of a step, with a dense and with a sparse gradient."""
    with strategy.scope():
        table = keras.layers.Embedding(count, 1, embeddings_initializer="zeros")
        table.build()
        optimizer = keras.optimizers.Ftrl(0.05)
        optimizer.build(table.trainable_variables)
    steps = {}
    for large in (2 * count, count):
        embeddings.LARGE = large
        steps[large] = make_step(strategy, table, optimizer)
        steps[large](draw(count))  # It is traced while LARGE has this value.
    seconds: dict[int, list[float]] = {large: [] for large in steps}
    for _ in range(STEPS):
        for large, step in steps.items():
            ids, started = draw(count), time.monotonic()
            step(ids).numpy()
            seconds[large].append(time.monotonic() - started)
    return [statistics.median(times) for times in seconds.values()]


def draw(count: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng().integers(0, count, LOOKED_UP))


def make_step(strategy: tf.distribute.Strategy, table: Any, optimizer: Any) -> Any:
    @tf.function(autograph=False)
    def step(ids: tf.Tensor) -> tf.Tensor:
        def replica_step() -> tf.Tensor:
            variables = table.trainable_variables
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(table(ids) - 1.0))
            (gradient,) = tape.gradient(loss, variables)
            local = embeddings.complete(gradient, variables[0])
            context = tf.distribute.get_replica_context()
            summed = context.all_reduce(tf.distribute.ReduceOp.SUM, local)
            optimizer.apply([embeddings.add_rows(summed)], variables)
            return loss

        return strategy.experimental_local_results(strategy.run(replica_step))[0]

    return step


if __name__ == "__main__":
    main(*sys.argv[1:])
