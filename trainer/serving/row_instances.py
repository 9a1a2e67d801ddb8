"""Instances of a model of tables: rows as objects or lists, or tf.Examples.

{"miles": 3.5, "payment": "card", "key": 7}       columns by name; a column that is absent or
                                                  null is a missing value
[3.5, "card", ...]                                all columns in the order of the records, as batch
                                                  prediction sends the rows of a CSV file
{"b64": "..."}                                    a serialized tf.Example
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainer.data.tables.inputs import MISSING, argument_name
from trainer.fields import nearest
from trainer.serving.instances import (
    DEFAULT,
    EXAMPLES,
    KEY,
    BadInstancesError,
    InstanceError,
    Part,
    Request,
    decoded,
    features_of,
    key_of,
    shown,
)

_MAX_FLOAT = float(np.finfo(np.float32).max)
_MAX_WHOLE = 2.0**53
"""JSON numbers represent larger whole numbers inexactly."""


class RowInstances:
    """Parse the instances of a request to a model of tables.

    Args:
        columns: the type (float32, int64 or string) of each argument of serving_default.
        order: the arguments in the order of a row given as a list; empty if unknown.
    """

    def __init__(self, columns: Mapping[str, str], order: Sequence[str] = ()) -> None:
        self._columns, self._order = dict(columns), list(order)
        self._has_keys = KEY not in self._columns
        self._argument = functools.lru_cache(maxsize=1024)(self._argument_of)

    def parse(self, instances: list[Any]) -> Request:
        """Group instances by the signature that answers them.

        Raises:
            BadInstancesError: some instances can't be used.
        """
        keys: list[Any] = [None] * len(instances)
        rows: dict[int, dict[str, Any]] = {}
        examples: dict[int, bytes] = {}
        problems: dict[int, str] = {}
        for place, instance in enumerate(instances):
            try:
                if self._has_keys and isinstance(instance, dict):
                    keys[place] = key_of(instance)
                if self._is_example(instance):
                    examples[place] = _example(instance["b64"])
                else:
                    rows[place] = self._row(instance)
            except InstanceError as error:
                problems[place] = str(error)
        inputs = {
            name: _array(name, kind, [row.get(name) for row in rows.values()], list(rows), problems)
            for name, kind in self._columns.items()
        }
        if problems:
            raise BadInstancesError(problems, keys)
        parts = [Part(DEFAULT, list(rows), inputs)] if rows else []
        if examples:
            values = np.array(list(examples.values()), object)
            parts.append(Part(EXAMPLES, list(examples), {"examples": values}))
        return Request(keys, parts)

    def blank(self) -> list[Any]:
        """Return an instance to warm a model up with."""
        return [dict.fromkeys(self._columns)]

    def _is_example(self, instance: Any) -> bool:
        if not isinstance(instance, dict) or "b64" in self._columns:
            return False
        return "b64" in instance and instance.keys() <= {"b64", KEY}

    def _row(self, instance: Any) -> dict[str, Any]:
        """Return a row by argument name, without its key."""
        if isinstance(instance, list) and len(instance) == len(self._order):
            return dict(zip(self._order, instance, strict=True))
        if not isinstance(instance, dict):
            ordered = f", or a list of {', '.join(self._order)}" if self._order else ""
            raise InstanceError(
                f"is {shown(instance)}; a row is an object with columns by their names{ordered}"
            )
        if instance and instance.keys() <= self._columns.keys():
            return instance
        columns = [name for name in instance if name != KEY or not self._has_keys]
        if not columns:
            raise InstanceError(f"has none of the columns {', '.join(self._columns)}")
        return {self._argument(name): instance[name] for name in columns}

    def _argument_of(self, name: str) -> str:
        """Return the model's argument for a column; raises InstanceError if there is none."""
        argument = name if name in self._columns else name and argument_name(name)
        if argument not in self._columns:
            hint = nearest(name[:100], self._columns)
            raise InstanceError(f"has a column {shown(name)} that the model does not take{hint}")
        return argument


def _example(text: Any) -> bytes:
    content = decoded({"b64": text})
    if not features_of(content):
        raise InstanceError("is not a serialized tf.Example")
    return content


def _array(
    name: str, kind: str, values: list[Any], places: list[int], problems: dict[int, str]
) -> np.ndarray:
    """Convert a column's values to the model's type, [n].

    Args:
        values: None for a missing value.
        places: the indices of the values' instances.
        problems: receives a message for each value that can't be used.
    """
    if kind == "string":
        return _texts(name, values, places, problems)
    found = _numbers(name, values, places, problems)
    if kind == "float32":
        return found.astype(np.float32)
    whole = np.where(np.isnan(found), float(MISSING[kind]), found)
    for index in np.flatnonzero((whole != np.floor(whole)) | (abs(whole) > _MAX_WHOLE)):
        problems.setdefault(places[index], f"{name} is not a whole number: {shown(values[index])}")
        whole[index] = MISSING[kind]
    return whole.astype(np.int64)


def _numbers(
    name: str, values: list[Any], places: list[int], problems: dict[int, str]
) -> np.ndarray:
    """Convert numbers and their text forms to float64 [n]; a missing value is NaN."""
    try:
        numbers = np.array(values, np.float64)
        if numbers.ndim == 1 and not (np.abs(numbers) > _MAX_FLOAT).any():
            return numbers
    except (ValueError, TypeError, OverflowError):
        pass
    numbers = np.full(len(values), math.nan)
    for index, value in enumerate(values):
        try:
            if value is not None and (not isinstance(value, str) or value.strip()):
                numbers[index] = float(value)
            if abs(numbers[index]) > _MAX_FLOAT:
                raise ValueError
        except (ValueError, TypeError, OverflowError):
            problems.setdefault(places[index], f"{name} is not a number: {shown(value)}")
            numbers[index] = math.nan
    return numbers


def _texts(name: str, values: list[Any], places: list[int], problems: dict[int, str]) -> np.ndarray:
    """Encode texts as bytes [n]; a missing value is b""."""
    texts = np.full(len(values), b"", object)
    for index, value in enumerate(values):
        # Batch jobs read unquoted numbers as floats: 17 in a CSV file arrives as 17.0.
        if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_WHOLE:
            value = int(value)
        try:
            if isinstance(value, (bool, list, dict)):
                raise ValueError
            texts[index] = b"" if value is None else str(value).encode()
        except ValueError:  # Includes UnicodeEncodeError.
            problems.setdefault(places[index], f"{name} is not text: {shown(value)}")
    return texts
