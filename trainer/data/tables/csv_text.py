"""Parse CSV text to rows in bounded memory, in UTF-8 and in any dialect.

A row ends at a line end outside of quotes. A quote that is never closed makes its own line
unusable, but not the rest of the file: a row is at most MAX_ROW_BYTES long.

pyarrow parses blocks whose quotes follow RFC 4180, which is checked with NumPy. pyarrow would
ignore a misplaced quote, so a block that contains one, or bytes that are not UTF-8, is parsed row
by row. So are dialects with escapes, or with blanks before quotes.
"""

import csv
import dataclasses
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
from trainer.data.tables.text_stream import read_text
from vertex.errors import InputError

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


class CsvBlock(NamedTuple):
    """Complete rows of a file."""

    file: int  # the file's index
    names: Sequence[str]  # the header's
    first_line: int  # number of the first line
    text: bytes  # in UTF-8
    dialect: Dialect = PLAIN

    def read(self, wanted: Sequence[str], lists: Sequence[str] = ()) -> Rows:
        """Return the rows with the columns that are `wanted`, without the header."""
        rows = _parse_block(self, wanted)
        if self.first_line > 1 + self.dialect.skip_rows:
            return rows
        columns = {name: column[1:] for name, column in rows.columns.items()}
        return Rows(rows.numbers[1:], rows.digests[DIGEST_BYTES:], columns, rows.rejections)

    def find_longest_row(self) -> tuple[int, int]:
        """Return the first line of the row with most lines, and their number.

        Many lines are the sign of a quote that was never closed.
        """
        starts, ends, *_ = _find_rows(self.text, self.dialect)
        lines = np.diff(_count_lines(self.text, np.append(starts, ends[-1:])))
        longest = int(lines.argmax())
        return self.first_line + int(lines[:longest].sum()), max(1, int(lines[longest]))


class _Spans(NamedTuple):
    """The rows in a text."""

    starts: np.ndarray  # int64 [n]
    ends: np.ndarray  # int64 [n]
    complete: int  # the end of the last row that no later text can change
    regular: int  # the end of the rows before the first that is too long or not as in RFC 4180


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
    uri: str, file: int, header: Sequence[str] = (), dialect: Dialect = PLAIN, reader: str = "csv"
) -> Iterator[CsvBlock]:
    """Yield the text of a file, which may be compressed, in blocks of complete rows.

    Raise InputError if the file can't be read, is damaged, or has no line ends.

    Args:
        reader: the kind of source that reads the file.
    """
    carry, line = b"", 1
    for chunk in read_text(uri, dialect, BLOCK_BYTES, reader):
        text = carry + chunk
        if line <= dialect.skip_rows:
            *above, text = text.split(b"\n", dialect.skip_rows + 1 - line)
            line += len(above)
        is_quoted = _has_quotes(text, dialect)
        end = _find_rows(text, dialect).complete if is_quoted else text.rfind(b"\n") + 1
        if dialect.footer_rows:
            end = _find_footer(text[:end], dialect)
        if end:
            yield CsvBlock(file, header, line, text[:end], dialect)
        line += text.count(b"\n", 0, end)
        carry = text[end:]
        if len(carry) > 4 * BLOCK_BYTES:
            raise InputError(f"{uri} has {len(carry):,} bytes without a line end; is it a table?")
    if dialect.footer_rows:
        carry = carry[: _find_footer(carry, dialect)]
    if carry:
        yield CsvBlock(file, header, line, carry, dialect)


def _find_footer(text: bytes, dialect: Dialect) -> int:
    """Return the start of the last `footer_rows` rows that are not empty."""
    starts, ends, *_ = _find_rows(text, dialect)
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    filled = [start for start, end in spans if text[start:end].strip(b"\r\n")]
    return filled[-dialect.footer_rows] if len(filled) > dialect.footer_rows else 0


def _parse_block(block: CsvBlock, wanted: Sequence[str]) -> Rows:
    """Parse a block by pyarrow, except for the rows that it reads otherwise than the csv module."""
    text, dialect = block.text, block.dialect
    if not text.endswith(b"\n"):
        text += b"\n"
    spans = _find_rows(text, dialect)
    regular, literal = _classify(text, spans, dialect)
    unquoted = block._replace(dialect=dataclasses.replace(dialect, quote=""))
    parts = [
        parse(part, text, spans.starts[rows], spans.ends[rows], wanted)
        for parse, part, rows in (
            (_parse_together, block, regular),
            (_parse_together, unquoted, literal),
            (_parse_row_by_row, block, ~regular & ~literal),
        )
        if rows.any()
    ]
    return parts[0] if len(parts) == 1 else _merge(parts)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _merge(parts: Sequence[Rows]) -> Rows:
    """Return rows that were parsed apart in the order of their numbers."""
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.argsort(numbers, kind="stable")
    halves = np.concatenate([part.halves for part in parts])[order]
    return Rows(
        numbers[order],
        halves.astype(">u8").tobytes(),
        {
            name: pa.concat_arrays([part.columns[name] for part in parts]).take(pa.array(order))
            for name in parts[0].columns
        },
        sorted(rejection for part in parts for rejection in part.rejections),
    )


