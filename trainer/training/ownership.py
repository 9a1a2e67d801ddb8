"""The run that owns a folder of checkpoints: its config and its records."""

import dataclasses
import hashlib

from trainer.data import storage
from trainer.data.schema import Dataset
from trainer.data.storage import join
from trainer.engine.cluster import Cluster
from trainer.fields import build, pick
from trainer.training.config import TrainingConfig
from vertex import checked_json
from vertex.errors import InputError

_FORMAT = 2
"""Number of the form of checkpoints."""


def claim(directory: str, config: TrainingConfig, dataset: Dataset, cluster: Cluster) -> int:
    """Check that the checkpoints in `directory` are this run's; the chief writes its signature.

    Return the number of workers with which the run began.
    """
    signature = {
        **dataclasses.asdict(config),
        "dataset": hashlib.sha256(dataset.to_json().encode()).hexdigest(),
    }
    path = join(directory, "run.json")
    try:
        text = storage.read_text(path)
        if text is None:
            if cluster.is_chief:
                began = {"replicas": cluster.trainers, "format": _FORMAT}
                storage.write_json(path, checked_json.with_checksum({**signature, **began}))
            return cluster.trainers
        saved = checked_json.parse(text)
        saved |= dataclasses.asdict(build(TrainingConfig, pick(TrainingConfig, saved)))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); remove it and run again") from None
    if saved.get("format") != _FORMAT:
        raise InputError(
            f"{directory} contains checkpoints of another version of this project, in another "
            "form; resume that run by its version, or remove that folder to train from the start"
        )
    for name, value in signature.items():
        if saved.get(name) != value:
            raise InputError(
                f"{directory} contains checkpoints of a run with {name}={saved.get(name)!r}, not "
                f"{value!r}; to resume that run, give it the same; else give another "
                "--base_output_directory, or remove that folder"
            )
    return int(saved["replicas"])
