"""The registry of models: a name, the options that it takes, and the module that builds it.

Modules are imported when a model is built, so that naming one, or judging its options, costs
no TensorFlow. Beside these models, MODULE:FUNCTION names one of the user's own (own.py).
"""

import importlib
from typing import TYPE_CHECKING, Any

from trainer import fields
from trainer.errors import InputError
from trainer.fields import nearest
from trainer.models import own
from trainer.models.model_options import FlowersCnn, MnistCnn, SmallCnn, Transfer, WideAndDeep

if TYPE_CHECKING:
    import keras

    from trainer.data.schema import Dataset

MODELS: dict[str, type] = {
    "small_cnn": SmallCnn,
    "flowers_cnn": FlowersCnn,
    "mnist_cnn": MnistCnn,
    "transfer": Transfer,
    "wide_and_deep": WideAndDeep,
}
"""Options by the model's name, which is that of the module, too."""

FINE_TUNED = frozenset({"transfer"})
"""Models with a backbone: they fetch its weights, and may train in two phases."""

WIDE = frozenset({"wide_and_deep"})
"""Models with a wide part, which learns by an optimizer of its own."""


def read_options(name: str, options: dict[str, Any]) -> Any:
    """The options of model `name`, of the class that MODELS has for it.

    Raises:
        InputError: no such model, or an option that it does not take, or not with this value.
    """
    if own.is_own(name):
        return own.read_options(name, options)
    if name not in MODELS:
        raise InputError(
            f"model={name!r} is neither a model of the project nor MODULE:FUNCTION"
            f"{nearest(name, MODELS)}"
        )
    try:
        return fields.build(MODELS[name], options, taker=name)
    except InputError as error:
        raise InputError(f"model_options: {error}") from None


def check_images(name: str, options: dict[str, Any], size: int, channels: int) -> None:
    """Raises InputError where a model of images can't take those of size x size x channels."""
    if not own.is_own(name):
        read_options(name, options).check_images(size, channels)


def check_model(name: str, dataset: "Dataset", options: dict[str, Any]) -> Any:
    """Judges, without TensorFlow, whether `build_model` will take these; returns the options read.

    Raises:
        InputError: it will not.
    """
    read = read_options(name, options)
    if own.is_own(name):
        return read
    if dataset.is_table != (name in WIDE):
        takes, held = ("images", "rows") if dataset.is_table else ("rows of a table", "images")
        raise InputError(f"model={name!r} takes {takes}, but {dataset.uri} holds {held}")
    if not dataset.is_table:
        height, width, channels = dataset.feature("image").shape
        read.check_images(min(height, width), channels)
    return read


def build_model(name: str, dataset: "Dataset", options: dict[str, Any]) -> "keras.Model":
    """Builds model `name` for the features of `dataset`.

    Args:
        name: a key of `MODELS`, or MODULE:FUNCTION.
        dataset: gives the input's shape and dtype and the number of classes.
        options: as `read_options` takes them.

    Returns:
        A Keras model from what `trainer.data.read.decoding.parse` gives (images: uint8 [n,
        height, width, channels], unscaled) to logits, float32 [n, classes].

    Raises:
        InputError: as `check_model`; or weights can't be had, or do not fit.
    """
    if own.is_own(name):
        return own.build(name, dataset, options)
    return _module(name).build(dataset, check_model(name, dataset, options))


def prepare_model(
    name: str, dataset: "Dataset", options: dict[str, Any], directory: str
) -> dict[str, Any]:
    """Fetches to `directory` (URI) what model `name` needs from elsewhere, once.

    One process must have returned from this before others call it, or `build_model`.

    Returns:
        Options for `build_model` that name what was fetched.

    Raises:
        InputError: it can't be had, or does not fit.
    """
    if name not in FINE_TUNED:
        return options
    weights = _module(name).prepare(dataset, read_options(name, options), directory)
    return {**options, "weights": weights}


def unfreeze(name: str, model: "keras.Model", layers: int) -> None:
    """Lets the last `layers` layers of the backbone of `model`, of FINE_TUNED, learn too."""
    _module(name).unfreeze(model, layers)


def _module(name: str) -> Any:
    return importlib.import_module(f"trainer.models.{name}")
