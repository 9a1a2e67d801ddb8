"""The registry of models: each file of this folder that defines a `Model`, by file name.

MODULE:FUNCTION names a user's own model (user_models.py), and so does the name of an entry point in
the group vertex_training.models, whose value is MODULE:FUNCTION.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from trainer import fields, plugins
from trainer.conditions import Condition
from trainer.models import user_models
from trainer.models.model import Model
from vertex.errors import InputError
from vertex.formats import suggest

if TYPE_CHECKING:
    from trainer.data.schema import Dataset


MODELS = plugins.import_subclasses(sys.modules[__name__], Model)
"""Classes of models, by name."""
ENTRY_POINTS = "vertex_training.models"
"""Group of the entry points with which installed packages declare models."""


def find_model_class(name: str) -> type[Model]:
    """Return the class of a model; raise InputError if there is none."""
    if ":" in name:
        return user_models.make_model_class(name)
    if name in MODELS:
        return MODELS[name]
    installed = plugins.list_entry_points(ENTRY_POINTS)
    if name not in installed:
        hint = suggest(name, [*MODELS, *installed])
        raise InputError(f"model={name!r} is neither a known model nor MODULE:FUNCTION{hint}")
    return user_models.make_model_class(installed[name])


def find_user_module(name: str) -> str:
    """Return the module of a user's own model; empty if model `name` is one of the project's."""
    if name not in MODELS and ":" not in name:
        name = plugins.list_entry_points(ENTRY_POINTS).get(name, "")
    return name.partition(":")[0] if ":" in name else ""


def _when_model(trait: str, words: str = "", *, is_set: bool = True) -> Condition:
    """Return the condition that the model's attribute `trait` is set; default words: its models."""
    names = [name for name, cls in MODELS.items() if getattr(cls, trait) == is_set]
    return Condition(
        ("model",),
        lambda name: getattr(find_model_class(name), trait) == is_set,
        words or f"model={' or '.join(names)}",
    )


BACKBONE = _when_model("has_backbone")
WIDE_PART = _when_model("has_wide_part")
NO_PROGRAM = _when_model("is_program", "a model that is not a program", is_set=False)
AUGMENTABLE = _when_model("augmentable", "a model of images that is not a program")


def open_model(name: str, options: dict[str, Any]) -> Model:
    """Return a model with these options, without importing TensorFlow."""
    cls = find_model_class(name)
    try:
        fields.check_typed(cls, options)
        return fields.build(cls, options, owner=name)
    except InputError as error:
        raise InputError(f"model_options: {error}") from None


def open_model_for(name: str, dataset: Dataset, options: dict[str, Any]) -> Model:
    """Return a model with these options; raise InputError if it can't read the dataset."""
    model = open_model(name, options)
    if model.takes not in ("", dataset.contents):
        raise InputError(
            f"model={name!r} needs {model.takes}, but {dataset.uri} contains {dataset.contents}"
        )
    for height, width, channels in dataset.image_shapes:
        model.check_images(min(height, width), channels)
    texts = [feature for feature in dataset.features if feature.kind == "text"]
    model.check_texts({text.name: text.settings["embedding"] for text in texts})
    return model


def prepare_model(name: str, dataset: Dataset, options: dict[str, Any], directory: str) -> Model:
    """Fetch the files that model `name` needs to `directory` (URI), once; return the model.

    Other processes may call this only after the first call has returned.
    """
    return open_model_for(name, dataset, options).prepare(dataset, directory)
