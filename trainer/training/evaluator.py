"""The evaluator: a replica that scores each checkpoint on the validation split.

It trains nothing and is no member of the cluster: it sees the checkpoints that the chief
leaves, in any strategy, and writes

    evaluations.csv    a row a checkpoint: epoch (finished), step, loss, accuracy, seconds
    logs/evaluator     the same for TensorBoard

A checkpoint that is gone before it was read, because newer ones have taken its place, is
passed over.
"""

import csv
import io
import time
from typing import Any

import tensorflow as tf

from trainer import files
from trainer.data.read import reader
from trainer.data.schema import Dataset, join, limited
from trainer.models import prepare_model
from trainer.training import checkpoint, steps
from trainer.training.cluster import Cluster
from trainer.training.job import Job
from trainer.training.network import build_network
from trainer.training.strategies import create_strategy

FILE_NAME = "evaluations.csv"
POLL_SECONDS = 1.0
_WAIT_SECONDS = 0.2
_COLUMNS = {"epoch": int, "step": int, "loss": float, "accuracy": float, "seconds": float}


def evaluate(job: Job, dataset: Dataset, results: str) -> None:
    """Scores checkpoints as they come, until the chief's `results` are there and all is scored."""
    # A checkpoint that goes while it is read would be deplored variable by variable.
    tf.get_logger().setLevel("ERROR")
    checkpoints = join(job.base_output_directory, "checkpoints")
    print(f"evaluator: waiting for checkpoints in {checkpoints}", flush=True)
    scorer = None
    while True:
        # Read first: whatever was saved before the results is among the checkpoints below.
        done = tf.io.gfile.exists(results)
        paths = checkpoint.listed(checkpoints)
        if paths and scorer is None:
            scorer = _Scorer(job, dataset)
        new = scorer.score_new(paths) if scorer else 0
        if done and not new:
            return
        time.sleep(POLL_SECONDS)


def load(base: str) -> list[dict[str, Any]]:
    """Return rows of `<base>/evaluations.csv`, ordered by step; none where nothing was scored."""
    text = files.read_text(join(base, FILE_NAME)) or ""
    rows = csv.DictReader(io.StringIO(text))
    return [{name: kind(row[name]) for name, kind in _COLUMNS.items()} for row in rows]


def scored(base: str, step: int, seconds: float) -> dict[int, dict[str, Any]]:
    """Return rows by step, as soon as that of `step` is there, or `seconds` have passed."""
    deadline = time.monotonic() + seconds
    while True:
        rows = {row["step"]: row for row in load(base)}
        if step in rows or time.monotonic() >= deadline:
            return rows
        time.sleep(_WAIT_SECONDS)


class _Scorer:
    """The model, to be scored with the weights of one checkpoint after the other."""

    def __init__(self, job: Job, dataset: Dataset) -> None:
        config = job.config
        self._base = job.base_output_directory
        dataset = limited(dataset, "train", config.max_train_examples)
        self._steps = steps.steps_per_epoch(dataset, config)
        strategy = create_strategy("one_device", Cluster())
        # Where there is a checkpoint, what the model needs from elsewhere is there too.
        options = prepare_model(config.model, dataset, config.model_options, self._base)
        model, network = build_network(config, dataset, options, strategy)
        self._variables = network.variables
        self._validation = steps.Validation(
            strategy, model, dataset, reader.InputShare(batch_size=config.batch_size)
        )
        self._rows = load(self._base)
        self._seen: set[str] = set()
        self._writer = tf.summary.create_file_writer(join(self._base, "logs", "evaluator"))

    def score_new(self, paths: list[str]) -> int:
        """Scores those of `paths` that were not here before; returns how many that were."""
        new = [path for path in paths if path not in self._seen]
        for path in new:
            self._seen.add(path)
            self._score(path)
        return len(new)

    def _score(self, path: str) -> None:
        started = time.monotonic()
        progress = checkpoint.read(path, self._variables)
        if progress is None:
            return  # A newer one has taken its place.
        step = progress.epoch * self._steps + progress.step
        if any(row["step"] == step for row in self._rows):
            return
        means = self._validation()
        if not means:
            return
        seconds = time.monotonic() - started
        self._rows.append({"epoch": progress.epoch, "step": step, **means, "seconds": seconds})
        self._rows.sort(key=lambda row: row["step"])
        self._write()
        with self._writer.as_default(step):
            for name, value in means.items():
                tf.summary.scalar(name, value)
        self._writer.flush()
        print(
            f"step {step}: validation loss {means['loss']:.4f}, "
            f"accuracy {means['accuracy']:.4f}, {seconds:.1f} s",
            flush=True,
        )

    def _write(self) -> None:
        text = io.StringIO()
        table = csv.DictWriter(text, fieldnames=list(_COLUMNS), lineterminator="\n")
        table.writeheader()
        table.writerows(self._rows)
        files.write_text(join(self._base, FILE_NAME), text.getvalue())
