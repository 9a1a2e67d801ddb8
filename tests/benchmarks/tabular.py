"""Compare wide and deep from records in our loop with plain Keras `fit`, in one process.

Both get the same batches of the same reader on the same cores, and the same network. Ours
updates it by two optimizers, FTRL and Adam, which `fit` has no way to do: it has Adam alone.
"""

import tempfile
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tests import tables
from tests.benchmarks.measuring import Row, median_ratio
from trainer.data.read.reader import InputShare, read_training_batches
from trainer.data.schema import Dataset
from trainer.engine.cluster import Cluster
from trainer.models import open_model_for
from trainer.training.config import TrainingConfig
from trainer.training.job import Job
from trainer.training.loop import TrainingLoop

ROWS = 80_000
BATCH = 256
ROUNDS = 12


def rows() -> list[Row]:
    """Compare examples a second."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = tables.records(Path(folder), ROWS)
        config = TrainingConfig(model="wide_and_deep", batch_size=BATCH, epochs=100)
        job = Job(dataset=dataset.uri, base_output_directory=f"{folder}/run", config=config)
        ours = TrainingLoop(job, Cluster(), tf.distribute.OneDeviceStrategy("/cpu:0"), dataset)
        theirs = open_model_for("wide_and_deep", dataset, {}).build(dataset)
        theirs.compile(
            optimizer=keras.optimizers.Adam(config.learning_rate),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=["accuracy"],
        )
        turns = [(_epoch(ours), _fit(theirs, dataset, n)) for n in range(ROUNDS + 1)]
    rates = dataset.splits["train"].examples / np.array(turns[1:])  # The first is the tracing's.
    loop, fit = np.median(rates, axis=0)
    ratio, figures = median_ratio(*rates.T), f"{loop:,.0f} / {fit:,.0f} examples/s"
    return [("wide and deep, FTRL and Adam / Keras fit, Adam", ratio, 1.0, figures)]


def _epoch(run: TrainingLoop) -> float:
    """Return the seconds of an epoch as the loop runs it, the opening of files included."""
    started = time.perf_counter()
    running = None
    batches = iter(run.read_training_input())
    for step in range(run.steps):
        run.progress.step = step
        report = run.run_steps(batches, 1)
        if running is not None:
            running.numpy()  # As the loop does: read while the next step runs.
        running = report
    assert running is not None
    running.numpy()
    run.progress.step = 0
    return time.perf_counter() - started


def _fit(model: keras.Model, dataset: Dataset, epoch: int) -> float:
    started = time.perf_counter()
    batches = read_training_batches(dataset, InputShare(batch_size=BATCH), seed=0, epoch=epoch)
    model.fit(batches, epochs=1, verbose=0)
    return time.perf_counter() - started
