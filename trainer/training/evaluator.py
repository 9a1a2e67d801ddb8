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


def evaluate(job: Job, dataset: Dataset, results: str) -> None:
    """Scores checkpoints as they come, until the chief's `results` are there and all is scored."""
    # A checkpoint that goes while it is read would be deplored variable by variable.
    tf.get_logger().setLevel("ERROR")
    checkpoints = join(job.base_output_directory, "checkpoints")
    print(f"evaluator: waiting for checkpoints in {checkpoints}", flush=True)
    scorer, seen = None, set()
    while True:
        # Read first: whatever was saved before the results is among the checkpoints below.
        done = tf.io.gfile.exists(results)
        new = [path for path in checkpoint.listed(checkpoints) if path not in seen]
        for path in new:
            scorer = scorer or _Scorer(job, dataset)
            scorer.score(path)
        if done and not new:
            return
        seen.update(new)
        time.sleep(POLL_SECONDS)


def scored(base: str, step: int = 0, seconds: float = 0) -> dict[int, dict[str, Any]]:
    """Return the rows of evaluations.csv by step; wait `seconds` at most for that of `step`."""
    deadline = time.monotonic() + seconds
    while True:
        text = files.read_text(join(base, FILE_NAME)) or ""
        by_step: dict[int, dict[str, Any]] = {
            int(row["step"]): row for row in csv.DictReader(io.StringIO(text))
        }
        if step in by_step or time.monotonic() >= deadline:
            return by_step
        time.sleep(_WAIT_SECONDS)


class _Scorer:
    """The model, to be scored with the weights of one checkpoint after the other."""

    def __init__(self, job: Job, dataset: Dataset) -> None:
        config = job.config
        self._base = job.base_output_directory
        dataset = limited(dataset, "train", config.max_train_examples)
        a_pass = reader.steps_per_epoch(dataset, "train", config.batch_size)
        self._steps = config.steps_per_epoch or a_pass
        strategy = create_strategy("one_device", Cluster())
        # Where there is a checkpoint, what the model needs from elsewhere is there too.
        prepared = prepare_model(config.model, dataset, config.model_options, self._base)
        model, network = build_network(config, dataset, prepared, strategy)
        self._variables = network.variables
        share = reader.InputShare(batch_size=config.batch_size)
        self._validate = steps.validation(strategy, model, dataset, share)
        self._rows = scored(self._base)
        self._writer = tf.summary.create_file_writer(join(self._base, "logs", "evaluator"))

    def score(self, path: str) -> None:
        """Score a checkpoint, unless that was done before or a newer one has taken its place."""
        started = time.monotonic()
        progress = checkpoint.read(path, self._variables)
        if progress is None:
            return
        step = progress.epoch * self._steps + progress.step
        means = {} if step in self._rows else self._validate()
        if not means:
            return
        seconds = time.monotonic() - started
        self._rows[step] = {"epoch": progress.epoch, "step": step, **means, "seconds": seconds}
        rows = [self._rows[one] for one in sorted(self._rows)]
        files.write_csv(join(self._base, FILE_NAME), rows)
        with self._writer.as_default(step):
            for name, value in means.items():
                tf.summary.scalar(name, value)
        self._writer.flush()
        print(
            f"step {step}: validation loss {means['loss']:.4f}, "
            f"accuracy {means['accuracy']:.4f}, {seconds:.1f} s",
            flush=True,
        )
