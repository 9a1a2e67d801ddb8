"""Options: dataclasses whose fields declare help, choices and bounds, checked by pydantic-core.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        epochs: int = option(10, help="Passes over the training split.", minimum=1)

    build(Options, {"epochs": "3"})  # Options(epochs=3)
    build(Options, {"epoch": 3})     # InputError: unknown parameter 'epoch' ... 'epochs'?

Values may be text (from a command line), floats instead of integers (KFP passes every number in a
list or a struct as a double), or JSON text for lists and dictionaries.

Every process of a run reads options at startup, so this module calls pydantic-core directly:
importing pydantic and building a TypeAdapter for each field would add a tenth of a second.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import re
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from trainer.conditions import Condition
from vertex.errors import InputError
from vertex.formats import suggest

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator
    from pydantic_core.core_schema import CoreSchema

T = TypeVar("T")

# KFP passes numbers as doubles, which represent whole numbers exactly up to this limit.
_MAX_INTEGER = 2**53
# The keys are pydantic's names.
_BOUNDS = {"ge": "at least", "le": "at most", "gt": "above", "lt": "below"}
_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "text",
    list: 'a JSON list, such as [0.8, 0.1, 0.1] or ["a", "b"]',
    dict: 'a JSON object, such as {"name": 1}',
}
_TYPES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def option(
    default: Any,
    *,
    help: str,
    choices: Iterable[Any] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    applies: Condition | Iterable[Condition] = (),
) -> Any:
    """Return a dataclass field with a help text, choices and bounds.

    `minimum` and `maximum` are inclusive, `above` and `below` are exclusive. For a list, bounds and
    choices apply to each item. The option has an effect only if all conditions in `applies` hold.
    Choices, bounds and conditions are added to the help text.
    """
    limits = {"ge": minimum, "le": maximum, "gt": above, "lt": below}
    bounds = {name: value for name, value in limits.items() if value is not None}
    choices = tuple(choices)
    names = [str(choice) for choice in choices if choice != ""]
    if not set(names) <= set(re.findall(r"\w+", help)):
        help += f" {'Any' if isinstance(default, list) else 'One'} of {', '.join(names)}."
    if bounds and bounds != {"ge": 0}:
        words = ", ".join(f"{_BOUNDS[name]} {value}" for name, value in bounds.items())
        help += f" {words.capitalize()}."
    conditions = tuple(applies) if isinstance(applies, Iterable) else (applies,)
    if conditions:
        help += f" Only with {' and '.join(condition.words for condition in conditions)}."
    metadata = {"help": help, "choices": choices, "bounds": bounds, "applies": conditions}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def default_of(field: dataclasses.Field) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    assert field.default_factory is not dataclasses.MISSING
    return field.default_factory()


def type_of(cls: type, name: str) -> type:
    """Return the plain Python type (str, int, float, bool, list or dict) of field `name`."""
    hint = _hints(cls)[name]
    return get_origin(hint) or hint


def convert(name: str, value: Any, kind: Any) -> Any:
    """Convert `value` to the type `kind`; an InputError gives `name`, the value and the type."""
    from pydantic_core import SchemaValidator

    return _validate(name, value, kind, SchemaValidator(_core_schema(kind, (), {})))


def build(cls: Callable[..., T], values: Mapping[str, Any], *, owner: str = "") -> T:
    """Build dataclass `cls` from `values`; raise InputError for an unknown name or a wrong value.

    In the error, `owner` names the object whose options the values are; empty: the parameters.
    """
    known = _fields(cls)
    checked = {}
    for name, value in values.items():
        if name not in known:
            unknown = f"{owner} takes no {name!r}" if owner else f"unknown parameter {name!r}"
            raise InputError(unknown + (suggest(name, known) if known else ": it has no options"))
        checked[name] = _validate(name, value, *_field_validator(cls, name))
    try:
        return cls(**checked)
    except ValueError as error:  # From its own check of the values.
        raise InputError(str(error)) from None


def check_typed(cls: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Raise InputError for text in a field of another type, or a number in a boolean field.

    Unlike a command line, TOML and JSON have types: a quoted value is text.
    """
    for name in _fields(cls).keys() & values.keys():
        kind, value = type_of(cls, name), values[name]  # type: ignore[arg-type]
        is_text = isinstance(value, str)
        if (is_text and kind is not str) or (kind is bool and not isinstance(value, bool)):
            problem = "text" if is_text else "not a boolean"
            quotes = ", without quotes" if is_text else ""
            shown = json.dumps(value, default=str)
            raise InputError(
                f"{name} = {shown} is {problem}; give {_TYPES.get(kind, 'a table')}{quotes}"
            )


