"""Parse instances for a model of tables: rows as objects or lists, or tf.Examples.

{"miles": 3.5, "payment": "card", "key": 7}       columns by name; if a column is absent or null,
                                                  its value is missing
[3.5, "card", ...]                                all columns in the order of the records, as batch
                                                  prediction sends the rows of a CSV file
{"b64": "..."}                                    a serialized tf.Example
"""

import contextlib
import functools
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.data.schema import Feature
from trainer.data.tables.columns import FEATURES, argument_names
from trainer.data.tables.inputs import MISSING
from trainer.data.tables.number_forms import MAX_FLOAT, parse_number
from trainer.data.tables.values import ValueForms
from trainer.serving.instances import (
    DEFAULT,
    EXAMPLES,
    KEY,
    BadInstancesError,
    InstanceError,
    Request,
    SignatureInstances,
    decode_base64,
    format_value,
    group_instances,
    parse_features,
)
from vertex.formats import listing, suggest

_TYPE_NAMES = {"float32": "a number", "int64": "a whole number", "string": "text"}
_MAX_WHOLE = 2.0**53
"""Larger whole numbers are inexact as JSON numbers."""
_INVISIBLE = ("Cc", "Cf", "Zl", "Zp", "Zs")
"""Categories of characters that only separate words: controls, formats, spaces."""


class RowInstances:
    """Parse the instances of a request to a model of tables.

    Args:
        columns: type (float32, int64 or string) of each argument of serving_default.
        features: the columns that the model was trained on, in the order of the values of a row
            that is a list.
    """

    def __init__(self, columns: Mapping[str, str], features: Sequence[Feature]) -> None:
        self._columns = dict(columns)
        self._arguments = argument_names(feature.name for feature in features)
        self._names = {argument: name for name, argument in self._arguments.items()}
        forms = {self._arguments[feature.name]: ValueForms(feature) for feature in features}
        self._forms = {name: one for name, one in forms.items() if not one.is_plain}
        # An argument is never the name of another column.
        self._known = {*self._columns, *self._arguments}
        self._has_keys = KEY not in self._known
        self._argument = functools.lru_cache(maxsize=1024)(self._argument_of)

    def parse(self, instances: list[Any]) -> Request:
        """Convert instances to arrays; see `group_instances`."""
        return group_instances(
            instances, self._parse_instance, self._build_inputs, has_keys=self._has_keys
        )

    def make_blank(self) -> Request:
        """Return a row without values, to warm up the model."""
        return self.parse([dict.fromkeys(self._columns)])

    def check_values(self, request: Request) -> None:
        """Raise BadInstancesError for rows without any value, which no model can tell apart."""
        problems = {
            index: "has no value: each of its columns is missing"
            for part in request.parts
            for index, row in zip(part.indices, _list_rows(part), strict=True)
            if row and all(map(_is_missing, row))
        }
        if problems:
            raise BadInstancesError(problems, request.keys)

    def _parse_instance(self, instance: Any) -> tuple[str, Any]:
        b64 = isinstance(instance, dict) and "b64" in instance and "b64" not in self._known
        if not b64 or not instance.keys() <= {"b64", KEY}:
            return DEFAULT, self._parse_row(instance)
        content = decode_base64({"b64": instance["b64"]})
        if not parse_features(content):
            raise InstanceError("is not a serialized tf.Example")
        return EXAMPLES, content

    def _build_inputs(
        self, signature: str, values: dict[int, Any], problems: dict[int, str]
    ) -> dict[str, np.ndarray]:
        if signature == EXAMPLES:
            return {"examples": np.array([*values.values()], object)}
        indices, inputs = list(values), {}
        for name, kind in self._columns.items():
            column = [value.get(name) for value in values.values()]
            read, others, form = column, list[int](), ""
            if forms := self._forms.get(name):
                read, others = _convert_each(forms.read, column, [None] * len(column))
                form = forms.expected
            inputs[name], bad = _convert_column(kind, read)
            for expected, places in ((form, others), (_TYPE_NAMES[kind], bad)):
                for index in places:
                    own = self._names[name]
                    why = f"{own} is not {expected}: {format_value(column[index])}"
                    problems.setdefault(indices[index], why)
        return inputs

    def _parse_row(self, instance: Any) -> dict[str, Any]:
        """Return a row by argument name, without its key."""
        if isinstance(instance, list) and len(instance) == len(self._arguments):
            return dict(zip(self._names, instance, strict=True))
        if not isinstance(instance, dict):
            raise InstanceError(
                f"is {format_value(instance)}; a row is an object with columns by name, or a list "
                f"of {', '.join(self._arguments)}"
            )
        if instance and instance.keys() <= self._columns.keys():
            return instance
        columns = [name for name in instance if name != KEY or not self._has_keys]
        if not columns:
            raise InstanceError(f"has none of the columns {listing(self._arguments)}")
        row = {self._argument(name): instance[name] for name in columns}
        if len(row) < len(columns):
            names = {self._argument(name): name for name in columns}
            second = next(name for name in columns if names[self._argument(name)] != name)
            raise InstanceError(
                f"has the same column twice, as {format_value(second)} and as "
                f"{format_value(names[self._argument(second)])}"
            )
        return row

    def _argument_of(self, name: str) -> str:
        """Return the model's argument for a column; raise InstanceError if there is none."""
        if name in self._columns:
            return name
        if name not in self._arguments:
            hint = suggest(name[:100], self._arguments)
            raise InstanceError(f"has a column {format_value(name)} that the model lacks{hint}")
        return self._arguments[name]


