"""Read users' TOML files, whose errors name the line and its remedy."""

import re
import tomllib
from typing import Any

from vertex.errors import InputError

_REMEDIES = {
    "Cannot (overwrite|declare|mutate)": "the name is given twice; keep one of the two",
    r"Illegal character '\\[nr]'|Unterminated string|Expected \"'\"": "close the text with a quote",
    "Invalid hex value|Unescaped|Invalid escape|not a valid Unicode": (
        "write each backslash twice, or put the text into single quotes"
    ),
    "Illegal|Found invalid": "remove the control character",
    "Invalid initial character for a key part": (
        "write { } on one line, without a comma before the }, and a name after each dot"
    ),
    "Unclosed inline table": "separate entries by commas, and close the table with }",
    "Unclosed array": "separate values by commas, and close the list with ]",
    "Invalid value": "put texts into quotes; write true, false, and 0.5 instead of .5",
    "Expected newline": "write one value a line, texts in quotes, numbers as 1000 and 0.9",
}
"""Remedies, by a pattern of tomllib's message."""


def parse_toml(content: bytes, origin: str) -> dict[str, Any]:
    """Parse a user's TOML; raise InputError with the line that is wrong and its remedy."""
    try:
        text = content.decode("utf-8-sig")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(
            f"{origin}, line {line}, is not in UTF-8; save the file as UTF-8"
        ) from None
    except RecursionError:
        raise InputError(f"{origin} has lists or tables nested too deeply; nest fewer") from None
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        lines = text.splitlines()
        place = re.search(r"at line (\d+)", message)
        number = int(place[1]) if place else len(lines)
        matching = (remedy for name, remedy in _REMEDIES.items() if re.match(name, message))
        remedy = next(matching, "write NAME = VALUE, or [TABLE]")
        raise InputError(
            f"{origin}, line {number}: {lines[number - 1].strip()[:80]!r} can't be read; {remedy}"
        ) from None
