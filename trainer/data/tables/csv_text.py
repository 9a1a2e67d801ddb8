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
from trainer.data.tables.text_stream import open_text
from trainer.errors import InputError

BLOCK_BYTES = 2 * 10**6
"""Size of the text that is read, and passed to a process, at once: about 10,000 rows."""

MAX_ROW_BYTES = 1 << 17
"""The csv module's limit for a field."""

_UNCLOSED = "unexpected end of data"
"""The csv module's error for a quote that is never closed."""
_MISPLACED = "',' expected after '\"'"
"""The csv module's error for text after a quoted field."""
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
        rows = _parse_block(self, wanted)
        if self.first_line > 1 + self.dialect.skip_rows:
            return rows
        columns = {name: column[1:] for name, column in rows.columns.items()}
        return Rows(rows.numbers[1:], rows.digests[DIGEST_BYTES:], columns, rows.rejections)

    def find_longest_row(self) -> tuple[int, int]:
        """Return the first line of the row with most lines, and their number.

        Many lines are the sign of a quote that was never closed.
        """
        starts, ends = _find_row_spans(self.text, self.dialect)
        line_ends = np.flatnonzero(np.frombuffer(self.text, np.uint8) == _LINE_END) + 1
        lines = np.diff(np.searchsorted(line_ends, np.append(starts, ends[-1:]), "right"))
        longest = int(lines.argmax())
        return self.first_line + int(lines[:longest].sum()), max(1, int(lines[longest]))


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
    spans = zip(*_find_row_spans(text, dialect), strict=True)
    starts = [start for start, end in spans if text[start:end].strip(b"\r\n")]
    return text[: starts[-dialect.footer_rows]] if len(starts) > dialect.footer_rows else b""


def _parse_block(block: Block, wanted: Sequence[str]) -> Rows:
    """Parse a block by pyarrow, except for the rows that it reads otherwise than the csv module."""
    dialect = block.dialect
    text = block.text if block.text.endswith(b"\n") else block.text + b"\n"
    if dialect.escape or dialect.skip_initial_space:
        starts, ends = _find_row_spans(text, dialect)
        return _parse_row_by_row(block, text, starts, ends, wanted)
    found = _find_row_ends(text, dialect)
    is_regular = text.count(b"\r") == text.count(b"\r\n") and _is_text(text)
    if is_regular and found is not None and len(found) and found[-1] == len(text):
        starts = np.concatenate(([0], found[:-1]))
        if not _has_quotes(text, dialect) or (found - starts).max() <= MAX_ROW_BYTES:
            return _parse_together(block, text, starts, found, wanted)
    starts, ends = _find_row_spans(text, dialect)
    regular, literal = _classify(text, starts, ends, dialect)
    unquoted = block._replace(dialect=dataclasses.replace(dialect, quote=""))
    parts = [
        _parse_together(block, text, starts[regular], ends[regular], wanted),
        _parse_together(unquoted, text, starts[literal], ends[literal], wanted),
    ]
    others = ~regular & ~literal
    parts.append(_parse_row_by_row(block, text, starts[others], ends[others], wanted))
    return _merge(parts)


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in text


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


