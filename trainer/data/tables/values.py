"""The forms of a value in files and requests: a number, a boolean, a missing value.

Records, requests and the SavedModel share them, so that a row means the same wherever it is read.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from trainer.data.schema import Feature
from trainer.data.tables.columns import clean_text
from trainer.data.tables.dates import clean_date

MAX_FLOAT = float(np.finfo(np.float32).max)
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_WORDS = ("true", "false")
"""Booleans of Parquet, BigQuery and JSON as text."""


def parse_number(text: str) -> float:
    """Return text as a number; empty text and "nan" are NaN, "true" and "false" are 1 and 0.

    Otherwise as Python's float does, but without underscores. Raise ValueError for text that is not
    a number, or a number that is too large for a float32.
    """
    text = text.strip()
    if text.lower() in _WORDS:
        return float(_BOOLEANS[text.lower()])
    number = float(text) if text else math.nan
    if "_" in text or abs(number) > MAX_FLOAT:
        raise ValueError
    return number


def list_boolean_forms(values: Sequence[str]) -> dict[str, str]:
    """Return the value of a vocabulary that each form of a boolean stands for.

    Forms are true, t and 1, false, f and 0, in lower, upper and title case. Empty unless the values
    are booleans, each of them once.
    """
    by_meaning = {_BOOLEANS.get(value.lower()): value for value in values}
    if None in by_meaning or len(by_meaning) < len(values):
        return {}
    return {
        form: by_meaning[meaning]
        for word, meaning in _BOOLEANS.items()
        if meaning in by_meaning
        for form in (word, word.upper(), word.title())
    }


class ValueForms:
    """The forms in which requests write the values of a column.

    Args:
        feature: the column as in the dataset.json of the training data.
    """

    def __init__(self, feature: Feature) -> None:
        values = feature.settings.get("values", ())
        self._missing = frozenset(feature.settings.get("missing", ()))
        self._booleans = list_boolean_forms(values)
        # Numbers such as 0 and 1 may have other, rarer values beside them.
        self._only_booleans = (
            bool(self._booleans)
            and all(value.lower() in _WORDS for value in values)
            and feature.statistics.get("distinct", 0) <= len(values)
        )
        self._is_date = feature.kind == "date"
        self.is_plain = not (self._missing or self._booleans or self._is_date)
        self.expected = "a date, such as 2024-03-01" if self._is_date else "true or false"

    def read(self, value: Any) -> Any:
        """Return a value as it is in training, None if it stands for a missing value.

        Raise ValueError if it is no date, or not a boolean in a column of nothing else.
        """
        text = clean_text(str(value))
        if text in self._missing:
            return None
        if self._is_date:
            return clean_date(text) if text else None
        if self._only_booleans and text and text not in self._booleans:
            raise ValueError
        return self._booleans.get(text, value)
