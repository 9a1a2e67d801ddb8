"""The dialect of a table's files: how their characters, fields and rows are written.

    dialect = { encoding = "cp949", delimiter = ";", footer_rows = 1 }

Without the option, a CSV file is in UTF-8, with commas and double quotes (RFC 4180).
"""

from __future__ import annotations

import codecs
import dataclasses
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from trainer import fields
from trainer.fields import option
from vertex.errors import InputError, located

_NAMES = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "pipes"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dialect:
    """The encoding and punctuation of the files of a table; the defaults are those of RFC 4180."""

    encoding: str = option(
        "utf-8", help="Encoding of the characters, by Python's name, such as cp1252 or utf-16."
    )
    delimiter: str = option(",", help="Character between fields, one of ASCII.")
    quote: str = option(
        '"', choices=('"', "'", ""), help="Character around fields; none if they are never quoted."
    )
    escape: str = option(
        "", choices=("", "\\"), help="Character that makes the next quote or delimiter plain text."
    )
    skip_initial_space: bool = option(False, help="Ignore blanks after a delimiter.")
    line_end: str = option(
        "\n", choices=("\n", "\r"), help="End of a line: LF or CRLF, or CR alone."
    )
    skip_rows: int = option(
        0, help="Number of lines above the header, such as a title.", minimum=0, maximum=1000
    )
    footer_rows: int = option(
        0,
        help="Number of rows at the end that are no examples, such as a total; empty lines do not "
        "count.",
        minimum=0,
        maximum=1000,
    )
    sheet: str = option("", help="Name of an Excel workbook's sheet; default: the first.")

    def __post_init__(self) -> None:
        try:
            # Some, such as idna, can't pass over bytes that they don't have.
            b"a,\xff\xff".decode(self.encoding, "replace")
            known = "a,".encode(self.encoding).decode(self.encoding) == "a,"
        except (LookupError, UnicodeError, ValueError):
            known = False
        if not known:
            raise InputError(
                f"encoding={self.encoding!r} is not an encoding of text; use a name that Python "
                "knows, such as utf-8, utf-16, cp1252, cp949 or gb18030"
            )
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter.isalnum():
            raise InputError(
                f"delimiter={self.delimiter!r} is not one sign of ASCII; use one, such as "
                '"," ";" "\\t" or "|"'
            )
        if self.delimiter in (self.quote, self.escape, "\n", "\r"):
            raise InputError(
                f"delimiter={self.delimiter!r} is also the quote, the escape or a line end"
            )

    @property
    def is_utf8(self) -> bool:
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig", "ascii")

    @property
    def settings(self) -> dict[str, Any]:
        """Return the fields that differ from the defaults, as a recipe has them."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value != getattr(PLAIN, name)}

    def __str__(self) -> str:
        """Return the settings as a recipe has them: { delimiter = ";" }."""
        # Strings, numbers and booleans are written in TOML as in JSON.
        named = [f"{key} = {json.dumps(value)}" for key, value in self.settings.items()]
        return f"{{ {', '.join(named)} }}" if named else "{}"

    def describe(self) -> str:
        """Return in words how fields and lines differ from the defaults."""
        delimiter = _NAMES.get(self.delimiter, repr(self.delimiter))
        words = {
            "delimiter": f"fields are separated by {delimiter}",
            "quote": f"fields are {f'quoted by {self.quote}' if self.quote else 'never quoted'}",
            "escape": "backslashes escape quotes",
            "skip_initial_space": "there are blanks before quotes",
            "line_end": "lines end in CR",
            "skip_rows": f"the header is on line {self.skip_rows + 1}",
        }
        return ", ".join(words[name] for name in self.settings if name in words)


PLAIN = Dialect()


class Sniffed(NamedTuple):
    """A table's dialect, and a line for each thing that a person should know about it."""

    dialect: Dialect
    notes: list[str]


def parse_dialect(entry: Mapping[str, Any]) -> Dialect:
    """Check the option `dialect`, and return it; an InputError names the key and what is wrong."""
    with located("dialect"):
        return fields.build(Dialect, entry, owner="it")
