"""JSON objects with a checksum of their content.

    text = json.dumps(with_checksum({"epochs": 3}))
    parse(text)  # {"epochs": 3}

So readers recognize a file of which a bit has flipped, even where it is still JSON.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_FIELD = "sha256"


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON-serializable object with the SHA-256 of its other fields as a last field."""
    content = json.loads(json.dumps(content))  # as a reader gets it: names are strings
    return {**content, _FIELD: _digest(content)}


def parse(text: str | bytes) -> dict[str, Any]:
    """Return an object without its checksum; raise ValueError if the text is damaged.

    An object without a checksum is accepted: earlier versions of this project wrote none.
    """
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    if content.pop(_FIELD, None) not in (None, _digest(content)):
        raise ValueError(f"its {_FIELD} does not match; after an edit, remove that field")
    return content


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
