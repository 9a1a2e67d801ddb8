"""Wide and deep from records, by our loop against plain Keras `fit`, in one process.

Both get the same batches of the same reader on the same cores, and the same network. Ours
updates it by two optimizers, FTRL and Adam, which `fit` has no way to do: it has Adam alone.
"""

import statistics
import tempfile
import time
from pathlib import Path

import keras
import tensorflow as tf

from tests import tables
from trainer.config import TrainingConfig
from trainer.data.read.reader import InputShare, training_batches
from trainer.data.schema import Dataset
from trainer.models import check_model
from trainer.training.cluster import Cluster
from trainer.training.job import Job
from trainer.training.synchronous import SynchronousRun

ROWS = 80_000
BATCH = 256
ROUNDS = 12


def rows() -> list[tuple[str, float, float, str]]:
    """(what, ratio, goal, figures)."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = tables.records(Path(folder), ROWS)
        config = TrainingConfig(model="wide_and_deep", batch_size=BATCH, epochs=100)
        job = Job(dataset=dataset.uri, base_output_directory=f"{folder}/run", config=config)
        ours = SynchronousRun(job, Cluster(), tf.distribute.OneDeviceStrategy("/cpu:0"), dataset)
        theirs = check_model("wide_and_deep", dataset, {}).build(dataset)
        theirs.compile(
            optimizer=keras.optimizers.Adam(config.learning_rate),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=["accuracy"],
        )
        rates: dict[str, list[float]] = {"ours": [], "fit": []}
        for number in range(ROUNDS + 1):
            pair = _epoch(ours, dataset), _fit(theirs, dataset, number)
            if number:  # The first holds the tracing.
                for name, rate in zip(rates, pair, strict=True):
                    rates[name].append(rate)
        loop, fit = (statistics.median(rates[name]) for name in ("ours", "fit"))
        # Of neighbors in time: another load of the machine then falls on both.
        pairs = zip(rates["ours"], rates["fit"], strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
    return [
        (
            "wide and deep, FTRL and Adam / Keras fit, Adam",
            ratio,
            1.0,
            f"{loop:,.0f} / {fit:,.0f} examples/s",
        )
    ]


def _epoch(run: SynchronousRun, dataset: Dataset) -> float:
    """Examples/s of the loop's own way through an epoch, the opening of files included."""
    started = time.perf_counter()
    running = None
    batches = iter(run.training_input())
    for step in range(run.steps):
        examples = tf.constant(run.examples_at(step))
        report = run.train_step(*next(batches), examples, tf.constant(0.0))
        if running is not None:
            running.numpy()  # As the loop does: read while the next step runs.
        running = report
    assert running is not None
    running.numpy()
    return dataset.splits["train"].examples / (time.perf_counter() - started)


def _fit(model: keras.Model, dataset: Dataset, epoch: int) -> float:
    started = time.perf_counter()
    batches = training_batches(dataset, InputShare(batch_size=BATCH), seed=0, epoch=epoch)
    model.fit(batches, epochs=1, verbose=0)
    return dataset.splits["train"].examples / (time.perf_counter() - started)