def _convert_column(kind: str, values: list[Any]) -> tuple[np.ndarray, list[int]]:
    """Convert a column's values to the model's type, [n]; None is a missing value.

    Also return the indices of values that can't be used.
    """
    if kind == "string":
        return _convert_each(_to_bytes, values, np.full(len(values), b"", object))
    numbers, bad = _convert_numbers(values)
    if kind == "float32":
        return numbers.astype(np.float32), bad
    whole = np.where(np.isnan(numbers), float(MISSING[kind]), numbers)
    is_bad = (whole != np.floor(whole)) | (abs(whole) > _MAX_WHOLE)
    whole[is_bad] = MISSING[kind]
    return whole.astype(np.int64), [*bad, *np.flatnonzero(is_bad)]


def _convert_numbers(values: list[Any]) -> tuple[np.ndarray, list[int]]:
    """Convert numbers, and numbers as text, to float64; missing values become NaN."""
    # NumPy reads other forms of text as numbers than records do.
    if not any(isinstance(value, str) for value in values):
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            numbers = np.array(values, np.float64)
            if numbers.ndim == 1 and not (np.abs(numbers) > MAX_FLOAT).any():
                return numbers, []
    return _convert_each(_to_number, values, np.full(len(values), math.nan))


def _list_rows(part: SignatureInstances) -> Iterable[Sequence[Any]]:
    """Return the values of each instance; none if a tf.Example is not a record of a table."""
    if part.signature == DEFAULT:
        return zip(*part.inputs.values(), strict=True)
    return map(_list_values, part.inputs["examples"])


def _list_values(example: bytes) -> list[Any]:
    """Return the values of all columns in a record."""
    features = parse_features(example)
    texts, numbers, whole = (features[name] for name in FEATURES.values())
    return [
        *texts.bytes_list.value,
        *numbers.float_list.value,
        *(value or math.nan for value in whole.int64_list.value),  # 0 is missing.
    ]


def _is_missing(value: Any) -> bool:
    """Return True for what stands for a missing value, and for text without any visible one."""
    if isinstance(value, bytes):
        text = value.decode(errors="replace")
        return all(unicodedata.category(character) in _INVISIBLE for character in text)
    return bool(np.isnan(value) or (isinstance(value, np.integer) and value == MISSING["int64"]))


def _convert_each(
    convert: Callable[[Any], Any], values: list[Any], converted: Any
) -> tuple[Any, list[int]]:
    """Convert values that are not missing, one by one; also return the indices of failures."""
    bad = []
    for index, value in enumerate(values):
        try:
            if value is not None:
                converted[index] = convert(value)
        except (ValueError, TypeError, OverflowError):  # ValueError: also UnicodeEncodeError.
            bad.append(index)
    return converted, bad


def _to_number(value: Any) -> float:
    number = parse_number(value) if isinstance(value, str) else float(value)
    if abs(number) > MAX_FLOAT:
        raise ValueError
    return number


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, (bool, list, dict)):
        raise ValueError
    # Batch jobs read unquoted numbers as floats: 17 in a CSV file arrives as 17.0.
    if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_WHOLE:
        value = int(value)
    return unicodedata.normalize("NFC", str(value)).encode()
