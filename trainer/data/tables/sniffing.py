"""Find the dialect of a CSV file from its beginning and its end.

    found = sniff("sales.csv")
    found.dialect.settings  # {"encoding": "cp949", "footer_rows": 1}, for a recipe
    found.notes             # ["the encoding is cp949: 'city' has '서울'", ...]

What can be read in two ways is refused with both, because a wrong guess would be silent.
"""

import collections
import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trainer.data import storage
from trainer.data.tables import csv_text
from trainer.data.tables.dialect import PLAIN, Dialect, Sniffed, parse_dialect
from trainer.data.tables.encodings import find_encoding
from trainer.data.tables.file_formats import check_format
from trainer.data.tables.text_stream import (
    HEAD_BYTES,
    INVALID,
    DialectError,
    decode,
    find_mark,
    is_damaged,
    read_ends,
)
from vertex.errors import InputError

SAMPLE_BYTES = 2 * 10**6
_FIELDS_BYTES = 1 << 18
_ROWS = 2000
"""Rows that are compared in each candidate for the dialect, in the first _FIELDS_BYTES."""
_TAIL_BYTES = 1 << 16
_DELIMITERS = (
    ((",", ";", "\t", "|"), 2, 0.8),
    (("^", "~", ":", "\x01"), 3, 0.98),
    ((" ",), 3, 1.0),
)
"""Delimiters, and the least number of fields that at least a share of the rows must have."""
_MOST_ABOVE = 20
_CONTROL = re.compile(r"[\0\x02-\x08\x0e-\x1f]")
_SEPARATOR = re.compile(r'"?sep=([\0-\x7f])"?,*\r?', re.IGNORECASE)
_NUMBER = re.compile(r"[^\w]*\d[\d.,'\s:/\-]*(?:e[-+]?\d+)?[^\w]*", re.IGNORECASE)
_TOTAL = re.compile(
    r"[ :*.]*(((grand|sub|general|genel|overall)[ -]?)?totals?|sums?|summe|gesamt(summe)?|"
    r"insgesamt|total(e|i|es)?|totaal|toplam|suma|razem|somme|celkem|spolu|összesen|ukupno|"
    r"yhteensä|i alt|totalt|итого|всего|сума|разом|σύνολο|[합총소] ?계|총 ?합계|"
    r"[合總総小总] ?[計计]|總和|संपूर्ण|कुल|योग|المجموع|الإجمالي|סה\"כ|รวม|tổng( cộng)?|"
    r"averages?|avg|means?|overall|durchschnitt|mittelwert|moyenne|promedio|media|média|średnia|gemiddelde?|ortalama|среднее|"
    r"平均[値值]?|평균)(?!\w)(.*)",
    re.IGNORECASE | re.DOTALL,
)
"""A word of a total or a mean, and what follows it in a field."""
_QUOTING = ("quote", "escape", "skip_initial_space")
_LATER_BYTES = 1 << 14
"""Size of the ends of each file but the first that are compared with the dialect."""
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_MOST_COMPRESSED = 1 << 25
"""Size of a compressed file whose end is not looked at when it is opened."""


class _SampledRow(NamedTuple):
    line: int  # number of lines before it
    fields: list[str]  # empty if its quotes are wrong

    @property
    def filled(self) -> list[str]:
        """Return the fields that are not blank."""
        return [field.strip() for field in self.fields if field.strip()]

    def __str__(self) -> str:
        return repr(",".join(self.fields)[:60])


class _DialectCandidate(NamedTuple):
    """The first rows of a text in a dialect."""

    dialect: Dialect
    rows: list[_SampledRow]
    width: int  # the most common number of fields
    share: float  # share of the rows that have it
    bad: int  # number of lines of other rows
    wrong: int  # the same, and the rows with a field that is still in quotes

    def __str__(self) -> str:
        row = next(row for row in reversed(self.rows) if len(row.fields) == self.width)
        between = f"{self.dialect.delimiter!r} between them"
        return f"{self.width} fields a row with {between}, such as {row.fields[0]!r}"


