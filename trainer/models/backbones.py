"""Backbones: the networks of keras.applications by name, and where their weights come from.

backbone = create("MobileNet", (224, 224, 3), {"alpha": 0.25}, weights="none")
features = backbone(preprocessing("MobileNet")(images), training=False)
"""

import contextlib
import importlib
import inspect
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from trainer import files
from trainer.errors import InputError
from trainer.fields import convert, nearest

NAMES = tuple(sorted(name for name in dir(keras.applications) if name[0].isupper()))
IMAGENET, NONE = "imagenet", "none"
DOWNLOAD_TIMEOUT_SECONDS = 30
"""How long a server may stay silent; a dead one else holds a download for minutes."""

_SUFFIXES = (".weights.h5", ".h5", ".hdf5", ".keras")
_OURS = (
    "include_top",
    "include_preprocessing",
    "weights",
    "input_tensor",
    "input_shape",
    "pooling",
    "classes",
    "classifier_activation",
    "name",
)
"""Arguments of keras.applications that are not for the user to set."""


@keras.saving.register_keras_serializable("trainer")
class Preprocessing(keras.layers.Layer):
    """The scaling that a backbone's authors trained it with: its module's preprocess_input.

    Takes [n, height, width, 3] of any dtype, values 0 to 255, in RGB; returns float32.
    """

    def __init__(self, module: str, **kwargs: Any) -> None:
        # Half precision would round pixels before they are centered.
        super().__init__(**{"dtype": "float32", **kwargs})
        self.module = module

    def call(self, images: tf.Tensor) -> tf.Tensor:
        module = importlib.import_module(f"keras.applications.{self.module}")
        return module.preprocess_input(keras.ops.cast(images, "float32"))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "module": self.module}


def preprocessing(name: str) -> Preprocessing:
    """The preprocessing of backbone `name`, as a layer."""
    module = _constructor(name).__module__.rpartition(".")[2]
    return Preprocessing(module, name="preprocessing")


def create(
    name: str, shape: tuple[int, int, int], options: Mapping[str, Any], weights: str
) -> keras.Model:
    """Creates backbone `name` without its top.

    Args:
        name: of `NAMES`.
        shape: height, width and channels of images.
        options: keyword arguments of that backbone alone, such as MobileNet's alpha.
        weights: "imagenet", which Keras downloads unless they are in its cache, "none" for
            fresh ones, or the URI of a file that Keras' save_weights wrote.

    Raises:
        InputError: any of these can't be used.
    """
    constructor = _constructor(name)
    arguments = {
        **_converted(name, constructor, options),
        "include_top": False,
        "input_shape": shape,
        "weights": IMAGENET if weights == IMAGENET else None,
    }
    try:
        with _impatience():
            backbone = constructor(**arguments)
    # What it dislikes it says by ValueError; what it can't download by a bare Exception.
    except Exception as error:
        reason = _first_line(error)
        if weights == IMAGENET and not isinstance(error, (ValueError, TypeError)):
            raise InputError(
                f"model_options: weights='imagenet': those of {name} can't be downloaded "
                f"({reason}); fetch that file where there is a network, and give its URI, gs:// "
                "or local, as weights"
            ) from None
        raise InputError(f"model_options: {name} can't be built: {reason}") from None
    if weights not in (IMAGENET, NONE):
        _load(backbone, name, weights)
    return backbone


def save(backbone: keras.Model, uri: str) -> None:
    """Writes a backbone's weights to `uri` (*.weights.h5), whole or not at all."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "backbone.weights.h5"))
        backbone.save_weights(file)
        files.copy_here(file, uri)


def _constructor(name: str) -> Any:
    if name not in NAMES:
        raise InputError(
            f"model_options: backbone={name!r} is not in keras.applications{nearest(name, NAMES)}"
        )
    return getattr(keras.applications, name)


def _converted(name: str, constructor: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` with the types of the constructor's defaults: JSON has one kind of number."""
    parameters = inspect.signature(constructor).parameters
    known = {key: one.default for key, one in parameters.items() if key not in _OURS}
    converted = {}
    for key, value in convert("model_options: backbone_options", options, dict).items():
        place = f"model_options: backbone_options: {key}"
        if key not in known:
            listed = nearest(key, known) if known else ": it has no options"
            raise InputError(f"model_options: backbone_options: {name} takes no {key!r}{listed}")
        converted[key] = convert(place, value, type(known[key]))
    return converted


def _load(backbone: keras.Model, name: str, uri: str) -> None:
    place = f"model_options: weights={uri!r}"
    if not tf.io.gfile.exists(uri) or tf.io.gfile.isdir(uri):
        raise InputError(f"{place} is no file; give imagenet, none or the URI of a weights file")
    suffix = next((suffix for suffix in _SUFFIXES if uri.endswith(suffix)), "")
    if not suffix:
        raise InputError(f"{place} is not a weights file of Keras: {', '.join(_SUFFIXES)}")
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, f"backbone{suffix}"))
        tf.io.gfile.copy(uri, file)
        try:
            backbone.load_weights(file)
        except (ValueError, KeyError, OSError) as error:
            raise InputError(
                f"{place} does not fit {name} ({_first_line(error)}); give the weights of just "
                "that backbone without its top, and its backbone_options"
            ) from None


@contextlib.contextmanager
def _impatience() -> Iterator[None]:
    """A server that does not answer is given up after DOWNLOAD_TIMEOUT_SECONDS."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
