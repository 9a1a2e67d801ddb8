"""Parse CSV text to rows in bounded memory: RFC 4180, in UTF-8, with commas.

A row ends at a line end outside of quotes. A quote that is never closed makes its own line
unusable, but not the rest of the file: a row is at most MAX_ROW_BYTES long.

pyarrow parses blocks whose quotes follow RFC 4180, which is checked with NumPy. pyarrow would
ignore a misplaced quote, so a block that contains one, or bytes that are not UTF-8, is parsed row
by row.
"""

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from trainer.data import storage
from trainer.data.source import DIGEST_BYTES, digest
from trainer.data.tables.file_formats import check_format
from trainer.data.tables.parsing import Rows
from trainer.errors import InputError

BLOCK_BYTES = 2 * 10**6
"""Size of the text that is read, and passed to a process, at once: about 10,000 rows."""

MAX_ROW_BYTES = 1 << 17
"""The csv module's limit for a field."""

_UNCLOSED = "unexpected end of data"
"""The csv module's error for a quote that is never closed."""
_GZIP = b"\x1f\x8b"
_LINE_END, _RETURN, _QUOTE, _COMMA = b'\n\r",'


class BadRowError(Exception):
    """A row can't be used; the message says why."""


class Block(NamedTuple):
    """Complete rows of a file."""

    file: int  # the file's index
    names: Sequence[str]  # the header's
    first_line: int  # number of the first line
    text: bytes

    def read(self, wanted: Sequence[str], lists: Sequence[str] = ()) -> Rows:
        """Return the rows with the columns that are `wanted`, without the header."""
        rows = _parse_block(self, wanted) or _parse_row_by_row(self, wanted)
        if self.first_line > 1:
            return rows
        columns = {name: column[1:] for name, column in rows.columns.items()}
        return Rows(rows.numbers[1:], rows.digests[DIGEST_BYTES:], columns, rows.rejections)


def read_header(uri: str) -> list[str]:
    """Return the names in a file's first row; empty if the file is empty.

    Raise InputError if the file can't be read, or its first row can't be parsed.
    """
    for block in read_blocks(uri, 0):
        for _, row in split_rows(block.text):
            if b"\r" in row and b'"' not in row:
                raise InputError(
                    f"{uri}: its lines end in CR alone; convert it: tr '\\r' '\\n' < OLD > NEW.csv"
                )
            try:
                return [name.strip() for name in split_fields(row)]
            except BadRowError as error:
                raise InputError(f"{uri}: its first row, the header, {error}") from None
    return []


