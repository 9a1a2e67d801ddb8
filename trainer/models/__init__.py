"""The registry of models: a name, and the module whose `build` makes it.

Modules are imported when a model is built, so that naming one costs no TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

from trainer.errors import InputError
from trainer.fields import nearest

if TYPE_CHECKING:
    import keras

    from trainer.dataset.schema import Dataset

MODELS = {
    "small_cnn": "trainer.models.small_cnn",
    "flowers_cnn": "trainer.models.flowers_cnn",
    "mnist_cnn": "trainer.models.mnist_cnn",
}


def build_model(name: str, dataset: "Dataset", options: dict[str, Any]) -> "keras.Model":
    """Builds model `name` for the features of `dataset`.

    Args:
        name: a key of `MODELS`.
        dataset: gives the input's shape and dtype and the number of classes.
        options: keyword arguments of that model's `build`.

    Returns:
        A Keras model from a batch of unscaled inputs (images: uint8 [n, height,
        width, channels]) to logits, float32 [n, classes].

    Raises:
        InputError: no such model, or an option that it does not take.
    """
    if name not in MODELS:
        raise InputError(f"model={name!r} is not a model{nearest(name, MODELS)}")
    build = importlib.import_module(MODELS[name]).build
    taken = build.__kwdefaults__ or {}
    for option in options:
        if option not in taken:
            raise InputError(f"model_options: {name} takes no {option!r}{nearest(option, taken)}")
    return build(dataset, **options)
