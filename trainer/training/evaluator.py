"""The evaluator: a replica that scores each checkpoint on the validation split.

It does not train and is not a member of the cluster: it reads the chief's checkpoints, with any
strategy, and writes

    evaluations.csv    one row per checkpoint: finished epochs, step, loss, accuracy, seconds
    logs/evaluator     the same for TensorBoard

A checkpoint is skipped if newer ones replace it before it is read, and at the start of a second
phase, where it has the step of the last epoch but the weights of the best.
"""

import csv
import io
import time
from typing import Any

import tensorflow as tf

from trainer.data import storage
from trainer.data.read import reader
from trainer.data.schema import Dataset, limit_examples, load_to_train
from trainer.data.storage import join
from trainer.engine.checkpoints import list_checkpoints, load
from trainer.engine.cluster import Cluster
from trainer.engine.strategies import create_strategy
from trainer.exported.results import METRICS
from trainer.models import prepare_model
from trainer.training.job import Job
from trainer.training.progress import Progress
from trainer.training.steps import make_validation
from trainer.training.task_model import build_task_model

FILE_NAME = "evaluations.csv"
POLL_SECONDS = 1.0
_WAIT_SECONDS = 0.2


def evaluate(job: Job) -> None:
    """Score new checkpoints until the chief's results exist and all checkpoints are scored."""
    dataset = load_to_train(job.dataset)
    # TensorFlow logs a warning per variable when a checkpoint is removed while it is read.
    tf.get_logger().setLevel("ERROR")
    checkpoints = join(job.base_output_directory, "checkpoints")
    results = join(job.base_output_directory, METRICS)
    print(f"evaluator: waiting for checkpoints in {checkpoints}", flush=True)
    scorer, seen = None, set()
    while True:
        # Check this first, so that the list below contains all checkpoints before the results.
        done = tf.io.gfile.exists(results)
        new = [path for path in list_checkpoints(checkpoints) if path not in seen]
        for path in new:
            scorer = scorer or _Scorer(job, dataset)
            scorer.score(path)
        if done and not new:
            return
        seen.update(new)
        time.sleep(POLL_SECONDS)


def read_scores(base: str, step: int = 0, seconds: float = 0) -> dict[int, dict[str, Any]]:
    """Return the rows of evaluations.csv by step; wait up to `seconds` for the row of `step`."""
    deadline = time.monotonic() + seconds
    while True:
        text = storage.read_text(join(base, FILE_NAME)) or ""
        by_step: dict[int, dict[str, Any]] = {
            int(row["step"]): row for row in csv.DictReader(io.StringIO(text))
        }
        if step in by_step or time.monotonic() >= deadline:
            return by_step
        time.sleep(_WAIT_SECONDS)


class _Scorer:
    """A model that is scored with the weights of successive checkpoints."""

    def __init__(self, job: Job, dataset: Dataset) -> None:
        config = job.config
        self._base = job.base_output_directory
        dataset = limit_examples(dataset, "train", config.max_train_examples)
        pass_steps = reader.steps_per_epoch(dataset, "train", config.batch_size)
        self._steps = config.steps_per_epoch or pass_steps
        strategy = create_strategy("one_device", Cluster())
        # The files that the model needs were copied before the first checkpoint was saved.
        prepared = prepare_model(config.model, dataset, config.model_options, self._base)
        self._model = build_task_model(config, dataset, prepared, strategy)
        share = reader.InputShare(batch_size=config.batch_size)
        self._validate = make_validation(self._model, share)
        self._rows = read_scores(self._base)
        self._writer = tf.summary.create_file_writer(join(self._base, "logs", "evaluator"))

    def score(self, path: str) -> None:
        """Score a checkpoint, unless it was scored or removed before, or begins a later phase."""
        started = time.monotonic()
        progress = Progress()
        if not load(path, self._model.network.variables, progress) or progress.begins_later_phase:
            return
        step = progress.epoch * self._steps + progress.step
        means = {} if step in self._rows else self._validate()
        if not means:
            return
        seconds = time.monotonic() - started
        self._rows[step] = {"epoch": progress.epoch, "step": step, **means, "seconds": seconds}
        rows = [self._rows[number] for number in sorted(self._rows)]
        storage.write_csv(join(self._base, FILE_NAME), rows)
        with self._writer.as_default(step):
            for name, value in means.items():
                tf.summary.scalar(name, value)
        self._writer.flush()
        shown = ", ".join(f"{name} {means[name]:.4f}" for name in self._model.measured)
        print(f"step {step}: validation {shown}, {seconds:.1f} s", flush=True)