def pick(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the items of `values` that are fields of dataclass `cls`."""
    return {name: value for name, value in values.items() if name in _fields(cls)}


def json_schema(cls: type) -> dict[str, Any]:
    """Return the JSON schema of an object with the fields of dataclass `cls`."""
    from pydantic.json_schema import GenerateJsonSchema

    properties = {}
    for name, field in _fields(cls).items():
        default = default_of(field)
        schema = GenerateJsonSchema().generate(_field_schema(cls, name))
        schema["description"] = field.metadata["help"]
        schema["default"] = vars(default) if dataclasses.is_dataclass(default) else default
        properties[name] = schema
    return {"type": "object", "additionalProperties": False, "properties": properties}


@functools.cache
def _fields(cls: Any) -> dict[str, dataclasses.Field]:
    return {field.name: field for field in dataclasses.fields(cls)}


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    optional = {name for name, hint in hints.items() if get_origin(hint) is types.UnionType}
    return hints | {name: get_args(hints[name])[0] for name in optional}


@functools.cache
def _field_validator(cls: Any, name: str) -> tuple[Any, SchemaValidator]:
    from pydantic_core import SchemaValidator

    return _hints(cls)[name], SchemaValidator(_field_schema(cls, name))


def _field_schema(cls: Any, name: str) -> CoreSchema:
    metadata = _fields(cls)[name].metadata
    return _core_schema(_hints(cls)[name], metadata["choices"], metadata["bounds"])


def _core_schema(hint: Any, choices: tuple[Any, ...], bounds: Mapping[str, Any]) -> CoreSchema:
    from pydantic_core import core_schema as core

    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        table = functools.partial(_build_from_table, hint)
        declared = {"pydantic_js_functions": [lambda *_: json_schema(hint)]}
        return core.no_info_plain_validator_function(table, metadata=declared)
    if get_origin(hint) is list:
        items = core.list_schema(_core_schema(get_args(hint)[0], choices, bounds))
        return core.no_info_before_validator_function(_parse_json, items)
    extra = {"pydantic_js_extra": {"enum": list(choices)}} if choices else {}
    whole = {"ge": -_MAX_INTEGER, "le": _MAX_INTEGER} | dict(bounds)
    plain: dict[Any, Callable[..., CoreSchema]] = {
        int: functools.partial(core.int_schema, **whole),
        float: functools.partial(core.float_schema, **bounds, allow_inf_nan=False),
        bool: core.bool_schema,
        str: core.str_schema,
        list: core.list_schema,
        dict: core.dict_schema,
        Any: core.any_schema,
    }
    checks = plain[hint](metadata=extra)
    before = {int: _to_number, float: _to_number, list: _parse_json, dict: _parse_json}.get(hint)
    if before:
        checks = core.no_info_before_validator_function(before, checks)
    if choices:
        check = functools.partial(_check_choice, choices)
        checks = core.no_info_after_validator_function(check, checks)
    return checks


def _validate(name: str, value: Any, hint: Any, validator: SchemaValidator) -> Any:
    from pydantic_core import ValidationError

    try:
        return validator.validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
    except RecursionError:
        raise InputError(f"{name} is nested too deeply to be read; use fewer levels") from None
    except InputError as error:  # From a nested table, whose name is added to the message.
        inner = str(error)
        nested = f"[{name}.{inner[1:]}" if inner.startswith("[") else f"[{name}]: {inner}"
        raise InputError(nested) from None
    kind, context = hint, problem.get("ctx", {})
    if problem["loc"]:
        kind, value = get_args(hint)[0], problem["input"]
    for bound in _BOUNDS.keys() & context.keys():
        limit = context[bound]
        if kind is float or not isinstance(value, str):
            value = kind(value)
        limit = f"{limit:g}" if isinstance(limit, float) else limit
        raise InputError(f"{name}={value} is out of range: it must be {_BOUNDS[bound]} {limit}")
    if choices := context.get("choices"):
        close = suggest(value, choices, "") if isinstance(choices[0], str) else ""
        raise InputError(f"{name}={value!r} is not one of {', '.join(map(repr, choices))}{close}")
    expected = _NAMES.get(get_origin(kind) or kind, _NAMES[dict])
    raise InputError(f"{name}={value!r} is not {expected}")


def _check_choice(choices: tuple[Any, ...], value: Any) -> Any:
    from pydantic_core import PydanticCustomError

    if value not in choices:
        raise PydanticCustomError("choice", "not a choice", {"choices": choices})
    return value


def _build_from_table(cls: Callable[..., Any], value: Any) -> Any:
    """Build a dataclass from a TOML table; dates become text."""
    if not isinstance(value, dict):
        raise ValueError
    dates = {name: day.isoformat() for name, day in value.items() if isinstance(day, datetime.date)}
    check_typed(cls, value | dates)
    return build(cls, value | dates)


def _to_number(value: Any) -> Any:
    """Reject a boolean; convert text such as 1e3, even for whole numbers."""
    if isinstance(value, bool):
        raise ValueError
    is_digits = isinstance(value, str) and value.strip().lstrip("+-").isdigit()
    return float(value) if isinstance(value, str) and not is_digits else value


def _parse_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
