"""JSON objects with a checksum of their content.

    text = json.dumps(with_checksum({"epochs": 3}))
    parse(text)  # {"epochs": 3}

So readers recognize a file of which a bit has flipped, even where it is still JSON.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_FIELD, _FORMAT = "sha256", "file_format"
"""Fields: the checksum, and a number, which objects of format 1 lack; those of 0 lack both."""


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON-serializable object with the SHA-256 of its other fields as a last field."""
    content = json.loads(json.dumps(content))  # as a reader gets it: names are strings
    return {**content, _FIELD: digest(content)}


def parse(text: str | bytes) -> dict[str, Any]:
    """Return an object without its checksum; raise ValueError if it is damaged or another's."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    if (found := content.get(_FORMAT, 1 if _FIELD in content else 0)) != 1:
        raise ValueError(f"its format is {found}, not 1: another version of this project wrote it")
    if content.pop(_FIELD, "") != digest(content):
        raise ValueError(f"its {_FIELD} does not match")
    return content


def digest(content: Any) -> str:
    """Return the SHA-256 of JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