def sniff(uri: str, given: Mapping[str, Any] | None = None) -> Sniffed:
    """Return the dialect of a CSV file.

    Raise InputError if the file can't be read, is no table, has no header, or can be read in two
    ways, which a value in `given` can decide: it has the form of the option `dialect`.
    """
    known = dict(given or {})
    parse_dialect(known)
    raw, tail = read_ends(uri, SAMPLE_BYTES, _TAIL_BYTES)
    check_format(uri, raw)
    if not raw:
        raise InputError(f"{uri} is empty: it has no header; use a table with a header")
    encoding = known["encoding"] = known.get("encoding") or _find_encoding(uri, raw)
    text = decode(raw, encoding)
    if "\n" not in text and "\r" in text:
        known.setdefault("line_end", "\r")
    text, last = _decode_ends(raw, tail, encoding, known.get("line_end", PLAIN.line_end))
    if first := _SEPARATOR.fullmatch(text.partition("\n")[0]):
        known.setdefault("delimiter", first[1])
    if len(_CONTROL.findall(text)) > 0.01 * len(text):
        raise InputError(f"{uri} is not text; save its table as CSV in UTF-8")
    dialect = _find_fields(uri, text, known)
    rows = list(_read_rows(text, dialect))
    below = list(_read_rows(last, dialect)) if tail else None
    return _find_borders(uri, rows, below, {**dialect.settings, **known})


def _decode_ends(raw: bytes, tail: bytes, encoding: str, line_end: str) -> tuple[str, str]:
    """Return the complete lines of a file's beginning and of its end, which may be the same."""
    text = decode(raw, encoding).replace(line_end, "\n")
    if not tail:
        return text, text
    # The byte order mark is at the start alone, and the first line of the end is cut.
    last = decode(raw[:4] + tail, encoding).replace(line_end, "\n")
    return text[: text.rfind("\n") + 1], last.partition("\n")[2]


def sniff_rows(
    uri: str, rows: Iterable[tuple[int, list[str]]], given: Mapping[str, Any] | None = None
) -> Sniffed:
    """Return the dialect of a file that consists of cells; each row has its number, from 1.

    Raise InputError as `sniff` does.
    """
    read = [_SampledRow(number - 1, cells) for number, cells in rows]
    return _find_borders(uri, read, None, dict(given or {}))


def _find_borders(
    uri: str, rows: Sequence[_SampledRow], last: Sequence[_SampledRow] | None, known: dict[str, Any]
) -> Sniffed:
    """Return the dialect with the rows that are above and below the table.

    Args:
        last: the last rows of the file; None if `rows` are all.
    """
    dialect = parse_dialect(known)
    above = known.get("skip_rows", _count_above(uri, rows, dialect))
    skipped = [row for row in rows if row.line < above]
    rows = [row for row in rows if row.line >= above]
    last = rows if last is None else last
    below = [] if "footer_rows" in known else _find_below(rows, last)
    dialect = parse_dialect({"footer_rows": len(below), **known, "skip_rows": above})
    notes = _list_notes(dialect, skipped, rows, below)
    if "footer_rows" not in known and not below and _may_be_total(rows, last):
        leave = "--set 'dialect={\"footer_rows\": 1}'"
        notes.append(f"the last row is kept: {last[-1]}; if it is a total, leave it out: {leave}")
    return Sniffed(dialect, notes)


def read_header(
    uri: str, dialect: Dialect, needed: Sequence[str] = (), first: str = ""
) -> list[str]:
    """Return the header of a file that must be in a dialect and have the columns `needed`.

    Otherwise raise InputError with the dialect that the file has.

    Args:
        first: the first file of the table, whose encoding this one must have; empty if this is it.
    """
    try:
        header = csv_text.read_header(uri, dialect)
        # The user knows better than a guess that contradicts the first file, too.
        if first and not dialect.is_utf8 and _fits(first, dialect) and _fits(uri, dialect) is False:
            raise DialectError(f"{uri} is not in {dialect.encoding}")
        if header and not set(needed) <= set(header):
            found = sniff(uri, {"encoding": dialect.encoding}).dialect
            if found != dialect and set(needed) <= set(csv_text.read_header(uri, found)):
                problem = found.describe()
                if found.delimiter != dialect.delimiter:
                    names = f"{found.delimiter!r}, not {dialect.delimiter!r}"
                    problem = f"fields are separated by {names}"
                raise DialectError(f"{uri}: {problem or 'it is in another dialect'}")
        _check_rows(uri, dialect, _LATER_BYTES if first else HEAD_BYTES)
    except DialectError as error:
        found = sniff(uri).dialect
        remedy = f"add dialect = {found} to the recipe, or let `recipes new` write one"
        if first or dialect != PLAIN:
            remedy = (
                f"the dialect is {dialect}, and this file's is {found}: correct the dialect, "
                "convert the file, or move it to another folder"
            )
        raise InputError(f"{error}; {remedy}") from None
    return header


