"""Save a trained model as a Keras file, and start training from the weights in such a file."""

import itertools
import re
import zipfile
from collections.abc import Sequence

import keras
import tensorflow as tf

from trainer.data import storage
from trainer.data.schema import Dataset, find_training_data
from trainer.data.storage import join
from trainer.errors import InputError, first_line, one_line
from trainer.exported import model_files
from trainer.models import find_model_class

FILE_NAME = "model.keras"
_DAMAGED = (zipfile.BadZipFile, KeyError, NotImplementedError, OSError)
"""Errors of a Keras file, a ZIP archive, that is damaged."""
_MISMATCH = re.compile(
    r"<\w+ name=([^,>]+).*?variable\.shape=(\([^)]*\)), Received: value\.shape=(\([^)]*\))",
    re.DOTALL,
)


def save(model: keras.Model, uri: str) -> None:
    """Write a model, which maps the records' inputs to logits, to a file atomically."""
    with storage.uploaded(uri) as file:
        model.save(file)


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
            f"warm_start: there is no {' and no '.join(candidates)}; a model that was trained "
            "before such files were written must be trained again"
        )
    target = join(directory, "warm_start.keras")
    if not tf.io.gfile.exists(target):
        _check_intact(existing[0])
        storage.copy(existing[0], target)
    return target


def _check_intact(uri: str) -> None:
    """Raise InputError if a Keras file differs from the one that training wrote there."""
    folder, _, name = uri.rpartition("/")
    model_files.check_beside(join(folder, "model"), name)


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
        raise _misfit(f"their classes are {_list(before.classes)}, not {_list(dataset.classes)}")
    for old, new in itertools.zip_longest(before.features, dataset.features):
        if not (old and new) or old.name != new.name or old.kind != new.kind:
            raise _misfit("they were trained with other columns, or in another order")
        if any(
            old.settings.get(name) != new.settings.get(name) for name in ("values", "vocabulary")
        ):
            raise _misfit(f"column {new.name!r} has other values, or in another order")


def _list(classes: Sequence[str]) -> str:
    return ", ".join(classes if len(classes) <= 5 else [*classes[:5], "..."])


def load(model: keras.Model, uri: str) -> None:
    """Load the weights of a file into a model; raise InputError if they do not fit."""
    try:
        model.load_weights(uri)
    except zipfile.BadZipFile as error:
        raise InputError(f"the weights to start from are damaged: {error}; give others") from None
    except (ValueError, KeyError, OSError) as error:
        match = _MISMATCH.search(str(error))
        reason = one_line(error)[:300]
        if match:
            reason = f"{match[1]!r} has weights of shape {match[2]}, but {match[3]} in the file"
        raise _misfit(reason) from None


def _misfit(reason: str) -> InputError:
    return InputError(
        f"the weights to start from do not fit the model: {reason}; set warm_start='', or "
        "train with the model, the options, the classes and the values of these weights"
    )


def load_model(directory: str, name: str) -> keras.Model:
    """Return the model `name` that a training job wrote to its base_output_directory.

    Raise InputError if there is none, or Keras can't load it.
    """
    find_model_class(name).register_layers()
    uri = join(directory, FILE_NAME)
    if not tf.io.gfile.exists(uri):
        raise InputError(f"there is no {uri}: training did not finish, or predates such files")
    _check_intact(uri)
    try:
        return keras.saving.load_model(uri, compile=False)
    except _DAMAGED as error:
        raise InputError(f"{uri} is damaged ({first_line(error)}); train the model again") from None
    except (ValueError, TypeError) as error:
        reason = first_line(error)
        if "safe_mode" in str(error):
            reason = (
                "it contains a Python lambda; if you trust it, call "
                "keras.config.enable_unsafe_deserialization() first"
            )
        raise InputError(f"{uri} can't be loaded: {reason}") from None
