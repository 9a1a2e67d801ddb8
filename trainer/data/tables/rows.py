"""CSV text to rows and fields, in bounded memory: RFC 4180, with UTF-8 and a comma.

A row ends at a line end outside of quotes. A quote that never ends spoils its own line and
not the rest of the file: a row is at most MAX_ROW_BYTES long.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from trainer.data import storage
from trainer.errors import InputError

BLOCK_BYTES = 2 * 10**6
"""Text that is read, and handed to a process, at once: some 10,000 rows."""

MAX_ROW_BYTES = 1 << 17
"""The csv module's own bound of a field."""

_CONVERT = "convert the file, from Latin-1 by iconv -f LATIN1 -t UTF-8 OLD.csv > NEW.csv"

_WHOLE, _OPEN, _BROKEN = "whole", "open", "broken"
_BOM = b"\xef\xbb\xbf"


class BadRowError(Exception):
    """A row can't be used; the message says why."""


class Block(NamedTuple):
    """Whole rows of a file: its index among the files, the number of the first line, the text."""

    file: int
    first_line: int
    text: bytes


def read_header(uri: str) -> list[str]:
    """The names in a file's first row; empty where the file is empty.

    Raises:
        InputError: it can't be read, or its first row is none of text.
    """
    for block in read_blocks(uri, 0, header=True):
        for _, row in rows(block.text):
            try:
                return [name.strip() for name in split(row)]
            except BadRowError as error:
                raise InputError(f"{uri}: its first row, the header, {error}") from None
    return []


def read_blocks(uri: str, file: int, *, header: bool = False) -> Iterator[Block]:
    """The text of a file, gzipped or not, cut between rows, without its header.

    Raises:
        InputError: it is damaged, cut off, or not made of lines.
    """
    carry, line, first = b"", 1, True
    try:
        with _open(uri) as stream:
            while chunk := stream.read(BLOCK_BYTES):
                text = carry + chunk
                if first:
                    text = text.removeprefix(_BOM)
                if first and not header:
                    end = next(row_spans(text), (0, 0))[1]
                    line, text, first = line + text.count(b"\n", 0, end), text[end:], not end
                end = 0 if first and not header else _end_of_rows(text)
                if end:
                    yield Block(file, line, text[:end])
                    line += text.count(b"\n", 0, end)
                carry = text[end:]
                if len(carry) > 4 * BLOCK_BYTES:
                    raise InputError(f"{uri}: no line ends in {len(carry):,} bytes; is it a CSV?")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{uri} is damaged or cut off ({error}); get it again") from None
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{uri} can't be read ({reason}); mend that and run again") from None
    if carry and not (first and not header):
        yield Block(file, line, carry)


def row_spans(text: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of every row of `text` that surely ends in it."""
    start = position = 0
    quoted = b'"' in text
    while (end := text.find(b"\n", position) + 1) > 0:
        state = _WHOLE if position == start else _OPEN
        if quoted and text.find(b'"', position, end) >= 0:
            state = _state(text[start:end])
        if state == _OPEN and end - start <= MAX_ROW_BYTES:
            position = end
            continue
        if state != _WHOLE:
            end = text.find(b"\n", start) + 1
        yield start, end
        start = position = end


def _end_of_rows(text: bytes) -> int:
    """Where the last row of `text` that surely ends in it ends."""
    if b'"' not in text:
        return text.rfind(b"\n") + 1
    return max((end for _, end in row_spans(text)), default=0)


def rows(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Every row that is not empty: (lines before it, its bytes without the line end)."""
    if b'"' not in text:
        for line, row in enumerate(text.split(b"\n")):
            row = row.rstrip(b"\r")
            if row:
                yield line, row
        return
    line = start = 0
    while start < len(text):
        end = start
        for first, stop in row_spans(text[start:]):
            row = text[start + first : start + stop]
            if row.rstrip(b"\r\n"):
                yield line, row.rstrip(b"\r\n")
            line += row.count(b"\n")
            end = start + stop
        if end < len(text):  # The last row, or a quote that never ends: its line alone.
            stop = text.find(b"\n", end) + 1 or len(text)
            whole = text[end:] if _state(text[end:]) == _WHOLE else text[end:stop]
            if whole.rstrip(b"\r\n"):
                yield line, whole.rstrip(b"\r\n")
            line += whole.count(b"\n")
            end += len(whole)
        start = end


def split(row: bytes) -> list[str]:
    """A row's fields.

    Raises:
        BadRowError: it is not UTF-8, or is quoted wrongly.
    """
    try:
        text = row.decode()
    except UnicodeDecodeError:
        raise BadRowError(f"is not UTF-8: {_CONVERT}") from None
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise BadRowError(f"is quoted wrongly: {error}") from None


def _state(row: bytes) -> str:
    """Return whether a row is whole, continues after a quoted line end, or is quoted wrongly."""
    if row.count(b'"') % 2 == 0 and row.count(b"\n") <= 1:
        return _WHOLE
    try:
        for _ in csv.reader(io.StringIO(row.decode(errors="replace"), newline=""), strict=True):
            pass
    except csv.Error as error:
        return _OPEN if "unexpected end of data" in str(error) else _BROKEN
    return _WHOLE


def _open(uri: str) -> io.BufferedIOBase:
    file = storage.open_file(uri, "rb")
    return gzip.GzipFile(fileobj=file) if uri.lower().endswith(".gz") else file  # type: ignore