def _check_rows(uri: str, dialect: Dialect, size: int) -> None:
    """Raise DialectError if the first or the last `size` bytes of a file contradict its dialect."""
    is_large = uri.endswith(_COMPRESSED) and storage.size(uri) > _MOST_COMPRESSED
    raw, tail = read_ends(uri, size, 0 if is_large else size)
    text, last = _decode_ends(raw, tail, dialect.encoding, dialect.line_end)
    if is_large:
        text = text[: text.rfind("\n") + 1]
    rows = list(_read_rows(text, dialect))
    given = _rate(dialect, rows[:_ROWS])
    if given.wrong > 1:
        known = {key: getattr(dialect, key) for key in ("encoding", "delimiter", "line_end")}
        best = _find_quotes(text, known)
        # Few rows may be wrong; they are rejected one by one.
        if given.wrong - best.wrong > max(1, 0.01 * len(given.rows)):
            found = sniff(uri, known).dialect
            if any(getattr(found, key) != getattr(dialect, key) for key in _QUOTING):
                raise DialectError(
                    f"{uri}: {found.describe() or 'its fields are quoted otherwise'}"
                )
    if not is_large:
        rows = [row for row in rows if row.line >= dialect.skip_rows]
        _check_footer(uri, rows, list(_read_rows(last, dialect)) if tail else rows, dialect)


def check_cells(uri: str, rows: Iterable[tuple[int, list[str]]], dialect: Dialect) -> None:
    """Raise InputError if the last rows of a file that consists of cells contradict the dialect."""
    read = [_SampledRow(number - 1, cells) for number, cells in rows]
    try:
        _check_footer(uri, read, read, dialect)
    except DialectError as error:
        raise InputError(
            f"{error}; each file needs as many such rows as footer_rows in dialect: correct either"
        ) from None


def _check_footer(
    uri: str, rows: Sequence[_SampledRow], last: Sequence[_SampledRow], dialect: Dialect
) -> None:
    """Raise DialectError if a total is read as an example, or an example left out as a total."""
    count = dialect.footer_rows
    below = _find_below(rows, last)
    for row in below[: max(0, len(below) - count)]:
        if len(row.filled) > 1:
            raise DialectError(f"{uri}: its row {row} is a total, not an example")
    for row in last[1:][-count:] if count else []:
        table = [one for one in _select_table(rows) if one.line != row.line]
        if row not in below and table and _is_example(row, table):
            raise DialectError(f"{uri}: its row {row} is an example, but is left out as a footer")


def _fits(uri: str, dialect: Dialect) -> bool | None:
    """Return whether the encoding found in a file reads it as the dialect; None if unsure."""
    sample, _ = read_ends(uri, SAMPLE_BYTES)
    if sample.isascii():
        return None
    try:
        return decode(sample, _find_encoding(uri, sample)) == decode(sample, dialect.encoding)
    except InputError:
        return None


def _find_encoding(uri: str, raw: bytes) -> str:
    if mark := find_mark(raw):
        return mark
    # In UTF-8, a few rows may be damaged; in another encoding, hardly any character is valid UTF-8.
    text = decode(raw, "utf-8")
    damaged = text.count(INVALID)
    is_likely = not damaged or len(re.findall(r"[^\0-\x7f]", text)) > 2 * damaged
    if is_likely and not is_damaged(text):
        return "utf-8"
    return find_encoding(uri, raw)


def _read_rows(text: str, dialect: Dialect) -> Iterator[_SampledRow]:
    for line, row in csv_text.split_rows(text.encode("utf-8", "replace"), dialect):
        try:
            fields = csv_text.split_fields(row, dialect)
        except csv_text.BadRowError:
            fields = []
        yield _SampledRow(line, fields)