def _classify(
    text: bytes, starts: np.ndarray, ends: np.ndarray, dialect: Dialect
) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows follow RFC 4180, and which others have no quoted fields: bool [n] each.

    A quote in the middle of a field, as in 5" pipe, is text.
    """
    codes = np.frombuffer(text, np.uint8)
    returns = np.flatnonzero(codes == _RETURN)
    returns = returns[codes[np.minimum(returns + 1, len(codes) - 1)] != _LINE_END]
    unusual = [returns, np.flatnonzero(codes == 0)]
    if not _is_text(text):
        unusual.append(np.flatnonzero(codes > 127))
    usual = np.ones(len(starts), bool)
    usual[np.searchsorted(ends, np.concatenate(unusual), "right")] = False
    usual &= ends - starts <= MAX_ROW_BYTES
    if not dialect.quote:
        return usual, np.zeros_like(usual)
    quote, delimiter = ord(dialect.quote), ord(dialect.delimiter)
    quotes = np.flatnonzero(codes == quote)
    rows = np.searchsorted(ends, quotes, "right")
    is_opening = (np.arange(len(quotes)) - np.searchsorted(quotes, starts[rows])) % 2 == 0
    is_first = (quotes == starts[rows]) | (codes[quotes - 1] == delimiter)
    fits_before = is_first | (codes[quotes - 1] == quote)
    fits_after = np.isin(codes[quotes + 1], (delimiter, _LINE_END, _RETURN, quote))
    regular, literal = usual.copy(), usual.copy()
    regular[rows[~np.where(is_opening, fits_before, fits_after)]] = False
    regular[np.flatnonzero(np.bincount(rows, minlength=len(starts)) % 2)] = False
    literal[rows[is_first]] = False
    return regular, literal & ~regular


def _parse_together(
    block: Block, text: bytes, starts: np.ndarray, ends: np.ndarray, wanted: Sequence[str]
) -> Rows:
    """Parse some rows of a block by pyarrow."""
    header, codes = block.names, np.frombuffer(text, np.uint8)
    line_ends = np.flatnonzero(codes == _LINE_END)
    stops = ends - 1
    stops = stops - ((stops > starts) & (codes[stops - 1] == _RETURN))
    if (ends - starts).sum() < len(text):
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        chosen = b"".join(text[start:end] for start, end in spans)
    else:
        chosen = text
    starts, stops = starts[stops > starts], stops[stops > starts]
    lines = block.first_line + np.searchsorted(line_ends, starts)
    if not len(starts):
        return Rows(lines, b"", {name: pa.array([], pa.string()) for name in wanted}, [])
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
    block: Block, text: bytes, starts: np.ndarray, ends: np.ndarray, wanted: Sequence[str]
) -> Rows:
    """Parse some rows of a block by the csv module."""
    header = block.names
    line_ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _LINE_END)
    numbers = (block.first_line + np.searchsorted(line_ends, starts)).tolist()
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


def _find_row_spans(
    text: bytes, dialect: Dialect, *, is_whole: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and the end of every row that is sure to end in `text`, int64 [n] each.

    A line with a quote that is never closed is a row by itself. Each line is parsed at most twice:
    as the first of a row, and as one that begins inside of quotes.

    Args:
        is_whole: no text follows, so that the last row ends, too.
    """
    codes = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(codes == _LINE_END) + 1
    size = int(ends[-1]) if len(ends) else 0
    if is_whole and size < len(text):
        ends = np.append(ends, len(text))
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    if not _has_quotes(text, dialect):
        return starts, ends
    quotes = np.flatnonzero(codes == ord(dialect.quote))
    counts = np.searchsorted(quotes, ends) - np.searchsorted(quotes, starts)
    if dialect.escape or dialect.skip_initial_space:
        unsure, certain = np.flatnonzero(counts), np.zeros(len(ends), bool)
    else:
        # A row may go on if it has an odd number of quotes, one of them where a field begins.
        before = codes[quotes - 1]
        begins = np.isin(before, (ord(dialect.delimiter), _LINE_END, _RETURN)) | (quotes == 0)
        lines = np.searchsorted(ends, quotes[begins], "right")
        lines = lines[lines < len(ends)]  # The last one, without a line end, may be no row.
        unsure = np.unique(lines[counts[lines] % 2 > 0])
        certain = counts == (1 if text.count(b"\r") == text.count(b"\r\n") else -1)
    is_row = np.ones(len(ends), bool)
    end, closing = 0, _Closing(0, 0, "")
    for line, start, line_end in zip(
        unsure.tolist(), starts[unsure].tolist(), ends[unsure].tolist(), strict=True
    ):
        if start < end or line_end > start + MAX_ROW_BYTES or line_end > size:
            continue
        if not certain[line] and _parse_quotes(text[start:line_end], dialect) != _UNCLOSED:
            continue
        if closing.start < line_end:
            closing = _find_closing(text, line_end, dialect)
        if closing.start > start + MAX_ROW_BYTES:
            continue
        if not closing.end and not is_whole:
            return starts[:line][is_row[:line]], _ends_of(starts, is_row, line)
        closed = closing.end or len(text)
        # A field may be too long for the csv module.
        is_long = closed > start + MAX_ROW_BYTES
        if closing.error or (is_long and _parse_quotes(text[start:closed], dialect)):
            continue
        end = closed
        is_row[line + 1 : np.searchsorted(ends, end) + 1] = False
    return starts[is_row], np.append(starts[is_row][1:], ends[-1:])


def _ends_of(starts: np.ndarray, is_row: np.ndarray, line: int) -> np.ndarray:
    """Return the ends of the rows before a line."""
    return np.append(starts[:line][is_row[:line]][1:], starts[line : line + 1])[
        : is_row[:line].sum()
    ]


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
        after = text[found + 1 : found + 2]
        if (end or len(text)) - start <= MAX_ROW_BYTES and after.isalnum() and not dialect.escape:
            # Sooner than by the csv module.
            error = _MISPLACED
        else:
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
    _, ends = _find_row_spans(text, dialect, is_whole=False)
    return int(ends[-1]) if len(ends) else 0


def split_rows(text: bytes, dialect: Dialect = PLAIN) -> Iterator[tuple[int, bytes]]:
    """Yield (number of lines before, bytes without line end) of every row that is not empty."""
    starts, ends = _find_row_spans(text, dialect)
    line_ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _LINE_END)
    lines = np.searchsorted(line_ends, starts)
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
