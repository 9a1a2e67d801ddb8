"""Artifacts for components' functions, as KFP's executor would make them."""

import dataclasses
from pathlib import Path

from kfp import dsl

from trainer.data import schema
from trainer.exported import model_files


def artifact(kind: type[dsl.Artifact], path: Path) -> dsl.Artifact:
    """Return an artifact at `path`, which has a folder but does not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return kind(name=path.name, uri=str(path), metadata={})


def write_training_counts(model: Path, records: Path, class_counts: list[int]) -> str:
    """Write `records` into a SavedModel as its data, with other counts of training examples."""
    dataset = schema.load_dataset(str(records))
    train = dataclasses.replace(dataset.splits["train"], class_counts=class_counts)
    changed = dataclasses.replace(dataset, splits={**dataset.splits, "train": train})
    folder = model / schema.EXTRA_ASSETS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / schema.FILE_NAME).write_text(changed.to_json())
    model_files.write_digests(str(model))
    return str(model)
