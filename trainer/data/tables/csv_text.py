"""Parse CSV text to rows in bounded memory, in UTF-8 and in any dialect.

A row ends at a line end outside of quotes. A quote that is never closed makes its own line
unusable, but not the rest of the file: a row is at most MAX_ROW_BYTES long.

pyarrow parses blocks whose quotes follow RFC 4180, which is checked with NumPy. pyarrow would
ignore a misplaced quote, so a block that contains one, or bytes that are not UTF-8, is parsed row
by row. So are dialects with escapes, or with blanks before quotes.
"""

import csv
import functools
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from trainer.data.source import DIGEST_BYTES, digest
from trainer.data.tables.dialect import PLAIN, Dialect
from trainer.data.tables.rows import Rows
from trainer.data.tables.text_stream import open_text
from trainer.errors import InputError

BLOCK_BYTES = 2 * 10**6
"""Size of the text that is read, and passed to a process, at once: about 10,000 rows."""

MAX_ROW_BYTES = 1 << 17
"""The csv module's limit for a field."""

_UNCLOSED = "unexpected end of data"
"""The csv module's error for a quote that is never closed."""
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)
_LINE_END, _RETURN = b"\n\r"


class BadRowError(Exception):
    """A row can't be used; the message says why."""


class Block(NamedTuple):
    """Complete rows of a file."""

    file: int  # the file's index
    names: Sequence[str]  # the header's
    first_line: int  # number of the first line
    text: bytes  # in UTF-8
    dialect: Dialect = PLAIN

    def read(self, wanted: Sequence[str], lists: Sequence[str] = ()) -> Rows:
        """Return the rows with the columns that are `wanted`, without the header."""
        rows = _parse_block(self, wanted) or _parse_row_by_row(self, wanted)
        if self.first_line > 1 + self.dialect.skip_rows:
            return rows
        columns = {name: column[1:] for name, column in rows.columns.items()}
        return Rows(rows.numbers[1:], rows.digests[DIGEST_BYTES:], columns, rows.rejections)

    def find_longest_row(self) -> tuple[int, int]:
        """Return the first line of the row with most lines, and their number.

        Many lines are the sign of a quote that was never closed.
        """
        longest, first, line = 1, self.first_line, self.first_line
        for start, end in _find_row_spans(self.text, self.dialect, is_whole=True):
            lines = self.text.count(b"\n", start, end)
            if lines > longest:
                longest, first = lines, line
            line += lines
        return first, longest


def read_header(uri: str, dialect: Dialect = PLAIN) -> list[str]:
    """Return the names in a file's first row; empty if the file is empty.

    Raise InputError if the file can't be read, or its first row can't be parsed.
    """
    for block in read_blocks(uri, 0, dialect=dialect):
        for _, row in split_rows(block.text, dialect):
            try:
                return [name.strip() for name in split_fields(row, dialect)]
            except BadRowError as error:
                raise InputError(f"{uri}: its first row, the header, {error}") from None
    return []


def read_blocks(
    uri: str, file: int, header: Sequence[str] = (), dialect: Dialect = PLAIN
) -> Iterator[Block]:
    """Yield the text of a file, which may be compressed, in blocks of complete rows.

    Raise InputError if the file can't be read, is damaged, or has no line ends.
    """
    carry, line, held = b"", 1, Block(file, header, 1, b"", dialect)
    with open_text(uri, dialect) as stream:
        while chunk := stream.read(BLOCK_BYTES):
            text = carry + chunk
            if line <= dialect.skip_rows:
                *above, text = text.split(b"\n", dialect.skip_rows + 1 - line)
                line += len(above)
            if end := _find_last_row_end(text, dialect):
                if dialect.footer_rows:
                    yield from _yield_filled(held)
                    held = Block(file, header, line, text[:end], dialect)
                else:
                    yield Block(file, header, line, text[:end], dialect)
                line += text.count(b"\n", 0, end)
            carry = text[end:]
            if len(carry) > 4 * BLOCK_BYTES:
                raise InputError(
                    f"{uri} has {len(carry):,} bytes without a line end; is it a CSV file?"
                )
    if dialect.footer_rows:
        first = held.first_line if held.text else line
        text = _drop_last_rows(held.text + carry, dialect)
        yield from _yield_filled(Block(file, header, first, text, dialect))
    elif carry:
        yield Block(file, header, line, carry, dialect)