def read_blocks(uri: str, file: int, header: Sequence[str] = ()) -> Iterator[Block]:
    """Yield the text of a file, which may be gzipped, in blocks of complete rows.

    Raise InputError if the file can't be read, is damaged, or has no line ends.
    """
    carry, line = b"", 1
    try:
        with storage.catch_read_errors(uri), _open(uri) as stream:
            while chunk := stream.read(BLOCK_BYTES):
                text = carry + chunk
                if line == 1:
                    check_format(uri, text)
                    text = text.removeprefix(codecs.BOM_UTF8)
                if end := _find_last_row_end(text):
                    yield Block(file, header, line, text[:end])
                    line += text.count(b"\n", 0, end)
                carry = text[end:]
                if len(carry) > 4 * BLOCK_BYTES:
                    raise InputError(
                        f"{uri} has {len(carry):,} bytes without a line end; is it a CSV file?"
                    )
    except (EOFError, zlib.error, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{uri} can't be read ({reason}); fix it, or download it again") from None
    if carry:
        yield Block(file, header, line, carry)


def _parse_block(block: Block, wanted: Sequence[str]) -> Rows | None:
    """Parse a whole block; return None if it must be parsed row by row."""
    header = block.names
    text = block.text if block.text.endswith(b"\n") else block.text + b"\n"
    ends = _find_row_ends(text)
    if ends is None or not len(ends) or ends[-1] != len(text):
        return None
    if text.count(b"\r") != text.count(b"\r\n") or b"\0" in text:
        return None
    try:
        text.decode()
    except UnicodeDecodeError:
        return None
    codes = np.frombuffer(text, np.uint8)
    starts, stops = np.concatenate(([0], ends[:-1])), ends - 1
    stops = stops - ((stops > starts) & (codes[stops - 1] == _RETURN))
    starts, stops = starts[stops > starts], stops[stops > starts]
    if b'"' in text and (stops - starts).max(initial=0) > MAX_ROW_BYTES:
        return None
    lines = block.first_line + np.searchsorted(np.flatnonzero(codes == _LINE_END), starts)
    table, ragged = _read_csv(text, header, wanted)
    whole = np.ones(len(starts), bool)
    whole[list(ragged)] = False
    if table.num_rows != whole.sum():
        return None
    spans = zip(starts[whole].tolist(), stops[whole].tolist(), strict=True)
    return Rows(
        lines[whole],
        b"".join(digest(text[start:stop]) for start, stop in spans),
        {name: table.column(str(header.index(name))).combine_chunks() for name in wanted},
        [(int(lines[row]), f"row {_describe_ragged(ragged[row], len(header))}") for row in ragged],
    )


def _read_csv(
    text: bytes, header: Sequence[str], wanted: Sequence[str]
) -> tuple[pa.Table, dict[int, int]]:
    """Return the `wanted` columns, named by their index, and each ragged row's number of fields."""
    ragged: dict[int, int] = {}

    def skip(row: Any) -> str:
        ragged[row.number - 1] = row.actual_columns
        return "skip"

    quoted = b'"' in text
    chosen = [str(header.index(name)) for name in wanted]
    table = pa.csv.read_csv(
        pa.BufferReader(text),
        # Names in the header may repeat. With threads, pyarrow would not number ragged rows.
        pa.csv.ReadOptions(
            column_names=[str(index) for index in range(len(header))],
            use_threads=False,
            block_size=len(text) + 1,
        ),
        pa.csv.ParseOptions(
            quote_char='"' if quoted else False,
            newlines_in_values=quoted,
            invalid_row_handler=skip,
        ),
        pa.csv.ConvertOptions(
            column_types=dict.fromkeys(chosen, pa.string()),
            include_columns=chosen,
            strings_can_be_null=False,
            check_utf8=False,
        ),
    )
    return table, ragged


def _parse_row_by_row(block: Block, wanted: Sequence[str]) -> Rows:
    header = block.names
    lines, raw, fields, rejections = [], [], [], []
    for offset, row in split_rows(block.text):
        line = block.first_line + offset
        try:
            values = split_fields(row)
            if len(values) != len(header):
                raise BadRowError(_describe_ragged(len(values), len(header)))
        except BadRowError as error:
            rejections.append((line, f"row {error}"))
            continue
        lines.append(line)
        raw.append(row)
        fields.append(values)
    columns = {}
    for name in wanted:
        index = header.index(name)
        columns[name] = pa.array([row[index] for row in fields], pa.string())
    return Rows(np.array(lines, np.int64), b"".join(map(digest, raw)), columns, rejections)


def _describe_ragged(fields: int, width: int) -> str:
    return f"is ragged: {fields} fields, the header has {width}"


def _find_row_ends(text: bytes) -> np.ndarray | None:
    """Return the ends of rows, int64 [n]; None if a quote before them is misplaced.

    An opening quote follows a comma, a line end or, if doubled, a quote; a closing quote precedes
    one of these.
    """
    codes = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(codes == _LINE_END) + 1
    if b'"' not in text:
        return ends
    quotes = np.flatnonzero(codes == _QUOTE)
    ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    quotes = quotes[: np.searchsorted(quotes, ends[-1])] if len(ends) else quotes[:0]
    before = codes[quotes[::2] - 1][quotes[::2] > 0]
    after = codes[quotes[1::2] + 1]
    fits = np.isin(before, (_COMMA, _LINE_END, _QUOTE)).all()
    return ends if fits and np.isin(after, (_COMMA, _LINE_END, _RETURN, _QUOTE)).all() else None


def _find_row_spans(text: bytes, *, is_whole: bool) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of every row that is sure to end in `text`.

    A line with a quote that is never closed is a row by itself.

    Args:
        is_whole: no text follows, so that the last row ends, too.
    """
    start = 0
    while start < len(text):
        line_end = end = text.find(b"\n", start) + 1
        error = _find_quote_error(text[start : end or len(text)])
        while error == _UNCLOSED and 0 < end <= start + MAX_ROW_BYTES:
            begin, end = end, text.find(b"\n", end) + 1
            if text.find(b'"', begin, end or len(text)) >= 0:
                error = _find_quote_error(text[start : end or len(text)])
        if not end and not is_whole:
            return
        end = (line_end if error else end) or len(text)
        yield start, end
        start = end


def _find_last_row_end(text: bytes) -> int:
    """Return the end of the last row that is sure to end in `text`."""
    if b'"' not in text:
        return text.rfind(b"\n") + 1
    ends = _find_row_ends(text)
    if ends is not None and len(text) - (end := int(ends[-1]) if len(ends) else 0) < MAX_ROW_BYTES:
        return end
    return max((end for _, end in _find_row_spans(text, is_whole=False)), default=0)


def split_rows(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (number of lines before, bytes without line end) of every row that is not empty."""
    line = 0
    for start, end in _find_row_spans(text, is_whole=True):
        if row := text[start:end].rstrip(b"\r\n"):
            yield line, row
        line += text.count(b"\n", start, end)


def split_fields(row: bytes) -> list[str]:
    """Return a row's fields; raise BadRowError if it is not UTF-8, or is quoted wrongly."""
    try:
        text = row.decode()
    except UnicodeDecodeError:
        marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        if b"\0" in row and not row.startswith(marks):
            raise BadRowError("is not text: save the table as CSV in UTF-8") from None
        name, code = ("UTF-16", "UTF-16") if row.startswith(marks) else ("Latin-1", "LATIN1")
        raise BadRowError(
            f"is not UTF-8: convert the file, from {name} with iconv -f {code} -t UTF-8 OLD.csv > "
            "NEW.csv"
        ) from None
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise BadRowError(f"is quoted wrongly: {error}") from None


def _find_quote_error(row: bytes) -> str:
    """Return what is wrong with the quotes of a row of one or more lines; empty: nothing."""
    if row.count(b'"') % 2 == 0 and row.count(b"\n") <= 1:
        return ""
    try:
        list(csv.reader(io.StringIO(row.decode(errors="replace"), newline=""), strict=True))
    except csv.Error as error:
        return str(error)
    return ""


def _open(uri: str) -> io.BufferedIOBase:
    """Open a file, which may be gzipped whatever its name."""
    file = storage.open_file(uri, "rb")
    is_gzipped = file.read(len(_GZIP)) == _GZIP
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if is_gzipped else file  # type: ignore
