"""Create backbones from keras.applications and load their weights."""

import contextlib
import importlib
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from trainer.data import storage
from trainer.models.backbone_table import IMAGENET, NO_WEIGHTS, WEIGHTS_SUFFIXES
from vertex.errors import InputError, first_line

DOWNLOAD_TIMEOUT_SECONDS = 30
"""Timeout for a silent server; without it, a dead server blocks a download for minutes."""


@keras.saving.register_keras_serializable("trainer")
class Preprocessing(keras.layers.Layer):
    """The scaling of pixels with which a backbone was trained: its module's preprocess_input.

    Maps RGB images [n, height, width, 3] of any dtype, with values from 0 to 255, to float32.
    """

    def __init__(self, module: str, **kwargs: Any) -> None:
        # float32, because half precision would round pixels before they are centered.
        super().__init__(**{"dtype": "float32", **kwargs})
        self.module = module

    def call(self, images: tf.Tensor) -> tf.Tensor:
        module = importlib.import_module(f"keras.applications.{self.module}")
        return module.preprocess_input(keras.ops.cast(images, "float32"))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "module": self.module}


def create_preprocessing(name: str) -> Preprocessing:
    """Return the preprocessing of backbone `name`, as a layer."""
    module = getattr(keras.applications, name).__module__
    return Preprocessing(module.rpartition(".")[2], name="preprocessing")


def create(
    name: str, weights: str, arguments: dict[str, Any], shape: tuple[int, int, int]
) -> keras.Model:
    """Create backbone `name` without its top, and load its weights.

    Args:
        weights: imagenet, which Keras downloads unless they are in its cache; none; or a file's
            URI.
        arguments: options of the backbone.
        shape: height, width and channels of the images.
    """
    downloaded = IMAGENET if weights == IMAGENET else None
    try:
        with _socket_timeout():
            backbone = getattr(keras.applications, name)(
                **arguments, include_top=False, input_shape=shape, weights=downloaded
            )
    # Keras raises ValueError for bad arguments, and a bare Exception for a failed download.
    except Exception as error:
        reason = first_line(error)
        if downloaded and not isinstance(error, (ValueError, TypeError)):
            raise InputError(
                f"model_options: weights='imagenet': the weights of {name} can't be downloaded "
                f"({reason}); download the file on a machine with network access, and set weights "
                "to its URI, gs:// or local"
            ) from None
        raise InputError(f"model_options: {name} can't be built: {reason}") from None
    if weights not in (IMAGENET, NO_WEIGHTS):
        _load_weights(backbone, name, weights)
    return backbone


def _load_weights(backbone: keras.Model, name: str, uri: str) -> None:
    option = f"model_options: weights={uri!r}"
    if not tf.io.gfile.exists(uri) or tf.io.gfile.isdir(uri):
        raise InputError(f"{option} is not a file; give imagenet, none or a weights file's URI")
    suffix = next(suffix for suffix in WEIGHTS_SUFFIXES if uri.endswith(suffix))
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, f"backbone{suffix}"))
        storage.copy(uri, file)
        try:
            backbone.load_weights(file)
        except (ValueError, KeyError, OSError) as error:
            raise InputError(
                f"{option} does not fit {name} ({first_line(error)}); give the weights of this "
                "backbone without its top, and its backbone_options"
            ) from None


@contextlib.contextmanager
def _socket_timeout() -> Iterator[None]:
    previous = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(previous)
