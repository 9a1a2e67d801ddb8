"""A trial of a hyperparameter tuning job: a training with values that a search has chosen.

Vertex AI starts each trial with its values as flags, and reads its metrics from a file, as the
package cloudml-hypertune writes it. The file's name is in an environment variable, which only the
replicas of trials have.
"""

import collections
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from trainer import checked_json
from trainer.data import storage
from trainer.data.storage import join
from trainer.exported.results import TRIAL
from trainer.training.job import Job

_METRIC_FILE = "CLOUD_ML_HP_METRIC_FILE"
_TRIAL_ID = "CLOUD_ML_TRIAL_ID"
_reported: collections.deque[str] = collections.deque(maxlen=100)
"""Lines of the metrics file, the newest 100."""


def is_trial() -> bool:
    """Return whether this replica is one of a trial."""
    return _METRIC_FILE in os.environ


def begin(job: Job) -> None:
    """Write a trial's number and values to its folder; do nothing elsewhere."""
    if is_trial():
        content = {"trial": int(os.environ[_TRIAL_ID]), "values": dict(job.values)}
        content = checked_json.with_checksum(content)
        storage.write_json(join(job.base_output_directory, TRIAL), content)


def describe(base: str) -> None:
    """Write a trial's values to its logs for TensorBoard's HPARAMS, after `begin`.

    Call this when the strategy is created, which must precede operations of TensorFlow.
    """
    begun = json.loads(storage.read(join(base, TRIAL)))
    # Beside the metrics of validation.
    with tf.summary.create_file_writer(join(base, "logs", "validation")).as_default():
        hparams.hparams(begun["values"], trial_id=str(begun["trial"]))


def report(row: Mapping[str, Any], step: int) -> None:
    """Report an epoch's validation metrics, from its row of history.csv; do nothing elsewhere."""
    if not is_trial():
        return
    for name, value in row.items():
        if name.startswith("validation_"):
            entry = {
                "timestamp": time.time(),
                "trial": os.environ.get(_TRIAL_ID, "0"),
                name: str(float(value)),
                "global_step": str(step),
                "checkpoint_path": "",
            }
            _reported.append(json.dumps(entry, sort_keys=True))
    path = Path(os.environ[_METRIC_FILE])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in _reported))
