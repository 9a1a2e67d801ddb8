"""Users' own models and training programs: functions in users' modules, named as MODULE:FUNCTION.

    def build(dataset: Dataset, *, units: int = 64) -> keras.Model: ...
    def main(dataset: Dataset, directory: str, *, epochs: int = 3) -> keras.Model: ...

The first argument is the Dataset; all others are options. A function whose second argument is
`directory`, the job's base_output_directory, trains the model that it returns. The signature is
read from the module's source, so that a recipe can be checked without running the user's code.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainer.data import storage
from trainer.data.schema import Dataset
from trainer.fields import option
from trainer.models.model import Model
from trainer.plugins import find_module_file
from trainer.tasks import task_of
from vertex.errors import InputError, one_line
from vertex.formats import suggest

if TYPE_CHECKING:
    import keras

_SIMPLE: dict[str, Any] = {"bool": bool, "int": int, "float": float, "str": str}
_TYPES: dict[str, Any] = {
    **_SIMPLE,
    **{f"list[{name}]": list[kind] for name, kind in _SIMPLE.items()},  # type: ignore[valid-type]
    "dict": dict,
}


def make_model_class(name: str) -> type[Model]:
    """Return the class of a model whose options are the arguments of its function."""
    members, required, trains = _parse_signature(name)

    def check(self: Any) -> None:
        for missing in required:
            if getattr(self, missing) is None:
                raise InputError(f"{name} needs {missing!r}, which has no default")

    def call(self: Any, *arguments: Any) -> keras.Model:
        options = {key: value for key, value in vars(self).items() if value is not None}
        return _call_function(name, arguments, options)

    namespace = {
        "takes": "",
        "augmentable": not trains,
        "is_program": trains,
        "build": call,
        "train": call,
        "register_layers": staticmethod(lambda: _register_objects(name)),
        "__post_init__": check,
    }
    fields = [(key, kind, option(None, help="")) for key, kind in members.items()]
    return dataclasses.make_dataclass(
        "Options", fields, bases=(Model,), namespace=namespace, frozen=True, kw_only=True
    )


def _import_module(name: str) -> Any:
    find_module_file("model", name)
    return importlib.import_module(name.partition(":")[0])


def _register_objects(name: str) -> None:
    """Import the model's module, and let Keras find the layers and functions of its package.

    Keras saves them by name, and does not import modules to find them.
    """
    import keras

    package = _import_module(name).__name__.partition(".")[0]
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").partition(".")[0] != package:
            continue
        for key, value in vars(module).items():
            defined_in = str(getattr(value, "__module__", ""))
            if callable(value) and defined_in.partition(".")[0] == package:
                keras.saving.get_custom_objects()[key] = value


def _call_function(name: str, arguments: Sequence[Any], options: dict[str, Any]) -> keras.Model:
    """Call the model's function; raise InputError for a model that can't be trained or saved."""
    import keras

    model = getattr(_import_module(name), name.partition(":")[2])(*arguments, **options)
    if not isinstance(model, keras.Model):
        raise InputError(f"model={name!r} returned {type(model).__name__}; return a keras.Model")
    _check_output(name, model, arguments[0])
    if not model.trainable_variables:
        raise InputError(f"model={name!r} has no trainable weights; leave a layer trainable")
    try:
        keras.saving.serialize_keras_object(model)
    except Exception as error:  # The user's get_config may raise anything.
        raise InputError(
            f"model={name!r} can't be saved by Keras: {_shorten(error)}; give its layers a "
            "get_config, and write no Lambda that refers to other variables"
        ) from None
    return model


def _check_output(name: str, model: keras.Model, dataset: Dataset) -> None:
    """Raise InputError unless the model maps the records' inputs to logits of the classes."""
    import keras

    from trainer.data.read.model_inputs import open_inputs

    if not getattr(model, "inputs", None):
        raise InputError(
            f"model={name!r} returned a {type(model).__name__} that has no inputs yet; return "
            "keras.Model(inputs, outputs), or a Sequential that begins with keras.Input"
        )
    try:
        output = model.compute_output_spec(open_inputs(dataset).symbolic())
    except Exception as error:  # The user's layers may raise anything.
        raise InputError(
            f"model={name!r} does not accept the records' inputs: {_shorten(error)}; see "
            "docs/extending.md for their shapes and types"
        ) from None
    shape, classes = getattr(output, "shape", None), task_of(dataset).outputs
    if shape is None:
        raise InputError(
            f"model={name!r} returns a {type(output).__name__}; return one tensor, the logits"
        )
    if shape != (None, classes):
        raise InputError(
            f"model={name!r} has the output shape {shape}, but logits of {classes} classes are "
            f"(None, {classes}); end with Dense({classes}) without activation"
        )
    if output.dtype != "float32":
        raise InputError(
            f"model={name!r} returns logits in {output.dtype}; give its last layer dtype='float32'"
        )
    last = model.layers[-1]
    if isinstance(last, keras.layers.Softmax) or (
        getattr(last, "activation", None) is keras.activations.softmax
    ):
        raise InputError(
            f"model={name!r} ends with softmax, but the loss takes logits; end with "
            f"Dense({classes}) without activation"
        )


def _shorten(error: Exception) -> str:
    """Return an error's text in one line, without the colors of Keras, up to 300 characters."""
    text = re.sub(r"\x1b\[\d*m", "", str(error)) or type(error).__name__
    return one_line(text)[:300].rstrip(".")


def _parse_signature(name: str) -> tuple[dict[str, Any], set[str], bool]:
    """Return the options' types, the names of those without a default, and whether it trains."""
    file = find_module_file("model", name)
    function = name.partition(":")[2]
    try:
        body = ast.parse(storage.read(file)).body
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"model={name!r}: {file} can't be read: {error}") from None
    functions = {node.name: node.args for node in body if isinstance(node, ast.FunctionDef)}
    if function not in functions:
        hint = suggest(function, functions) if functions else ""
        raise InputError(f"model={name!r}: {file} defines no function {function!r}{hint}")
    arguments = functions[function]
    signature = f"model={name!r}: {function}()"
    positional = [*arguments.posonlyargs, *arguments.args]
    if not positional or arguments.vararg or arguments.kwarg:
        raise InputError(
            f"{signature} must take the dataset and then options by name; write def {function}"
            "(dataset, *, units: int = 64)"
        )
    required_count = len(positional) - len(arguments.defaults)
    defaults = [*[None] * required_count, *arguments.defaults, *arguments.kw_defaults]
    members, required = {}, set()
    with_defaults = [*zip([*positional, *arguments.kwonlyargs], defaults, strict=True)]
    trains = [argument.arg for argument in positional[1:2]] == ["directory"]
    for argument, default in with_defaults[2 if trains else 1 :]:
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        if annotation not in _TYPES:
            raise InputError(
                f"{signature}: option {argument.arg!r} has the type {annotation or 'none'}; "
                f"annotate it with one of {', '.join(_TYPES)}"
            )
        members[argument.arg] = _TYPES[annotation]
        if default is None:
            required.add(argument.arg)
    return members, required, trains
