"""Run a user's own training program on a replica, and describe what it trained."""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.data import storage
from trainer.data.schema import Dataset, load_to_train
from trainer.data.storage import join
from trainer.engine.cluster import Cluster
from trainer.exported.results import HISTORY
from trainer.models import prepare_model
from trainer.training import trial
from trainer.training.job import Job


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """A model that a program has trained."""

    model: keras.Model
    dataset: Dataset

    @property
    def strategy(self) -> tf.distribute.Strategy:
        return self.model.distribute_strategy

    def make_history(self) -> list[dict[str, Any]]:
        """Return the rows of history.csv, from that of the last `fit` if there is one."""
        history = getattr(self.model, "history", None)
        if history is None or not history.epoch:
            return [{"epoch": 1, "phase": 1}]
        rows = [{"epoch": epoch + 1, "phase": 1} for epoch in history.epoch]
        for name, values in history.history.items():
            if len(values) == len(rows):  # Others are not of each epoch.
                shown = f"validation_{name[4:]}" if name.startswith("val_") else name
                for row, value in zip(rows, values, strict=True):
                    numbers = np.ravel(value).tolist()
                    names = [f"{shown}_{number}" for number in range(len(numbers))]
                    row.update(zip(names if np.ndim(value) else [shown], numbers, strict=True))
        return rows

    def measure(self, seconds: float) -> dict[str, Any]:
        """Return the content of metrics.json."""
        rows, prefix = self.make_history(), "validation_"
        last = rows[-1]
        splits: dict[str, dict[str, Any]] = {"train": {}, "validation": {}}
        for name in sorted(last.keys() - {"epoch", "phase"}):
            split = "validation" if name.startswith(prefix) else "train"
            splits[split][name.removeprefix(prefix)] = last[name]
        return {
            "epochs": len(rows),
            "best_epoch": None,
            "kept_epoch": len(rows),
            "stopped": "",
            "stopped_phases": [""],
            "seconds": seconds,
            "examples_per_second": self.dataset.splits["train"].examples * len(rows) / seconds,
            "replicas": self.strategy.num_replicas_in_sync,
            "precision": keras.config.dtype_policy().name,
            **splits,
        }


def train(job: Job, cluster: Cluster) -> Trained:
    """Call the program with its records and options; every replica of the job calls this.

    The chief writes history.csv.
    """
    dataset, config, base = load_to_train(job.dataset), job.config, job.base_output_directory
    prepared = prepare_model(config.model, dataset, config.model_options, base)
    trained = Trained(model=prepared.train(dataset, base), dataset=dataset)
    if cluster.is_chief:
        rows = trained.make_history()
        storage.write_csv(join(base, HISTORY), rows)
        for row in rows:
            trial.report(row, row["epoch"])
    return trained
