"""Compare the mnist recipe with the tutorial's own settings: time to a test accuracy of 0.9896.

Both train the same network on the same 60,000 images, on a chief and one worker on the same
cores, one after the other, and are scored on the 10,000 test images after each epoch; time is
that of the training steps up to the first epoch that reaches the accuracy. The tutorial's way
is given up after four times as long as the recipe needs.
"""

import contextlib
import csv
import dataclasses
import os
import subprocess
import tempfile
from pathlib import Path

from pipelines import recipe as recipes
from tests import replicas
from tests.benchmarks.measuring import Row
from trainer.data.schema import FILE_NAME, Dataset, Split
from trainer.data.write.writer import create_tfrecords
from trainer.training.config import TrainingConfig, write_config

RECIPE = "mnist"
ACCURACY = 0.9896
PATIENCE = 4.0
TUTORIAL = {
    "optimizer": "sgd",
    "learning_rate": 0.01,
    "momentum": 0.9,
    "batch_size": 64,
    "epochs": 1000,
    "schedule": "constant",
    "label_smoothing": 0.0,
    "augmentation": "none",
}


def rows() -> list[Row]:
    """Compare seconds, if the real MNIST is in REAL_DATA_DIR/tfds."""
    prepared = Path(os.environ.get("REAL_DATA_DIR", ""), "tfds", "mnist")
    if not prepared.is_dir():
        print("skipped: REAL_DATA_DIR has no tfds/mnist")
        return []
    recipe = recipes.load(RECIPE).parameters
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = recipe.records
        if options.source.startswith("tfds:"):
            options = dataclasses.replace(options, data_dir=str(prepared.parent))
        dataset = create_tfrecords(options, str(folder / "records"), progress=lambda line: None)
        _score_on_test_images(dataset)
        tutorial = dataclasses.replace(recipe.training, **TUTORIAL)
        ours = _train(recipe.training, dataset, folder / "recipe", float("inf"))
        theirs = _train(tutorial, dataset, folder / "tutorial", PATIENCE * ours.seconds)
    verb = "reached" if theirs.reached else f"given up, best {theirs.best:.4f},"
    figures = f"{verb} after {theirs.seconds:.0f} s, {theirs.epochs} epochs / "
    figures += f"{'reached' if ours.reached else 'not reached'} after {ours.seconds:.0f} s, "
    figures += f"{ours.epochs} epochs; the recipe's last epoch: {ours.last:.4f}"
    what = f"MNIST to a test accuracy of {ACCURACY}, the tutorial's settings / the recipe"
    return [(what, theirs.seconds / ours.seconds if ours.reached else 0.0, 3.0, figures)]


def _score_on_test_images(dataset: Dataset) -> None:
    """Train on what the recipe holds back, too, and validate on the test split."""
    train, validation, test = (dataset.splits[n] for n in ("train", "validation", "test"))
    counts = [sum(pair) for pair in zip(train.class_counts, validation.class_counts, strict=True)]
    whole = Split(shards=[*train.shards, *validation.shards], class_counts=counts)
    splits = {"train": whole, "validation": test, "test": test}
    changed = dataclasses.replace(dataset, splits=splits)
    Path(dataset.uri, FILE_NAME).write_text(changed.to_json())


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Progress:
    """Seconds and epochs of a run to the accuracy, or to its end without it."""

    seconds: float
    epochs: int
    reached: bool
    best: float
    last: float


def _train(config: TrainingConfig, dataset: Dataset, folder: Path, limit: float) -> _Progress:
    """Run a job to its end, or until it has reached the accuracy or `limit` (seconds)."""
    flags = [f"--dataset={dataset.uri}", f"--base_output_directory={folder}"]
    flags.append(f"--config={write_config(config, str(folder))}")
    roles = replicas.CHIEF_AND_WORKER
    with replicas.Cluster("trainer.task", flags, roles, folder / "logs") as cluster:
        cluster.start_all()
        chief = cluster.processes["chief", 0]
        while (code := chief.poll()) is None:
            progress = _progress(folder)
            if progress and limit < float("inf") and (progress.reached or progress.seconds > limit):
                return progress
            with contextlib.suppress(subprocess.TimeoutExpired):
                chief.wait(0.5)
    progress = _progress(folder)
    assert code == 0 and progress, (folder / "logs" / "chief-0.log").read_text()[-2000:]
    return progress


def _progress(folder: Path) -> _Progress | None:
    """Return the progress so far; None before the end of the first epoch."""
    if not (folder / "history.csv").exists():
        return None
    epochs = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
    scores = [float(row["validation_accuracy"]) for row in epochs]
    first = next((i for i, score in enumerate(scores) if score >= ACCURACY), None)
    count = len(epochs) if first is None else first + 1
    return _Progress(
        seconds=sum(float(row["seconds"]) for row in epochs[:count]),
        epochs=count,
        reached=first is not None,
        best=max(scores),
        last=scores[-1],
    )
