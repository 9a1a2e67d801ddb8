"""A trial of a hyperparameter tuning job: a training with values that a search has chosen.

Vertex AI starts each trial with its values as flags, and reads its metrics from a file, as the
package cloudml-hypertune writes it. The variables of CLUSTER_SPEC and TF_CONFIG name the trial; the
package reads its number and the file's name from two others, which no page of Vertex AI names.
https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/distributed-training
"""

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from trainer.data import storage
from trainer.data.storage import join
from trainer.exported.results import TRIAL
from trainer.training.job import Job
from vertex import checked_json

_METRIC_FILE = "CLOUD_ML_HP_METRIC_FILE"
_TRIAL_ID = "CLOUD_ML_TRIAL_ID"
_DEFAULT_FILE = "/tmp/hypertune/output.metrics"  # noqa: S108 - cloudml-hypertune's
_MOST_LINES = 100
"""Lines that cloudml-hypertune writes at most."""
_reported: list[tuple[str, float, str]] = []
"""Name, value and line of each metric in the file."""


def is_trial() -> bool:
    """Return whether this replica is one of a trial."""
    return bool(_number())


def _number() -> str:
    """Return the trial's number, "0" if only its file is known; empty: this is no trial's."""
    found: list[str | None] = [os.environ.get(_TRIAL_ID)]
    for name in ("CLUSTER_SPEC", "TF_CONFIG"):
        # Another program's variable of this name has another format.
        with contextlib.suppress(ValueError, AttributeError):
            found.append(json.loads(os.environ.get(name, "")).get("task", {}).get("trial"))
    return next(filter(None, found), "0" if _METRIC_FILE in os.environ else "")


def begin(job: Job) -> None:
    """Write a trial's number and values to its folder; do nothing elsewhere."""
    if number := _number():
        content = {"trial": int(number), "values": dict(job.values)}
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
    number = _number()
    if not number:
        return
    for name, value in row.items():
        if name.startswith("validation_"):
            entry = {
                "timestamp": time.time(),
                "trial": number,
                name: str(float(value)),
                "global_step": str(step),
                "checkpoint_path": "",
            }
            _reported.append((name, float(value), json.dumps(entry, sort_keys=True)))
    _drop_old_lines()
    path = Path(os.environ.get(_METRIC_FILE, _DEFAULT_FILE))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for _, _, line in _reported))


def _drop_old_lines() -> None:
    """Drop the oldest lines of a file that is too long, except each metric's extreme values.

    One of the two is the best value, by which Vertex AI may judge the trial.
    """
    by_name: dict[str, list[tuple[str, float, str]]] = {}
    for reported in _reported:
        if math.isfinite(reported[1]):
            by_name.setdefault(reported[0], []).append(reported)
    kept = {
        choose(of_name, key=lambda one: one[1])
        for of_name in by_name.values()
        for choose in (min, max)
    }
    while len(_reported) > _MOST_LINES:
        _reported.remove(next((one for one in _reported if one not in kept), _reported[0]))
