"""The registry of models: a name, and the module whose `build` makes it.

Modules are imported when a model is built, so that naming one costs no TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

from trainer.errors import InputError
from trainer.fields import convert, nearest

if TYPE_CHECKING:
    import keras

    from trainer.dataset.schema import Dataset

MODELS = {
    "small_cnn": "trainer.models.small_cnn",
    "flowers_cnn": "trainer.models.flowers_cnn",
    "mnist_cnn": "trainer.models.mnist_cnn",
    "transfer": "trainer.models.transfer",
    "wide_and_deep": "trainer.models.wide_and_deep",
}
FINE_TUNED = frozenset({"transfer"})
"""Models with a backbone: they fetch its weights, and may train in two phases."""

WIDE = frozenset({"wide_and_deep"})
"""Models with a wide part, which learns by an optimizer of its own."""


def build_model(name: str, dataset: "Dataset", options: dict[str, Any]) -> "keras.Model":
    """Builds model `name` for the features of `dataset`.

    Args:
        name: a key of `MODELS`.
        dataset: gives the input's shape and dtype and the number of classes.
        options: keyword arguments of that model's `build`.

    Returns:
        A Keras model from what `trainer.dataset.decoding.parse` gives (images: uint8 [n,
        height, width, channels], unscaled) to logits, float32 [n, classes].

    Raises:
        InputError: no such model, an option that it does not take, or features or options of
            which Keras can't build it.
    """
    build = _module(name).build
    checked = _checked(name, build.__kwdefaults__ or {}, options)
    try:
        return build(dataset, **checked)
    except (ValueError, TypeError) as error:
        why = " ".join(str(error).split())
        raise InputError(
            f"model={name!r} can't be built with model_options={options} for "
            f"{_described(dataset)}: {why}"
        ) from error


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
    module = _module(name)
    checked = _checked(name, module.build.__kwdefaults__, options)
    return module.prepare(dataset, checked, directory)


def unfreeze(name: str, model: "keras.Model", layers: int) -> None:
    """Lets the last `layers` layers of the backbone of `model`, of FINE_TUNED, learn too."""
    _module(name).unfreeze(model, layers)


def _described(dataset: "Dataset") -> str:
    if dataset.is_table:
        return "rows of a table"
    return f"images of {' x '.join(map(str, dataset.feature('image').shape))}"


def _module(name: str) -> Any:
    if name not in MODELS:
        raise InputError(f"model={name!r} is not a model{nearest(name, MODELS)}")
    return importlib.import_module(MODELS[name])


def _checked(name: str, taken: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """`options` with the types of the defaults `taken`: KFP makes every number a double."""
    checked = {}
    for option, value in options.items():
        if option not in taken:
            raise InputError(f"model_options: {name} takes no {option!r}{nearest(option, taken)}")
        place, default = f"model_options: {option}", taken[option]
        if isinstance(default, tuple):
            items = convert(place, value, list)
            checked[option] = tuple(convert(place, one, type(default[0])) for one in items)
        else:
            checked[option] = value if default is None else convert(place, value, type(default))
    return checked
