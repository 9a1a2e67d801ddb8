"""Compare the training step with that of Keras, fed by records with the same step on one batch in
memory, and two workers that sum their gradients with two processes that do not communicate.

Pictures are made up: 28x28 gray, as MNIST's, and the model is the small CNN.
"""

import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests import replicas
from tests.benchmarks.measuring import Row, in_turns, median_ratio
from tests.small_records import write_records
from trainer.data.schema import Dataset, load_dataset
from trainer.engine.cluster import Cluster
from trainer.training.config import TrainingConfig
from trainer.training.job import Job

EXAMPLES = 4096
BATCH = 128
STEPS, PAIRS = 5, 30
ROUNDS = 5
TURNS = 3


def rows() -> list[Row]:
    """Compare images a second, in one process and in two."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = _records(Path(folder) / "records")
        run = _open_run(dataset, Path(folder))
        return [
            _beside_keras(run),
            _fed_by_records(run),
            _two_workers(dataset, Path(folder)),
        ]


def _records(folder: Path) -> Dataset:
    generator, size = np.random.default_rng(0), EXAMPLES // 8
    shards = [
        (generator.integers(0, 256, (size, 28, 28, 1), np.uint8), generator.integers(0, 10, size))
        for _ in range(8)
    ]
    few = [(images[:8], labels[:8]) for images, labels in shards[:1]]
    splits = {"train": shards, "validation": few, "test": few}
    return write_records(folder, splits, [str(digit) for digit in range(10)])


def _open_run(dataset: Dataset, folder: Path) -> Any:
    import tensorflow as tf

    from trainer.training.loop import TrainingLoop

    config = TrainingConfig(batch_size=BATCH, epochs=100)
    job = Job(dataset=dataset.uri, base_output_directory=str(folder / "fed"), config=config)
    return TrainingLoop(job, Cluster(), tf.distribute.OneDeviceStrategy("/cpu:0"), dataset)


def _beside_keras(run: Any) -> Row:
    """Compare the step of a run with the one that Keras' `fit` calls, on one batch in memory."""
    import tensorflow as tf

    batch = next(iter(run.read_training_input()))
    given = [iter(tf.data.Dataset.from_tensors(batch).repeat()) for _ in range(2)]
    run.task_model.make_train_function()
    train = run.task_model.train_function
    ways = {
        "run": lambda: _rate(STEPS, lambda: run.run_steps(given[0], 1)),
        "keras": lambda: _rate(STEPS, lambda: train(given[1])["loss"]),
    }
    in_turns(ways, 1)  # The first steps include the tracing.
    rates = in_turns(ways, PAIRS)
    ratio = float(median_ratio(rates["run"], rates["keras"]))
    figures = [f"{statistics.median(rate):,.0f}" for rate in rates.values()]
    return "a step of a run / of Keras' fit", ratio, 0.95, f"{' / '.join(figures)} images/s"


def _fed_by_records(run: Any) -> Row:
    import tensorflow as tf

    steps = EXAMPLES // BATCH
    rates = []
    for _ in range(ROUNDS):
        batches = iter(run.read_training_input())
        in_memory = iter(tf.data.Dataset.from_tensors(next(batches)).repeat())
        for given in (in_memory, iter(run.read_training_input())):
            run.run_steps(given, 1).numpy()  # The first steps include the tracing.
            run.run_steps(given, 1).numpy()
        fed = _rate(steps - 1, lambda b=batches: run.run_steps(b, 1))
        rates.append((fed, _rate(steps - 1, lambda b=in_memory: run.run_steps(b, 1))))
    return _compared("training on records / on one batch in memory", *np.array(rates).T, 0.95)


def _compared(what: str, rates: Any, other_rates: Any, goal: float) -> Row:
    rate, other = statistics.median(rates), statistics.median(other_rates)
    return what, rate / other, goal, f"{rate:,.0f} / {other:,.0f} images/s"


def _rate(steps: int, take: Callable[[], Any]) -> float:
    """Return the images/s of so many steps."""
    started = time.perf_counter()
    for _ in range(steps):
        take().numpy()
    return steps * BATCH / (time.perf_counter() - started)


def _two_workers(dataset: Dataset, folder: Path) -> Row:
    """Compare the steps of two processes, each pinned to a core of its own, in turns of seconds."""
    flags = [dataset.uri, str(folder), str(TURNS)]
    replicas.run(__name__, flags, replicas.CHIEF_AND_WORKER, folder / "logs")
    found = [json.loads(file.read_text()) for file in sorted(folder.glob("rates-*.json"))]
    (together, _), apart = np.array(found).transpose(2, 0, 1)
    apart = apart.sum(axis=0)
    figures = f"{statistics.median(together):,.0f} / {statistics.median(apart):,.0f} images/s"
    ratio = float(median_ratio(together, apart))
    return "two workers / two processes that do not talk", ratio, 0.9, figures


def _measure_worker(dataset: Dataset, folder: Path, turns: int) -> None:
    """Write the images/s of this process's steps with another's, and without, of each turn."""
    import tensorflow as tf

    from trainer.engine import agreement, strategies
    from trainer.engine.cluster import from_environment
    from trainer.training.loop import TrainingLoop

    cluster = from_environment(os.environ)
    cores = sorted(os.sched_getaffinity(0))
    # Before TensorFlow starts its threads, which inherit the core.
    os.sched_setaffinity(0, {cores[cluster.trainer_index % len(cores)]})
    tf.config.experimental.enable_op_determinism()
    together = strategies.create_strategy("multi_worker_mirrored", cluster)

    def opened(name: str, batch_size: int, place: Cluster, strategy: Any) -> TrainingLoop:
        config = TrainingConfig(batch_size=batch_size, epochs=100)
        job = Job(dataset=dataset.uri, base_output_directory=str(folder / name), config=config)
        return TrainingLoop(job, place, strategy, dataset)

    alone = tf.distribute.OneDeviceStrategy("/cpu:0")
    runs = [
        opened("together", BATCH, cluster, together),
        opened(f"alone-{cluster.trainer_index}", BATCH // 2, Cluster(), alone),
    ]
    rates = []
    for _ in range(turns):
        given = [iter(run.read_training_input()) for run in runs]
        for run, batches in zip(runs, given, strict=True):
            run.run_steps(batches, 1).numpy()  # The first step includes the tracing.
        for _ in range((runs[0].pass_steps - 1) // STEPS):
            turn = []
            for run, batches in zip(runs, given, strict=True):
                agreement.barrier(together)
                take = functools.partial(run.run_steps, batches, 1)
                turn.append(_rate(STEPS, take) * run.config.batch_size / BATCH)
            rates.append(turn)
    (folder / f"rates-{cluster.trainer_index}.json").write_text(json.dumps(rates))
    agreement.barrier(together)


if __name__ == "__main__":
    _measure_worker(load_dataset(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    os._exit(0)  # As a replica does: threads of collective operations may wait for the other.
