"""The training step fed by records against the same step on one batch in memory, and two
workers that sum their gradients against two processes that do not talk.

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
from tests.records import write_records
from trainer.config import TrainingConfig
from trainer.data.schema import Dataset
from trainer.training.cluster import Cluster
from trainer.training.job import Job

EXAMPLES = 4096
BATCH = 128
ROUNDS = 5


def rows() -> list[tuple[str, float, float, str]]:
    """(what, ratio, goal, figures)."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = _records(Path(folder) / "records")
        return [_fed_by_records(dataset, Path(folder)), _two_workers(dataset, Path(folder))]


def _records(folder: Path) -> Dataset:
    generator = np.random.default_rng(0)
    shards = [
        (
            generator.integers(0, 256, (EXAMPLES // 8, 28, 28, 1), np.uint8),
            generator.integers(0, 10, EXAMPLES // 8),
        )
        for _ in range(8)
    ]
    few = [(images[:8], labels[:8]) for images, labels in shards[:1]]
    splits = {"train": shards, "validation": few, "test": few}
    return write_records(folder, splits, [str(digit) for digit in range(10)])


def _fed_by_records(dataset: Dataset, folder: Path) -> tuple[str, float, float, str]:
    import tensorflow as tf

    from trainer.training.synchronous import SynchronousRun

    job = Job(
        dataset=dataset.uri,
        base_output_directory=str(folder / "fed"),
        config=TrainingConfig(batch_size=BATCH, epochs=100),
    )
    run = SynchronousRun(job, Cluster(), tf.distribute.OneDeviceStrategy("/cpu:0"), dataset)
    steps, told = EXAMPLES // BATCH, (tf.constant(float(BATCH)), tf.constant(0.0))
    rates: dict[str, list[float]] = {"records": [], "memory": []}
    for _ in range(ROUNDS):
        batches = iter(run.training_input())
        batch = next(batches)
        for _ in range(2):  # The first ones of each kind hold the tracing.
            run.train_step(*batch, *told).numpy()
            run.train_step(*next(iter(run.training_input())), *told).numpy()
        rates["records"].append(_rate(steps - 1, lambda b=batches: run.train_step(*next(b), *told)))
        rates["memory"].append(_rate(steps - 1, lambda b=batch: run.train_step(*b, *told)))
    fed, memory = (statistics.median(rates[name]) for name in ("records", "memory"))
    return (
        "training on records / on one batch in memory",
        fed / memory,
        0.95,
        f"{fed:,.0f} / {memory:,.0f} images/s",
    )


def _rate(steps: int, take: Callable[[], Any]) -> float:
    """Images/s of so many steps."""
    started = time.perf_counter()
    for _ in range(steps):
        take().numpy()
    return steps * BATCH / (time.perf_counter() - started)


def _two_workers(dataset: Dataset, folder: Path) -> tuple[str, float, float, str]:
    """Images/s of both ways, each of their two processes pinned to a core of its own."""
    rates: dict[str, list[float]] = {"talking": [], "silent": []}
    together, apart = [replicas.CHIEF_AND_WORKER], [replicas.ALONE, replicas.ALONE]
    for number in range(3):
        for name, batch_size, groups in (
            ("talking", BATCH, together),
            ("silent", BATCH // 2, apart),
        ):
            run = folder / f"{name}{number}"
            rates[name].append(_images_per_second(dataset, run, batch_size, groups))
    talking, silent = (statistics.median(rates[name]) for name in ("talking", "silent"))
    return (
        "two workers / two processes that do not talk",
        talking / silent,
        0.9,
        f"{talking:,.0f} / {silent:,.0f} images/s",
    )


def _images_per_second(
    dataset: Dataset, folder: Path, batch_size: int, groups: list[list[tuple[str, int]]]
) -> float:
    """Runs each group of replicas as a job of its own, all at once; sums their images/s."""
    cores = sorted(os.sched_getaffinity(0))
    bases = [folder / str(number) for number in range(len(groups))]
    with contextlib.ExitStack() as stack:
        processes = []
        for base, roles in zip(bases, groups, strict=True):
            flags = [
                f"--dataset={dataset.uri}",
                f"--base_output_directory={base}",
                f"--batch_size={batch_size}",
                "--epochs=4",
            ]
            processes += stack.enter_context(
                replicas.started("trainer.task", flags, roles, base / "logs")
            )
        for number, process in enumerate(processes):
            _pin(process.pid, cores[number % len(cores)])
        codes = [process.wait(300) for process in processes]
    assert not any(codes), [log.read_text()[-2000:] for log in folder.rglob("*.log")]
    return sum(
        json.loads((base / "metrics.json").read_text())["images_per_second"] for base in bases
    )


def _pin(pid: int, core: int) -> None:
    """Binds a process that has just started, and so all its threads to come, to one core."""
    os.sched_setaffinity(pid, {core})