def _find_width(rows: Iterable[_SampledRow]) -> tuple[int, int]:
    """Return the most common number of fields, and the number of rows that have it."""
    counts = collections.Counter(len(row.fields) for row in rows if row.fields)
    return max(counts.items(), key=lambda item: item[::-1], default=(0, 0))


def _select_table(rows: Sequence[_SampledRow]) -> list[_SampledRow]:
    """Return the rows that have the most common number of fields."""
    width, _ = _find_width(rows)
    return [row for row in rows if len(row.fields) == width]


def _read(text: str, settings: Mapping[str, Any]) -> _DialectCandidate:
    dialect = parse_dialect(settings)
    return _rate(dialect, list(itertools.islice(_read_rows(text, dialect), _ROWS)))


def _rate(dialect: Dialect, rows: list[_SampledRow]) -> _DialectCandidate:
    width, count = _find_width(rows)
    ends = [*(row.line for row in rows[1:]), rows[-1].line + 1] if rows else []
    spans = zip(rows, ends, strict=True)
    bad = sum(end - row.line for row, end in spans if len(row.fields) != width)
    quoted = collections.Counter(
        quote
        for row in rows
        if len(row.fields) == width
        for quote in {f[0] for f in row.filled if _is_quoted(f)}
    )
    # Apostrophes are also text.
    apostrophes = quoted["'"] if quoted["'"] > len(rows) / 2 else 0
    return _DialectCandidate(
        dialect, rows, width, count / max(1, len(rows)), bad, bad + quoted['"'] + apostrophes
    )


def _is_quoted(field: str) -> bool:
    return len(field) > 1 and field[0] == field[-1] and field[0] in "\"'"


def _find_fields(uri: str, text: str, known: dict[str, Any]) -> Dialect:
    """Return the dialect with the delimiter and the quotes of a text."""
    if len(text) > _FIELDS_BYTES:
        text = text[: text.rfind("\n", 0, _FIELDS_BYTES) + 1] or text[:_FIELDS_BYTES]
    readings: list[_DialectCandidate] = []
    for delimiters, width, share in () if "delimiter" in known else _DELIMITERS:
        tried = [_find_quotes(text, {**known, "delimiter": one}) for one in delimiters]
        fitting = [one for one in tried if one.width >= width and one.share >= share]
        least = min((one.bad for one in fitting), default=0)
        readings = readings or [one for one in fitting if one.bad == least]
    if len(readings) > 1:
        delimiter = readings[0].dialect.delimiter
        raise InputError(
            f"{uri} has {readings[0]}, or {readings[1]}; choose one: "
            f'--set \'dialect={{"delimiter": "{delimiter}"}}\''
        )
    found = readings[0] if readings else _find_quotes(text, {"delimiter": ",", **known})
    # A delimiter is one character; of two, every second field is empty.
    filled = [row for row in found.rows if row.filled]
    if filled and found.width > 2 and not any(any(row.fields[1::2]) for row in filled):
        raise InputError(
            f"{uri} has {2 * found.dialect.delimiter!r} between its fields, but a delimiter is one "
            "character; replace it, for example by a tab"
        )
    return found.dialect


def _find_quotes(text: str, known: dict[str, Any]) -> _DialectCandidate:
    """Return the reading by the way of quoting that leaves the fewest lines wrong."""
    delimiter = re.escape(known["delimiter"])
    begins = rf"(?m)(^|{delimiter}) *"
    wrapped = rf'{begins}"[^"\n]*"({delimiter}|\r?$)'
    quotes = [PLAIN.quote]
    if re.search(rf"{begins}'", text):
        quotes.append("'")
    if '"' in text and not re.search(wrapped, text):
        quotes.append("")
    blanks = (False, True) if re.search(rf"{delimiter} +[\"']", text) else (False,)
    escapes = ("", "\\") if "\\" in text else ("",)
    found = None
    for quote, skip, escape in itertools.product(quotes, blanks, escapes):
        way = {"quote": quote, "skip_initial_space": skip, "escape": escape}
        reading = _read(text, {**way, **known})
        if found is None or reading.wrong < found.wrong:
            found = reading
        if not found.wrong:
            break
    assert found
    return found


