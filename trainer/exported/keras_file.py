"""Save a trained model as a Keras file, and load it or its weights from one."""

import re
import zipfile

import keras
import tensorflow as tf

from trainer.data import storage
from trainer.data.storage import join
from trainer.exported import model_files
from trainer.models import find_model_class
from vertex.errors import InputError, first_line, one_line

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
        raise misfit(reason) from None


def misfit(reason: str) -> InputError:
    """Return the error of weights that a training can't start from."""
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
        raise InputError(f"there is no {uri}: training did not finish")
    model_files.check_beside(join(directory, "model"), FILE_NAME)
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
