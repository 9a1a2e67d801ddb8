"""Compare the training step with that of Keras, fed by records with the same step on one batch in
memory, and two workers that sum their gradients with two processes that do not communicate.

Pictures are made up: 28x28 gray, as MNIST's, and the model is the small CNN.
"""

import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests import replicas
from tests.benchmarks.measuring import Row, in_turns, median_ratio
from tests.small_records import write_records
from trainer.data.schema import Dataset
from trainer.engine.cluster import Cluster
from trainer.training.config import TrainingConfig
from trainer.training.job import Job

EXAMPLES = 4096
BATCH = 128
STEPS, PAIRS = 20, 30
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
    """Compare both ways, each with two processes pinned to a core of their own."""
    together, apart = [replicas.CHIEF_AND_WORKER], [replicas.ALONE, replicas.ALONE]
    ways = {
        "together": lambda: _images_per_second(dataset, folder, BATCH, together),
        "apart": lambda: _images_per_second(dataset, folder, BATCH // 2, apart),
    }
    found = in_turns(ways, TURNS)
    return _compared("two workers / two processes that do not talk", *found.values(), 0.9)


def _images_per_second(
    dataset: Dataset, parent: Path, batch_size: int, groups: list[list[tuple[str, int]]]
) -> float:
    """Run each group of replicas as a job of its own, all at once; sum their images/s."""
    cores = sorted(os.sched_getaffinity(0))
    folder = Path(tempfile.mkdtemp(dir=parent))
    bases = [folder / str(number) for number in range(len(groups))]
    flags = [f"--dataset={dataset.uri}", f"--batch_size={batch_size}", "--epochs=4"]
    with contextlib.ExitStack() as stack:
        processes = []
        for base, roles in zip(bases, groups, strict=True):
            own = [*flags, f"--base_output_directory={base}"]
            cluster = replicas.Cluster("trainer.task", own, roles, base / "logs")
            stack.enter_context(cluster).start_all()
            processes += cluster.processes.values()
        for number, process in enumerate(processes):
            # Right after its start, so that all its threads inherit the core.
            os.sched_setaffinity(process.pid, {cores[number % len(cores)]})
        codes = [process.wait(300) for process in processes]
    assert not any(codes), [log.read_text()[-2000:] for log in folder.rglob("*.log")]
    metrics = [json.loads((base / "metrics.json").read_text()) for base in bases]
    return sum(one["examples_per_second"] for one in metrics)