def _yield_filled(block: Block) -> Iterator[Block]:
    if block.text:
        yield block


def _drop_last_rows(text: bytes, dialect: Dialect) -> bytes:
    """Return the text without its last `footer_rows` rows that are not empty."""
    starts = [
        start
        for start, end in _find_row_spans(text, dialect, is_whole=True)
        if text[start:end].strip(b"\r\n")
    ]
    return text[: starts[-dialect.footer_rows]] if len(starts) > dialect.footer_rows else b""


def _parse_block(block: Block, wanted: Sequence[str]) -> Rows | None:
    """Parse a whole block; return None if it must be parsed row by row."""
    header, dialect = block.names, block.dialect
    if dialect.escape or dialect.skip_initial_space:
        return None
    text = block.text if block.text.endswith(b"\n") else block.text + b"\n"
    ends = _find_row_ends(text, dialect)
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
    if _has_quotes(text, dialect) and (stops - starts).max(initial=0) > MAX_ROW_BYTES:
        return None
    lines = block.first_line + np.searchsorted(np.flatnonzero(codes == _LINE_END), starts)
    table, ragged = _read_csv(text, header, wanted, dialect)
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
    text: bytes, header: Sequence[str], wanted: Sequence[str], dialect: Dialect
) -> tuple[pa.Table, dict[int, int]]:
    """Return the `wanted` columns, named by their index, and each ragged row's number of fields."""
    ragged: dict[int, int] = {}

    def skip(row: Any) -> str:
        ragged[row.number - 1] = row.actual_columns
        return "skip"

    quoted = _has_quotes(text, dialect)
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
            delimiter=dialect.delimiter,
            quote_char=dialect.quote if quoted else False,
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
    for offset, row in split_rows(block.text, block.dialect):
        line = block.first_line + offset
        try:
            values = split_fields(row, block.dialect)
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


def _has_quotes(text: bytes, dialect: Dialect) -> bool:
    return bool(dialect.quote) and dialect.quote.encode() in text


def _find_row_ends(text: bytes, dialect: Dialect) -> np.ndarray | None:
    """Return the ends of rows, int64 [n]; None if a quote before them is misplaced.

    An opening quote follows a delimiter, a line end or, if doubled, a quote; a closing quote
    precedes one of these.
    """
    codes = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(codes == _LINE_END) + 1
    if not _has_quotes(text, dialect):
        return ends
    quote, delimiter = ord(dialect.quote), ord(dialect.delimiter)
    quotes = np.flatnonzero(codes == quote)
    ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    quotes = quotes[: np.searchsorted(quotes, ends[-1])] if len(ends) else quotes[:0]
    before = codes[quotes[::2] - 1][quotes[::2] > 0]
    after = codes[quotes[1::2] + 1]
    fits = np.isin(before, (delimiter, _LINE_END, quote)).all()
    return ends if fits and np.isin(after, (delimiter, _LINE_END, _RETURN, quote)).all() else None