def _count_above(uri: str, rows: Sequence[_SampledRow], dialect: Dialect) -> int:
    """Return the number of lines above the header; raise InputError if there is no header."""
    if not rows:
        return 0
    table = _select_table(rows)
    width, usual = len(table[0].fields), _usual_count(table)
    header = 0
    for at, row in enumerate(rows[:_MOST_ABOVE]):
        filled = len(row.filled)
        if len(row.fields) == width and filled >= min(2, usual) and 2 * filled > usual:
            header = at
            break
    if header and _looks_like_data(rows[header], rows[header + 1 :]):
        before = rows[header - 1]
        if len(rows[0].fields) == width:
            header = 0
        elif before.fields:
            raise InputError(
                f"{uri}: row {before.line + 1}, {before}, has {len(before.fields)} fields, and the "
                f"rows below it have {width}; if it is the header, name each column in it"
            )
    if not header and _looks_like_data(rows[0], rows[1:]):
        names = dialect.delimiter.join(f"column{n}" for n in range(1, width + 1))
        raise InputError(
            f"{uri} has no header: its first row is {rows[0]}; add a first line with a name "
            f"for each column, such as {names[:80]!r}"
        )
    # Empty lines above the header are no rows.
    return rows[header].line if header else 0


def _usual_count(rows: Iterable[_SampledRow]) -> int:
    """Return the most common number of fields that are not blank."""
    return collections.Counter(len(row.filled) for row in rows).most_common(1)[0][0]


def _looks_like_data(row: _SampledRow, below: Sequence[_SampledRow]) -> bool:
    """Return whether a row has a number in each column of numbers below it."""
    columns = zip(*(one.fields for one in below if len(one.fields) == len(row.fields)), strict=True)
    numbers = []
    for field, column in zip(row.fields, columns, strict=False):
        values = [value for value in map(str.strip, column) if value]
        if sum(map(_is_number, values)) < 0.8 * max(1, len(values)):
            continue
        if not _is_number(field.strip()):
            return False
        numbers.append(field.strip())
    # Years and positions are names of columns.
    if not all(number.isdecimal() for number in numbers):
        return True
    found = list(map(int, numbers))
    steps = {later - earlier for earlier, later in itertools.pairwise(found)}
    if len(found) < 3 and all(1900 <= number <= 2100 for number in found):
        return steps == {0}
    return len(steps) != 1 or steps == {0} or (len(found) == 2 and steps != {1})


def _is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text))


def _find_below(rows: Sequence[_SampledRow], last: Sequence[_SampledRow]) -> list[_SampledRow]:
    """Return the last rows that are no examples: totals, notes and rows of empty fields.

    Args:
        last: the last rows of the file; `rows` itself if these are all.
    """
    table = [row for row in _select_table(rows) if row.filled]
    if len(table) < 3 or len(last) < 3:
        return []
    usual = _usual_count(table)
    below: list[_SampledRow] = []
    for row in reversed(last[1:]):
        word = next(iter(row.filled), "")
        is_total = _is_total(row, table) or (last is rows and _is_sum(row, table))
        is_note = usual > 2 and len(row.filled) == 1 and not (_is_number(word) and row.fields[0])
        is_blank = row.fields and not row.filled
        if not (is_total or is_note or is_blank):
            break
        below.insert(0, row)
    # A table that has many such rows has them on purpose.
    return below if len(below) <= 100 and len(below) < len(last) / 2 else []


def _find_totals(row: _SampledRow, table: Sequence[_SampledRow]) -> dict[str, bool]:
    """Return the fields of a row that begin with the word of a total, and whether it is all."""
    words = {field: match for field in row.filled if (match := _TOTAL.fullmatch(field))}
    return {
        field: not match[match.lastindex or 0].strip(" :*.")
        for field, match in words.items()
        if sum(field in one.filled for one in table) <= 1
    }


def _is_total(row: _SampledRow, table: Sequence[_SampledRow]) -> bool:
    """Return whether a row is named as a total and, unlike examples, has no value for a text."""
    words = _find_totals(row, table)
    others = [field for field in row.filled if field not in words]
    if any(words.values()) and all(map(_is_number, others)):
        return True
    return bool(words) and len(row.filled) < _usual_count(table)


