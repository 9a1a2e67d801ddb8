"""The weights with which a training starts: copied for its replicas, and checked to fit."""

import itertools
from collections.abc import Sequence

import tensorflow as tf

from trainer.data import storage
from trainer.data.schema import Dataset, find_training_data
from trainer.data.storage import join
from trainer.exported import model_files
from trainer.exported.keras_file import FILE_NAME, misfit
from vertex.errors import InputError


def copy(start: str, directory: str) -> str:
    """Copy weights to a job's directory, so that its replicas can read them; return the copy's URI.

    `start` is the URI of a Keras file, of a training job's folder, or of the model/ in it.
    """
    folder = start.rstrip("/")
    candidates = [join(folder, FILE_NAME), join(folder.rpartition("/")[0], FILE_NAME)]
    if start.endswith(".keras"):
        candidates = [start]
    existing = [uri for uri in candidates if tf.io.gfile.exists(uri) and not tf.io.gfile.isdir(uri)]
    if not existing:
        raise InputError(
            f"warm_start: there is no {' and no '.join(candidates)}; give the folder of a training "
            "that has finished"
        )
    target = join(directory, "warm_start.keras")
    if not tf.io.gfile.exists(target):
        folder, _, name = existing[0].rpartition("/")
        model_files.check_beside(join(folder, "model"), name)
        storage.copy(existing[0], target)
    return target


def check_meaning(start: str, dataset: Dataset) -> None:
    """Raise InputError if other classes or values had the ids of these records in training.

    Weights for them would be loaded without an error if the numbers of ids are equal. `start` is
    as for `copy`; weights without a SavedModel beside them are not checked.
    """
    folder = start.rstrip("/")
    models = [folder, join(folder, "model"), join(folder.rpartition("/")[0], "model")]
    before = next(filter(None, map(find_training_data, models)), None)
    if before is None:
        return
    if before.classes != dataset.classes:
        raise misfit(f"their classes are {_list(before.classes)}, not {_list(dataset.classes)}")
    for old, new in itertools.zip_longest(before.features, dataset.features):
        if not (old and new) or old.name != new.name or old.kind != new.kind:
            raise misfit("they were trained with other columns, or in another order")
        if any(
            old.settings.get(name) != new.settings.get(name) for name in ("values", "vocabulary")
        ):
            raise misfit(f"column {new.name!r} has other values, or in another order")


def _list(classes: Sequence[str]) -> str:
    return ", ".join(classes if len(classes) <= 5 else [*classes[:5], "..."])