def _find_row_spans(text: bytes, dialect: Dialect, *, is_whole: bool) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of every row that is sure to end in `text`.

    A line with a quote that is never closed is a row by itself. Each line is parsed at most twice:
    as the first of a row, and as one that begins inside of quotes.

    Args:
        is_whole: no text follows, so that the last row ends, too.
    """
    start, closing = 0, _Closing(0, 0, "")
    while start < len(text):
        line_end = end = text.find(b"\n", start) + 1
        error = _find_quote_error(text[start : end or len(text)], dialect)
        if error == _UNCLOSED and 0 < end <= start + MAX_ROW_BYTES:
            if closing.start < end:
                closing = _find_closing(text, end, dialect)
            if closing.start <= start + MAX_ROW_BYTES:
                end, error = closing.end, closing.error
                # A field may be too long for the csv module.
                if not error and (end or len(text)) > start + MAX_ROW_BYTES:
                    error = _parse_quotes(text[start : end or len(text)], dialect)
        if not end and not is_whole:
            return
        end = (line_end if error else end) or len(text)
        yield start, end
        start = end


class _Closing(NamedTuple):
    """The first line that does not stay inside of quotes, in which the text before it ends."""

    start: int
    end: int  # 0: it has no line end
    error: str  # the csv module's; empty if a row ends here


def _find_closing(text: bytes, start: int, dialect: Dialect) -> _Closing:
    """Return the line that closes a quote that is open at `start`, the start of a line.

    If there is none, it is the last one, without an end.
    """
    quote = dialect.quote.encode()
    while (found := text.find(quote, start)) >= 0:
        start = max(start, text.rfind(b"\n", start, found) + 1)
        end = text.find(b"\n", found) + 1
        error = _parse_quotes(quote + text[start : end or len(text)], dialect)
        if error != _UNCLOSED or not end:
            return _Closing(start, end, error)
        start = end
    return _Closing(max(start, text.rfind(b"\n") + 1), 0, _UNCLOSED)


def _find_last_row_end(text: bytes, dialect: Dialect) -> int:
    """Return the end of the last row that is sure to end in `text`."""
    if not _has_quotes(text, dialect):
        return text.rfind(b"\n") + 1
    if not dialect.escape and not dialect.skip_initial_space:
        ends = _find_row_ends(text, dialect)
        end = 0 if ends is None or not len(ends) else int(ends[-1])
        if ends is not None and len(text) - end < MAX_ROW_BYTES:
            return end
    return max((end for _, end in _find_row_spans(text, dialect, is_whole=False)), default=0)


def split_rows(text: bytes, dialect: Dialect = PLAIN) -> Iterator[tuple[int, bytes]]:
    """Yield (number of lines before, bytes without line end) of every row that is not empty."""
    line = 0
    for start, end in _find_row_spans(text, dialect, is_whole=True):
        if row := text[start:end].rstrip(b"\r\n"):
            yield line, row
        line += text.count(b"\n", start, end)


def split_fields(row: bytes, dialect: Dialect = PLAIN) -> list[str]:
    """Return a row's fields; raise BadRowError if it is in another encoding or quoted wrongly."""
    try:
        text = row.decode()
    except UnicodeDecodeError:
        name = "UTF-8" if dialect.is_utf8 else dialect.encoding
        raise BadRowError(
            f"is not {name}: correct it or, if the whole file is in another encoding, set dialect, "
            'such as { encoding = "cp1252" }'
        ) from None
    if not dialect.escape and (not dialect.quote or dialect.quote not in text):
        fields = text.split(dialect.delimiter)
        return [field.lstrip(" ") for field in fields] if dialect.skip_initial_space else fields
    try:
        return next(_read_fields(text, dialect))
    except csv.Error as error:
        raise BadRowError(f"is quoted wrongly: {error}") from None


def _find_quote_error(row: bytes, dialect: Dialect) -> str:
    """Return what is wrong with the quotes of a line that begins a row; empty: nothing."""
    if not _has_quotes(row, dialect):
        return ""
    if not dialect.escape and row.count(dialect.quote.encode()) % 2 == 0:
        return ""
    return _parse_quotes(row, dialect)


def _parse_quotes(text: bytes, dialect: Dialect) -> str:
    """Return the csv module's error for one or more lines; empty if there is none."""
    try:
        for _ in _read_fields(text.decode(errors="replace"), dialect):
            pass
    except csv.Error as error:
        return str(error)
    return ""


def _read_fields(text: str, dialect: Dialect) -> Iterator[list[str]]:
    if dialect.escape:
        text = _ESCAPED.sub(functools.partial(_keep_backslash, dialect), text)
    return csv.reader(
        io.StringIO(text, newline=""),
        delimiter=dialect.delimiter,
        quotechar=dialect.quote or None,
        quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
        escapechar=dialect.escape or None,
        skipinitialspace=dialect.skip_initial_space,
        strict=True,
    )


def _keep_backslash(dialect: Dialect, escaped: re.Match) -> str:
    """Double a backslash that escapes nothing, as in C:\\temp or \\N, so that it stays."""
    is_escape = escaped[1] in (dialect.quote, dialect.delimiter, "\\")
    return escaped[0] if is_escape else "\\" + escaped[0]
