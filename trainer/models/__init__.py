"""The registry of models: each file of this folder with a `Model` is one, named as the file is.

Beside these models, MODULE:FUNCTION names one of the user's own (own.py), and so does the name of
an entry point of the group vertex_training.models, whose value is MODULE:FUNCTION.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from trainer import fields, plugins
from trainer.errors import InputError
from trainer.models import own
from trainer.models.model import Model

if TYPE_CHECKING:
    import keras

    from trainer.data.schema import Dataset


MODELS = plugins.declared(sys.modules[__name__], Model)
"""By name, the class that declares the model."""
ENTRY_POINTS = "vertex_training.models"
"""Group by which installed packages name models."""


def model_class(name: str) -> type[Model]:
    """Return the class that declares a model; raise InputError where there is none."""
    if ":" in name:
        return own.model_class(name)
    if name in MODELS:
        return MODELS[name]
    installed = plugins.installed(ENTRY_POINTS)
    if name not in installed:
        raise InputError(
            f"model={name!r} is neither a model of the project nor MODULE:FUNCTION"
            f"{fields.nearest(name, [*MODELS, *installed])}"
        )
    return own.model_class(installed[name])


def open_model(name: str, options: dict[str, Any]) -> Model:
    """Return a model with its options read, without TensorFlow.

    Raises:
        InputError: no such model, or an option that it does not take, or not with this value.
    """
    cls = model_class(name)
    try:
        fields.check_typed(cls, options)
        return fields.build(cls, options, taker=name)
    except InputError as error:
        raise InputError(f"model_options: {error}") from None


def check_model(name: str, dataset: Dataset, options: dict[str, Any]) -> Model:
    """Judge, without TensorFlow, whether a model takes a dataset; return it with options read.

    Raises:
        InputError: it does not.
    """
    model = open_model(name, options)
    if model.takes_rows is not None and dataset.is_table != model.takes_rows:
        takes, held = ("images", "rows") if dataset.is_table else ("rows of a table", "images")
        raise InputError(f"model={name!r} takes {takes}, but {dataset.uri} holds {held}")
    if not dataset.is_table:
        height, width, channels = dataset.feature("image").shape
        model.check_images(min(height, width), channels)
    return model


def build_model(name: str, dataset: Dataset, options: dict[str, Any]) -> keras.Model:
    """Build model `name` for the features of `dataset`; raises as `check_model` and `Model.build`.

    Args:
        name: a key of `MODELS`, or MODULE:FUNCTION.
        dataset: gives the input's shape and dtype and the number of classes.
        options: as `open_model` takes them.
    """
    return check_model(name, dataset, options).build(dataset)


def prepare_model(name: str, dataset: Dataset, options: dict[str, Any], directory: str) -> Model:
    """Fetch to `directory` (URI) what model `name` needs from elsewhere, once; return it prepared.

    One process must have returned from this before others call it.

    Raises:
        InputError: the model does not take the dataset, or what it needs is unavailable.
    """
    return check_model(name, dataset, options).prepare(dataset, directory)


def options_in_short() -> str:
    """Return the names of every model's options, in a line."""
    return "; ".join(
        f"{name}: {', '.join(field.name for field in dataclasses.fields(options))}"
        for name, options in MODELS.items()
    )