def _classify(text: bytes, spans: _Spans, dialect: Dialect) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows follow RFC 4180, and which others have no quoted fields: bool [n] each.

    A quote in the middle of a field, as in 5" pipe, is text.
    """
    starts, ends = spans.starts, spans.ends
    if dialect.escape or dialect.skip_initial_space:
        return np.zeros(len(starts), bool), np.zeros(len(starts), bool)
    codes = np.frombuffer(text, np.uint8)
    unusual = [np.flatnonzero(codes == 0)] if b"\0" in text else []
    if _has_lone_returns(text):
        returns = np.flatnonzero(codes == _RETURN)
        unusual.append(returns[codes[np.minimum(returns + 1, len(codes) - 1)] != _LINE_END])
    if not _is_utf8(text):
        unusual.append(np.flatnonzero(codes > 127))
    usual = np.ones(len(starts), bool)
    for places in unusual:
        usual[np.searchsorted(ends, places, "right")] = False
    if spans.regular == len(text) or not _has_quotes(text, dialect):
        return usual, np.zeros_like(usual)
    usual &= ends - starts <= MAX_ROW_BYTES
    quote = ord(dialect.quote)
    quotes = np.flatnonzero(codes == quote)
    rows = np.searchsorted(ends, quotes, "right")
    is_opening = (np.arange(len(quotes)) - np.searchsorted(quotes, starts[rows])) % 2 == 0
    before, after = codes[quotes - 1], codes[quotes + 1]
    is_first = (quotes == starts[rows]) | (before == ord(dialect.delimiter))
    fits_after = _is_one_of(after, f"{dialect.delimiter}{dialect.quote}\n\r")
    regular, literal = usual.copy(), usual.copy()
    regular[rows[~np.where(is_opening, is_first | (before == quote), fits_after)]] = False
    regular[np.flatnonzero(np.bincount(rows, minlength=len(starts)) % 2)] = False
    literal[rows[is_first]] = False
    return regular, literal & ~regular


def _parse_together(
    block: CsvBlock, text: bytes, starts: np.ndarray, ends: np.ndarray, wanted: Sequence[str]
) -> Rows:
    """Parse some rows of a block by pyarrow."""
    header, codes = block.names, np.frombuffer(text, np.uint8)
    stops = ends - 1
    stops = stops - ((stops > starts) & (codes[stops - 1] == _RETURN))
    if (ends - starts).sum() < len(text):
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        chosen = b"".join(text[start:end] for start, end in spans)
    else:
        chosen = text
    starts, stops = starts[stops > starts], stops[stops > starts]
    lines = block.first_line + _count_lines(text, starts)
    table, ragged = _read_csv(chosen, header, wanted, block.dialect)
    whole = np.ones(len(starts), bool)
    whole[list(ragged)] = False
    assert table.num_rows == whole.sum()
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


def _parse_row_by_row(
    block: CsvBlock, text: bytes, starts: np.ndarray, ends: np.ndarray, wanted: Sequence[str]
) -> Rows:
    """Parse some rows of a block by the csv module."""
    header = block.names
    numbers = (block.first_line + _count_lines(text, starts)).tolist()
    lines, raw, fields, rejections = [], [], [], []
    for line, start, end in zip(numbers, starts.tolist(), ends.tolist(), strict=True):
        row = text[start:end].rstrip(b"\r\n")
        if not row:
            continue
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


def _has_lone_returns(text: bytes) -> bool:
    return b"\r" in text and text.count(b"\r") > text.count(b"\r\n")


def _count_lines(text: bytes, starts: np.ndarray) -> np.ndarray:
    """Return the number of lines before each row."""
    return np.searchsorted(np.flatnonzero(np.frombuffer(text, np.uint8) == _LINE_END), starts)


def _find_rows(text: bytes, dialect: Dialect) -> _Spans:
    """Find the rows in a text.

    A line with a quote that is never closed is a row by itself. Quotes that follow RFC 4180 are
    counted. From the first other one on, each line is parsed at most twice: as the first of a row,
    and as one that begins inside of quotes.
    """
    codes = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(codes == _LINE_END) + 1
    size = complete = int(ends[-1]) if len(ends) else 0
    if size < len(text):
        ends = np.append(ends, len(text))
    starts = np.append(0, ends)[:-1]
    needs_csv = bool(dialect.escape or dialect.skip_initial_space) or _has_lone_returns(text)
    if not _has_quotes(text, dialect):
        return _Spans(starts, ends, size, 0 if needs_csv else len(text))
    quotes = np.flatnonzero(codes == ord(dialect.quote))
    totals = np.searchsorted(quotes, ends)
    end = regular = 0 if needs_csv else _find_regular_end(codes, ends, quotes, totals, dialect)
    count = int(np.searchsorted(ends, end, "right"))
    is_row = np.ones(len(ends), bool)
    is_row[1:count] = totals[: max(0, count - 1)] % 2 == 0
    counts = np.diff(totals, prepend=0)
    unsure = np.flatnonzero(counts)
    if not (dialect.escape or dialect.skip_initial_space):
        # A row may go on if it has an odd number of quotes, one of them where a field begins.
        left = quotes[quotes >= end]
        begins = _is_one_of(codes[left - 1], f"{dialect.delimiter}\n\r") | (left == 0)
        lines = np.searchsorted(ends, left[begins], "right")
        unsure = np.unique(lines[counts[lines] % 2 > 0])
        # It does not, if the next quote can't close the field.
        found = np.searchsorted(quotes, ends[unsure])
        following = np.append(quotes, size)[found]
        allowed = f"{dialect.delimiter}{dialect.quote}\n\r"
        may_close = _is_one_of(codes[np.minimum(following + 1, len(codes) - 1)], allowed)
        unsure = unsure[(following >= size) | may_close]
    closing = _Closing(0, 0, "")
    for line, start, line_end in zip(
        unsure.tolist(), starts[unsure].tolist(), ends[unsure].tolist(), strict=True
    ):
        if start < end or line_end > start + MAX_ROW_BYTES or line_end > size:
            continue
        is_open = counts[line] == 1 and not needs_csv
        if not is_open and _parse_quotes(text[start:line_end], dialect) != _UNCLOSED:
            continue
        if closing.start < line_end:
            closing = _find_closing(text, line_end, dialect)
        if closing.start > start + MAX_ROW_BYTES:
            continue
        if not closing.end:
            complete = min(complete, start)
        closed = closing.end or len(text)
        # A field may be too long for the csv module.
        is_long = closed > start + MAX_ROW_BYTES
        if closing.error or (is_long and _parse_quotes(text[start:closed], dialect)):
            continue
        end = closed
        is_row[line + 1 : np.searchsorted(ends, end) + 1] = False
    starts, stops = starts[is_row], np.append(starts[is_row][1:], ends[-1:])
    if size < len(text):
        complete = min(complete, int(starts[-1]))
    return _Spans(starts, stops, complete, regular)


def _find_regular_end(
    codes: np.ndarray, ends: np.ndarray, quotes: np.ndarray, totals: np.ndarray, dialect: Dialect
) -> int:
    """Return the end of the rows before the first that is too long or has a misplaced quote.

    An opening quote follows a delimiter, a line end or, if doubled, a quote; a closing quote
    precedes one of these.
    """
    allowed = f"{dialect.delimiter}{dialect.quote}\n"
    fits = np.empty(len(quotes), bool)
    fits[::2] = _is_one_of(codes[quotes[::2] - 1], allowed)
    fits[1::2] = _is_one_of(codes[np.minimum(quotes[1::2] + 1, len(codes) - 1)], f"{allowed}\r")
    fits[0] |= quotes[0] == 0
    limit = len(codes) if fits.all() else quotes[fits.argmin()]
    stops = ends[(totals % 2 == 0) & (ends <= limit)]
    is_long = np.diff(stops, prepend=0) > MAX_ROW_BYTES
    stops = stops[: is_long.argmax()] if is_long.any() else stops
    return int(stops[-1]) if len(stops) else 0


def _is_one_of(codes: np.ndarray, characters: str) -> np.ndarray:
    """Return np.isin, which is slower."""
    table = np.zeros(256, bool)
    table[list(characters.encode())] = True
    return table[codes]


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


def split_rows(text: bytes, dialect: Dialect = PLAIN) -> Iterator[tuple[int, bytes]]:
    """Yield (number of lines before, bytes without line end) of every row that is not empty."""
    starts, ends, *_ = _find_rows(text, dialect)
    lines = _count_lines(text, starts)
    for line, start, end in zip(lines.tolist(), starts.tolist(), ends.tolist(), strict=True):
        if row := text[start:end].rstrip(b"\r\n"):
            yield line, row


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
    if not (dialect.escape or dialect.skip_initial_space) and text.count(dialect.quote) == 1:
        before, _, _ = text.partition(dialect.quote)
        if not before or before.endswith(dialect.delimiter):  # Faster than the csv module.
            raise BadRowError(f"is quoted wrongly: {_UNCLOSED}")
    try:
        return next(_read_fields(text, dialect))
    except csv.Error as error:
        raise BadRowError(f"is quoted wrongly: {error}") from None


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
