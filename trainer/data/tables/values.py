"""The forms of a value in files and requests: a boolean, a date, a number, a missing value, a list.

Records, requests and the SavedModel share them, so that a row means the same wherever it is read.
"""

import re
from collections.abc import Sequence
from typing import Any

from trainer.data.schema import Feature
from trainer.data.tables.columns import FORM_KEYS, Column, clean_text
from trainer.data.tables.number_forms import BOOLEAN_WORDS, BOOLEANS, FORMATS

_LIST = re.compile(r"[\[({](.*)[\])}]", re.DOTALL)
_ITEM = re.compile(
    r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s,'"\[\](){}][^,'"\[\](){}]*))"""
    r"""(?:\s*(?:,|$)|\s+(?=['"]))""",
    re.DOTALL,
)
_NUMBERS = re.compile(r"[-+.\d]\S*(?:\s+[-+.\d]\S*)+")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def parse_list(text: str) -> list[str]:
    """Return the items of a list as JSON, Python or NumPy write it: ["a", "b"], (1, 2), ['a' 'b'].

    Nothing is evaluated. Empty text is an empty list; raise ValueError for other text, and for a
    list inside the list.
    """
    if not text:
        return []
    match = _LIST.fullmatch(text)
    if not match:
        raise ValueError
    items: list[str] = []
    place, inside = 0, match[1].strip()
    while place < len(inside):
        item = _ITEM.match(inside, place)
        if not item:
            raise ValueError
        quoted = next((part for part in item.groups()[:2] if part is not None), None)
        text = item[3] if quoted is None else _unescape(quoted)
        items += text.split() if quoted is None and _NUMBERS.fullmatch(text) else [text.strip()]
        place = item.end()
    return items


def _unescape(quoted: str) -> str:
    """Return the text of a string of JSON or Python without its escapes."""

    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPES.get(escape, escape)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", replace, quoted, flags=re.DOTALL)


def list_boolean_forms(values: Sequence[str]) -> dict[str, str]:
    """Return the value of a vocabulary that each form of a boolean stands for.

    Forms are true, t and 1, false, f and 0, in lower, upper and title case. Empty unless the values
    are booleans, each of them once.
    """
    by_meaning = {BOOLEANS.get(value.lower()): value for value in values}
    if None in by_meaning or len(by_meaning) < len(values):
        return {}
    return {
        form: by_meaning[meaning]
        for word, meaning in BOOLEANS.items()
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
            and all(value.lower() in BOOLEAN_WORDS for value in values)
            and feature.statistics.get("distinct", 0) <= len(values)
        )
        column = Column(
            name=feature.name,
            type=feature.kind,
            **{key: feature.settings[key] for key in FORM_KEYS if key in feature.settings},
        )
        self._dates = column.date_form if feature.kind == "date" else None
        self._numbers = column.number_form if column.is_number and not self._dates else None
        if self._numbers and self._numbers.is_plain:
            self._numbers = None
        self.is_plain = not (self._missing or self._booleans or self._dates or self._numbers)
        self.expected = "a date, such as 2024-03-01" if self._dates else "true or false"
        if self._numbers:
            self.expected = f"a number in the form {column.format or FORMATS[0]}"

    def read(self, value: Any) -> Any:
        """Return a value as it is in training, None if it stands for a missing value.

        Raise ValueError if it is not in the column's form, or not a boolean in a column of nothing
        else.
        """
        text = clean_text(str(value))
        if text in self._missing:
            return None
        if self._dates:
            return self._dates.parse(text) if text else None
        if self._numbers:  # A number of JSON needs no form.
            return self._numbers.parse(value.strip()) if isinstance(value, str) else value
        if self._only_booleans and text and text not in self._booleans:
            raise ValueError
        return self._booleans.get(text, value)