def _may_be_total(rows: Sequence[_SampledRow], last: Sequence[_SampledRow]) -> bool:
    """Return whether the last row begins as a total, or has numbers alone where no other has."""
    width, _ = _find_width(rows)
    table = [row for row in rows[1:-1] if len(row.fields) == width]
    if not table or not last or len(last[-1].fields) != width:
        return False
    row = last[-1]
    empty = [at for at, field in enumerate(row.fields) if not field.strip()]
    is_alone = empty and all(one.fields[at].strip() for one in table for at in empty)
    return bool(_find_totals(row, table) or (is_alone and all(map(_is_number, row.filled))))


def _is_sum(row: _SampledRow, table: Sequence[_SampledRow]) -> bool:
    """Return whether the numbers of a row are the sums or the means of the columns above it."""
    above = [one for one in table if one.line < row.line and len(one.fields) == len(row.fields)]
    return len(above) > 5 and any(_equals_sums(row, above, point) for point in ".,")


def _equals_sums(row: _SampledRow, above: Sequence[_SampledRow], point: str) -> bool:
    is_incomplete = len(row.filled) < _usual_count(above)
    is_sure = False
    for at, field in enumerate(row.fields):
        if (value := _to_number(field, point)) is None:
            continue
        numbers = [_to_number(one.fields[at], point) for one in above]
        column = [number for number in numbers if number is not None]
        if not column:
            return False
        total, spread = math.fsum(column), max(column) - min(column)
        digits = field.partition(point)[2]
        rounding = 0.5 * 10.0 ** -sum(map(str.isdigit, digits)) + 1e-9 * abs(total)
        if abs(value - total) <= rounding:
            is_sure = is_sure or abs(total) > max(map(abs, column))
        elif abs(value - total / len(column)) <= rounding < 0.01 * spread:
            is_sure = is_sure or is_incomplete
        else:
            return False
    return is_sure


def _to_number(text: str, point: str) -> float | None:
    """Return the number that a text with this decimal point contains, whatever its unit."""
    if not _is_number(text.strip()):
        return None
    try:
        return float(re.sub(rf"[^\d{point}-]", "", text).replace(",", "."))
    except ValueError:
        return None


def _is_example(row: _SampledRow, table: Sequence[_SampledRow]) -> bool:
    """Return whether a row is filled as the others are, with a text that others have, if any."""
    if len(row.filled) < _usual_count(table) or _find_totals(row, table):
        return False
    texts = [(at, field) for at, field in enumerate(row.fields) if not _is_number(field.strip())]
    return not texts or any(
        at < len(one.fields) and one.fields[at] == field for at, field in texts for one in table
    )


def _list_notes(
    dialect: Dialect,
    above: Sequence[_SampledRow],
    rows: Sequence[_SampledRow],
    below: Sequence[_SampledRow],
) -> list[str]:
    notes = []
    if not dialect.is_utf8:
        examples = (
            f": {name.strip()!r} has {field.strip()!r}"
            for row in rows[1:]
            for name, field in zip(rows[0].fields, row.fields, strict=False)
            if not field.isascii()
        )
        notes.append(f"the encoding is {dialect.encoding}{next(examples, '')}")
    fields = (field for row in rows for field in row.fields)
    twice = ((field, once) for field in fields if (once := _decode_again(field)))
    for field, once in itertools.islice(twice, 1):
        notes.append(f"{field.strip()!r} may be {once.strip()!r}: was the file encoded twice?")
    if described := dataclasses.replace(dialect, skip_rows=0).describe():
        notes.append(described)
    if dialect.skip_rows:
        shown = next((str(row) for row in above if row.filled), "empty")
        lines = "line is" if dialect.skip_rows == 1 else f"{dialect.skip_rows} lines are"
        notes.append(f"the first {lines} left out, above the header: {shown}")
    if below:
        shown = next((str(row) for row in below if row.filled), "empty fields")
        rest = f"the last {len(below)} rows are" if len(below) > 1 else "the last row is"
        notes.append(f"{rest} left out: {shown}")
    return notes


def _decode_again(text: str) -> str:
    """Return text that was UTF-8, read as cp1252 and saved in UTF-8; empty if it was not."""
    if text.isascii():
        return ""
    try:
        return text.encode("cp1252").decode()
    except UnicodeError:
        return ""
