"""Recognize files that a reader of tables was given by mistake, by their first bytes."""

import re

from vertex.errors import InputError

HEAD_BYTES = 512
"""Number of first bytes that tell a file's format."""
_EXTRACT = "extract the table from it"
_FORMATS = (
    # CSV text may begin with PAR1, but has no control character there.
    (rb"PAR1[\0-\x08\x0e-\x1f]", "a Parquet file", "use parquet:{uri}"),
    (rb"PK\x03\x04(.{26}\[Content_Types\]|.*xl/)", "an Excel workbook", "use excel:{uri}"),
    (rb"PK\x03\x04", "a ZIP archive", f"{_EXTRACT}, or use csv:{{uri}} if it contains CSV"),
    (rb"\xd0\xcf\x11\xe0", "an Excel workbook", "use excel:{uri}"),
    (rb"\xff\xd8\xff|\x89PNG\r\n|GIF8[79]a|RIFF.{4}WEBP", "an image", "use images:FOLDER"),
    (rb".{257}ustar", "a tar archive", _EXTRACT),
    (
        rb"\x1f\x8b|BZh[1-9]1AY|\xfd7zXZ\0|\x28\xb5\x2f\xfd",
        "a compressed file",
        "decompress it, or use csv:{uri} if it contains CSV",
    ),
    (rb"%PDF-", "a PDF", "save its table as CSV in UTF-8"),
    (rb"\s*(<!DOCTYPE html|<html)", "a web page", "download the table itself"),
    (rb'\s*(\{\s*"[^"\n]*"\s*:|\[\s*\{)', "JSON", "use jsonl:{uri} if each line is an object"),
)


def check_format(uri: str, head: bytes, reader: str = "csv") -> None:
    """Raise InputError if a file's first bytes are those of a format that a reader does not read.

    Args:
        reader: the kind of source that reads the file.
    """
    for pattern, name, remedy in _FORMATS:
        if f"use {reader}:" in remedy:
            continue
        if re.match(pattern, head, re.DOTALL | re.IGNORECASE):
            raise InputError(f"{uri} is {name}; {remedy.format(uri=uri)}")
