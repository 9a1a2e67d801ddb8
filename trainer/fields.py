"""Configuration as data: dataclasses whose fields carry help, choices and bounds.

A synopsis:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        epochs: int = option(10, help="Passes over the training split.", minimum=1)

    build(Options, {"epochs": "3"})  # Options(epochs=3)
    build(Options, {"epoch": 3})     # InputError: unknown parameter 'epoch' ... 'epochs'?

Values may arrive as text (a command line), as floats where integers are meant
(KFP passes every number in a list or a struct as a double), or as JSON text for
lists and dictionaries; `convert` brings each to its field's type or raises.
"""

import dataclasses
import difflib
import json
import math
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args, get_type_hints

from trainer.errors import InputError

T = TypeVar("T")

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def option(
    default: Any,
    *,
    help: str,
    choices: Iterable[Any] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """Returns a dataclass field that knows its help text and its admissible values.

    `minimum` and `maximum` are inclusive, `above` and `below` exclusive. Choices and bounds are
    added to the help text.
    """
    metadata: dict[str, Any] = {
        "choices": tuple(choices),
        "minimum": minimum,
        "maximum": maximum,
        "above": above,
        "below": below,
    }
    metadata["help"] = f"{help}{_admissible(help, metadata, isinstance(default, list))}"
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _admissible(text: str, metadata: Mapping[str, Any], several: bool) -> str:
    """Returns a sentence on the choices and one on the bounds, unless `text` names the choices."""
    choices = [str(choice) for choice in metadata["choices"] if choice != ""]
    if set(choices) <= set(re.findall(r"\w+", text)):
        choices = []
    listed = f" {'Any' if several else 'One'} of {', '.join(choices)}." if choices else ""
    bounds = [
        f"{words} {metadata[name]}"
        for name, (_, words) in _BOUNDS.items()
        if metadata[name] is not None
    ]
    if bounds == ["at least 0"]:
        bounds = []
    return f"{listed} {', '.join(bounds).capitalize()}." if bounds else listed


def default_of(field: dataclasses.Field) -> Any:
    """The value that a field has when nobody sets it."""
    if field.default is not dataclasses.MISSING:
        return field.default
    assert field.default_factory is not dataclasses.MISSING
    return field.default_factory()


def type_of(cls: type, name: str) -> type:
    """The plain Python type (str, int, float, bool, list or dict) of field `name`."""
    hint = get_type_hints(cls)[name]
    return getattr(hint, "__origin__", hint)


def nearest(name: str, known: Iterable[str]) -> str:
    """A `; did you mean 'x'?` for the closest of `known`, or the whole list if none is close.

    Upper and lower case are one.
    """
    known = list(known)
    lowered = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    # The last part is what such a name is called by: T4 of NVIDIA_TESLA_T4.
    part = [one for one in lowered if name and name.lower() in re.split("[_-]", one)]
    if close or part:
        return f"; did you mean {lowered[(close or sorted(part, key=len))[0]]!r}?"
    return f"; known: {', '.join(sorted(known))}"


def convert(name: str, value: Any, kind: type) -> Any:
    """Brings `value` to `kind`, or raises InputError naming `name`, the value and the type."""
    try:
        return _CONVERTERS[kind](value)
    except RecursionError:
        raise InputError(f"{name} is nested too deeply to be read; use fewer levels") from None
    except (ValueError, TypeError, OverflowError) as error:
        if kind is int and isinstance(error, OverflowError):
            raise InputError(
                f"{name}={value!r} is out of range: it must be at most {_LARGEST}"
            ) from None
        expected = _NAMES[kind]
        raise InputError(f"{name}={value!r} is not {expected}") from None


def check(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    """Raises InputError where `value` is not one of the choices or is out of bounds."""
    choices = metadata.get("choices", ())
    for item in value if isinstance(value, list) else [value]:
        if choices and item not in choices:
            listed = ", ".join(map(repr, choices))
            hint = nearest(item, choices) if isinstance(item, str) else ""
            suffix = hint if "did you mean" in hint else ""
            raise InputError(f"{name}={item!r} is not one of {listed}{suffix}")
        if not isinstance(item, (int, float)) or isinstance(item, bool):
            continue
        for bound, (holds, words) in _BOUNDS.items():
            limit = metadata.get(bound)
            if limit is not None and not holds(item, limit):
                raise InputError(f"{name}={item!r} is out of range: it must be {words} {limit}")


def build(cls: type[T], values: Mapping[str, Any], *, taker: str = "") -> T:
    """Builds dataclass `cls` from `values`, every one converted and checked.

    Args:
        taker: whom the values are for, in the message on an unknown name; empty: the user's
            parameters.

    Raises:
        InputError: an unknown name (the nearest known one is named), a value of the wrong
            type, or one that is out of range.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            unknown = f"{taker} takes no {name!r}" if taker else f"unknown parameter {name!r}"
            raise InputError(unknown + (nearest(name, fields) if fields else ": it has no options"))
    hints = get_type_hints(cls)
    checked = {}
    for name, value in values.items():
        checked[name] = convert(name, value, type_of(cls, name))
        if isinstance(checked[name], list):
            (item_type,) = get_args(hints[name])
            checked[name] = [convert(name, item, item_type) for item in checked[name]]
        check(name, checked[name], fields[name].metadata)
    return cls(**checked)


def pick(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `values` that are fields of dataclass `cls`."""
    names = {field.name for field in dataclasses.fields(cls)}
    return {name: value for name, value in values.items() if name in names}


def _to_int(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError
    number = float(value)
    if not number.is_integer():
        raise ValueError
    # Not by way of `number`, which a large value rounds to.
    given = isinstance(value, str) and not value.strip("+-").isdigit()
    whole = int(number) if given else int(value)
    if abs(whole) > _LARGEST:
        raise OverflowError
    return whole


def _to_float(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError


def _to_str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _json_of(kind: type) -> Any:
    def parse(value: Any) -> Any:
        parsed = json.loads(value) if isinstance(value, str) else value
        if isinstance(parsed, tuple):
            parsed = list(parsed)
        if not isinstance(parsed, kind):
            raise ValueError
        return parsed

    return parse


# KFP carries numbers as doubles, which hold whole numbers up to here.
_LARGEST = 2**53
_BOUNDS = {
    "minimum": (operator.ge, "at least"),
    "maximum": (operator.le, "at most"),
    "above": (operator.gt, "above"),
    "below": (operator.lt, "below"),
}
_CONVERTERS: dict[type, Any] = {
    int: _to_int,
    float: _to_float,
    bool: _to_bool,
    str: _to_str,
    list: _json_of(list),
    dict: _json_of(dict),
}
_NAMES = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "text",
    list: 'a JSON list, such as [0.8, 0.1, 0.1] or ["a", "b"]',
    dict: 'a JSON object, such as {"name": 1}',
}
