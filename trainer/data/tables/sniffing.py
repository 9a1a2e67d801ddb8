"""Find the dialect of a CSV file from its beginning and its end.

    found = sniff("sales.csv")
    found.dialect.settings  # {"encoding": "cp949", "footer_rows": 1}, for a recipe
    found.notes             # ["the last row, 'Total,,300', is left out"]

What can be read in two ways is refused with both, because a wrong guess would be silent.
"""

import codecs
import collections
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trainer.data.tables import csv_text
from trainer.data.tables.dialect import PLAIN, Dialect, Sniffed, parse_dialect
from trainer.data.tables.encodings import find_encoding
from trainer.data.tables.file_formats import check_format
from trainer.data.tables.text_stream import (
    DialectError,
    count_damaged,
    decode,
    find_mark,
    is_damaged,
    open_bytes,
    read_ends,
)
from trainer.errors import InputError

SAMPLE_BYTES = 2 * 10**6
_ROWS = 2000
"""Rows that are compared with each candidate."""
_TAIL_BYTES = 1 << 16
_DELIMITERS = (",", ";", "\t", "|")
_RARE_DELIMITERS = ("^", "~", ":", "\x01")
_MOST_ABOVE = 20
_REGULAR = 0.8
"""Least share of the rows that have the most common number of fields."""
_CONTROLS = [chr(code) for code in (0, *range(2, 9), *range(14, 32))]
_SEPARATOR = re.compile(r'"?sep=(.)"?,*', re.IGNORECASE)
_NUMBER = re.compile(r"[^\w]*\d[\d.,'\s:/\-]*(?:e[-+]?\d+)?[^\w]*", re.IGNORECASE)
_TOTAL = re.compile(
    r"(grand |sub)?totals?|sums?|summe|gesamt(summe)?|insgesamt|total(e|i|es)?|totaal|toplam|suma|"
    r"razem|somme|celkem|spolu|összesen|ukupno|yhteensä|i alt|totalt|итого|всего|сума|разом|σύνολο|"
    r"합계|총계|총합계|소계|合計|総計|合计|总计|總計|小计|小計|總和|संपूर्ण|कुल|योग|المجموع|الإجمالي|סה\"כ|รวม|"
    r"tổng( cộng)?",
    re.IGNORECASE,
)


class _Row(NamedTuple):
    line: int  # number of lines before it
    fields: list[str]  # empty if its quotes are wrong

    @property
    def filled(self) -> int:
        return sum(bool(field.strip()) for field in self.fields)

    def __str__(self) -> str:
        return repr(",".join(self.fields)[:60])


def sniff(uri: str, given: Mapping[str, Any] | None = None) -> Sniffed:
    """Return the dialect of a CSV file.

    Raise InputError if the file can't be read, is no table, has no header, or can be read in two
    ways, which a value in `given` can decide: it has the form of the option `dialect`.
    """
    known = dict(given or {})
    parse_dialect(known)
    raw, is_whole = _read_sample(uri)
    if not raw:
        raise InputError(f"{uri} is empty: it has no header; use a table with a header")
    encoding = known["encoding"] = known.get("encoding") or _find_encoding(uri, raw)
    text = decode(raw, encoding, "replace")
    if "\n" not in text and "\r" in text:
        known.setdefault("line_end", "\r")
    if known.get("line_end") == "\r":
        text = text.replace("\r", "\n")
    if not is_whole:
        text = text[: text.rfind("\n") + 1]
    first = _SEPARATOR.fullmatch(text.partition("\n")[0].rstrip("\r"))
    if first and first[1].isascii():
        known.setdefault("delimiter", first[1])
    if sum(map(text.count, _CONTROLS)) > 0.01 * len(text):
        raise InputError(f"{uri} is not text; save its table as CSV in UTF-8")
    dialect = _find_fields(uri, text, known)
    rows = list(_read_rows(text, dialect))
    if rows:
        _check_double(uri, dialect, rows[:_ROWS])
    last = rows if is_whole else None
    known = {**dialect.settings, **known}
    return _find_borders(uri, rows, last, known)


def sniff_rows(
    uri: str, rows: Iterable[tuple[int, list[str]]], given: Mapping[str, Any] | None = None
) -> Sniffed:
    """Return the dialect of a file that consists of cells; each row has its number, from 1.

    Raise InputError as `sniff` does.
    """
    read = [_Row(number - 1, cells) for number, cells in rows]
    return _find_borders(uri, read, read, dict(given or {}))


def _find_borders(
    uri: str, rows: list[_Row], last: list[_Row] | None, known: dict[str, Any]
) -> Sniffed:
    """Return the dialect with the rows that are above and below the table.

    Args:
        last: the last rows of the file; None: they are not read yet.
    """
    dialect = parse_dialect(known)
    above = known.get("skip_rows", _count_above(uri, rows, dialect))
    dialect = parse_dialect({**known, "skip_rows": above})
    skipped = [row for row in rows if row.line < above]
    rows = [row for row in rows if row.line >= above]
    below: list[_Row] = []
    if "footer_rows" not in known:
        below = _find_below(rows, list(_read_tail(uri, dialect)) if last is None else last)
        dialect = parse_dialect({**known, "skip_rows": above, "footer_rows": len(below)})
    return Sniffed(dialect, _list_notes(dialect, skipped, rows, below))


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
        if first and not dialect.is_utf8:
            _compare_encodings(uri, first, dialect)
    except DialectError as error:
        raise _explain(uri, dialect, str(error)) from None
    if header and any(name not in header for name in needed):
        try:
            found = sniff(uri, {"encoding": dialect.encoding}).dialect
        except DialectError as error:
            raise _explain(uri, dialect, str(error)) from None
        header_found = csv_text.read_header(uri, found)
        if found != dialect and all(name in header_found for name in needed):
            raise _explain(uri, dialect, f"{uri} is {found.describe()}")
    return header


def _explain(uri: str, dialect: Dialect, problem: str) -> InputError:
    """Return the error for a file in another dialect: what it is, and what to do."""
    found = sniff(uri).dialect
    if dialect == PLAIN:
        return InputError(
            f"{problem}; to read it, add dialect = {found} to the recipe, or let recipes new write "
            "one"
        )
    return InputError(
        f"{problem}; the dialect is {dialect}, and this file's is {found}: correct the dialect, "
        "convert the file, or move it to another folder"
    )


def _compare_encodings(uri: str, first: str, dialect: Dialect) -> None:
    """Raise DialectError if a file is surely in another encoding than the table's first file."""
    if find_mark(_read_sample(first)[0]) or find_mark(_read_sample(uri)[0]):
        return
    names = []
    for file in (first, uri):
        sample = _read_sample(file)[0]
        if sample.isascii():
            return
        try:
            name = find_encoding(file, sample)
        except InputError:
            return
        is_same = decode(sample, name, "replace") == decode(sample, dialect.encoding, "replace")
        names.append(dialect.encoding if is_same else name)
    # The user knows better than the sample of the first file.
    if names[0] == dialect.encoding != names[1]:
        raise DialectError(f"{uri} is in {names[1]}, not in {dialect.encoding}")


def _read_sample(uri: str) -> tuple[bytes, bool]:
    """Return a file's first bytes, decompressed, and whether these are all."""
    with open_bytes(uri) as file:
        raw = b""
        while len(raw) <= SAMPLE_BYTES and (part := file.read(SAMPLE_BYTES + 1 - len(raw))):
            raw += part
    check_format(uri, raw)
    return raw[:SAMPLE_BYTES], len(raw) <= SAMPLE_BYTES


def _find_encoding(uri: str, raw: bytes) -> str:
    if mark := find_mark(raw):
        return mark
    # In UTF-8, a few rows may be damaged; in another encoding, hardly any character is valid UTF-8.
    bad, _ = count_damaged(raw, "utf-8")
    if not bad or not (is_damaged(raw, "utf-8") or decode(raw, "utf-8", "ignore").isascii()):
        return "utf-8"
    return find_encoding(uri, raw)


def _read_rows(text: str, dialect: Dialect) -> Iterator[_Row]:
    for line, row in csv_text.split_rows(text.encode("utf-8", "replace"), dialect):
        try:
            fields = csv_text.split_fields(row, dialect)
        except csv_text.BadRowError:
            fields = []
        yield _Row(line, fields)


def _width(rows: Sequence[_Row]) -> tuple[int, float]:
    """Return the most common number of fields, and the share of the rows that have it."""
    counts = collections.Counter(len(row.fields) for row in rows)
    width, count = max(counts.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
    return width, count / max(1, len(rows))


def _find_fields(uri: str, text: str, known: dict[str, Any]) -> Dialect:
    """Return the dialect with the delimiter and the quotes of a text."""
    head = text[: 1 << 18]
    if len(head) < len(text):
        head = head[: head.rfind("\n") + 1] or head
    candidates = []
    delimiters = [known["delimiter"]] if "delimiter" in known else _DELIMITERS
    for delimiter in delimiters:
        candidate = _find_quotes(head, {**known, "delimiter": delimiter})
        rows = list(itertools.islice(_read_rows(head, candidate), _ROWS))
        width, share = _width(rows)
        above = next((n for n, row in enumerate(rows) if len(row.fields) == width), 0)
        candidates.append((candidate, width, share, above, rows))
    if len(candidates) == 1:
        return candidates[0][0]
    fitting = [one for one in candidates if one[1] > 1 and one[2] >= _REGULAR]
    if not fitting:
        return _find_rare_delimiter(head, known) or candidates[0][0]
    # First those with the fewest irregular rows in the table, then those with the first header.
    order = [(_count_irregular(rows, width, above), above) for _, width, _, above, rows in fitting]
    fitting = [one for one, rank in zip(fitting, order, strict=True) if rank == min(order)]
    if len(fitting) > 1:
        first, second = fitting[:2]
        raise InputError(
            f"{uri} has {first[1]} fields a row with {first[0].delimiter!r} between them, such as "
            f"{first[4][-1].fields[0]!r}, or {second[1]} with {second[0].delimiter!r}, such as "
            f"{second[4][-1].fields[0]!r}; choose one: "
            f'--set \'dialect={{"delimiter": "{first[0].delimiter}"}}\''
        )
    return fitting[0][0]


def _count_irregular(rows: Sequence[_Row], width: int, above: int) -> int:
    return sum(len(row.fields) != width for row in rows[above:])


def _check_double(uri: str, dialect: Dialect, rows: Sequence[_Row]) -> None:
    """Raise InputError if each delimiter is written twice."""
    if len(rows[0].fields) > 2 and not any(any(row.fields[1::2]) for row in rows):
        double = 2 * dialect.delimiter
        raise InputError(
            f"{uri} has {double!r} between its fields, but a delimiter is one character; replace "
            "it, for example by a tab"
        )


def _find_rare_delimiter(head: str, known: dict[str, Any]) -> Dialect | None:
    for delimiter in _RARE_DELIMITERS:
        candidate = parse_dialect({**known, "delimiter": delimiter})
        width, share = _width(list(itertools.islice(_read_rows(head, candidate), _ROWS)))
        if width > 2 and share > 0.98:
            return candidate
    return None


def _find_quotes(text: str, known: dict[str, Any]) -> Dialect:
    """Return the dialect with the way of quoting that leaves the fewest rows irregular."""
    delimiter = re.escape(known["delimiter"])
    lines = text.split("\n", 200)[:200]
    if "quote" not in known and '"' not in text:
        single = re.compile(rf"(^|{delimiter})\s*'[^']*'\s*({delimiter}|$)")
        if sum(bool(single.search(line)) for line in lines) > len(lines) / 2:
            known = {**known, "quote": "'"}
    plain = parse_dialect(known)
    if plain.quote not in text or not plain.quote:
        return _find_escapes(text, plain, known)
    best, least = plain, _count_bad(text, plain)
    blanks = re.search(rf"{delimiter} +{plain.quote}", text)
    variants: list[dict[str, Any]] = []
    if blanks:
        variants.append({"skip_initial_space": True})
    if "\\" in text:
        variants += [{"escape": "\\"}, *({**one, "escape": "\\"} for one in variants)]
    is_wrapped = re.search(
        rf"(^|{delimiter}){plain.quote}[^{plain.quote}\n]*{plain.quote}({delimiter}|\r?$)",
        text,
        re.MULTILINE,
    )
    if "quote" not in known and not is_wrapped and not blanks:
        variants.append({"quote": ""})
    for variant in variants:
        candidate = parse_dialect({**known, **variant})
        bad = _count_bad(text, candidate)
        # Otherwise the quotes would stay in the fields.
        is_better = bad <= least if variant == {"skip_initial_space": True} else bad < least
        if is_better:
            best, least = candidate, bad
    return best


def _find_escapes(text: str, plain: Dialect, known: dict[str, Any]) -> Dialect:
    if "escape" in known or f"\\{plain.delimiter}" not in text:
        return plain
    escaped = parse_dialect({**known, "escape": "\\"})
    return escaped if _count_bad(text, escaped) < _count_bad(text, plain) else plain


def _count_bad(text: str, dialect: Dialect) -> int:
    """Return the number of lines that are not in rows of the most common number of fields."""
    rows = list(itertools.islice(_read_rows(text, dialect), _ROWS))
    width, _ = _width([row for row in rows if row.fields])
    if not rows:
        return 0
    lines = rows[-1].line + 1
    return lines - sum(len(row.fields) == width for row in rows)


def _count_above(uri: str, rows: Sequence[_Row], dialect: Dialect) -> int:
    """Return the number of lines above the header; raise InputError if there is no header."""
    width, _ = _width(rows)
    filled = collections.Counter(row.filled for row in rows if len(row.fields) == width)
    usual = filled.most_common(1)[0][0] if filled else 0
    header = 0
    for at, row in enumerate(rows[:_MOST_ABOVE]):
        if len(row.fields) == width and row.filled >= min(2, usual) and 2 * row.filled > usual:
            header = at
            break
    if header and _looks_like_data(rows[header], rows[header + 1 :]):
        if len(rows[0].fields) == width:
            header = 0
        elif rows[header - 1].fields:
            raise InputError(
                f"{uri}: row {rows[header - 1].line + 1}, {rows[header - 1]}, has "
                f"{len(rows[header - 1].fields)} fields, and the rows below it have {width}; if it "
                "is the header, name each column in it"
            )
    if not rows or not header:
        if rows and _looks_like_data(rows[0], rows[1:]):
            names = dialect.delimiter.join(f"column{n}" for n in range(1, width + 1))
            raise InputError(
                f"{uri} has no header: its first row is {rows[0]}; add a first line with a name "
                f"for each column, such as {names[:80]!r}"
            )
        return 0
    # Empty lines above the header are no rows.
    return rows[header].line


def _looks_like_data(row: _Row, below: Sequence[_Row]) -> bool:
    """Return whether a row has a number in each column of numbers below it."""
    below = [other for other in below if len(other.fields) == len(row.fields)]
    if not below:
        return False
    numbers = []
    for index, field in enumerate(row.fields):
        values = [other.fields[index].strip() for other in below if other.fields[index].strip()]
        share = sum(bool(_NUMBER.fullmatch(value)) for value in values) / max(1, len(values))
        if share < 0.8:
            continue
        if not _NUMBER.fullmatch(field.strip()):
            return False
        numbers.append(field.strip())
    if not numbers:
        return False
    # Years and positions are names of columns.
    if all(number.isdecimal() for number in numbers):
        found = list(map(int, numbers))
        steps = {later - earlier for earlier, later in itertools.pairwise(found)}
        if len(steps) == 1 and steps != {0}:
            return False
        if len(found) == 1 and 1900 <= found[0] <= 2100:
            return False
    return True


def _find_below(rows: Sequence[_Row], last: Sequence[_Row]) -> list[_Row]:
    """Return the last rows that are no examples: totals, notes and rows of empty fields."""
    width, _ = _width(rows)
    table = [row for row in rows if len(row.fields) == width and row.filled]
    if len(table) < 3 or len(last) < 3:
        return []
    usual = collections.Counter(row.filled for row in table).most_common(1)[0][0]
    seen = collections.Counter(_first_text(row) for row in table)
    below: list[_Row] = []
    for row in reversed(last[1:]):
        word = _first_text(row)
        total = _TOTAL.fullmatch(word.strip(" :*.").lower())
        is_total = bool(total) and seen[word] <= 1
        is_note = (
            usual > 2 and row.filled == 1 and (not _NUMBER.fullmatch(word) or not row.fields[0])
        )
        if not (is_total or is_note or (not row.filled and row.fields)):
            break
        below.append(row)
    # A table that has many such rows has them on purpose.
    return below[::-1] if len(below) <= 100 and len(below) < len(last) / 2 else []


def _first_text(row: _Row) -> str:
    return next((field.strip() for field in row.fields if field.strip()), "")


def _read_tail(uri: str, dialect: Dialect) -> Iterator[_Row]:
    """Yield the last rows of a file."""
    head, tail = read_ends(uri, _TAIL_BYTES)
    encoding = dialect.encoding
    if find_mark(head) in ("utf-16", "utf-32"):  # Its order of bytes is written at the start alone.
        order = "le" if head[:2] == codecs.BOM_UTF16_LE else "be"
        encoding = f"{find_mark(head)}-{order}"
    text = decode(tail, encoding, "replace")
    if dialect.line_end == "\r":
        text = text.replace("\r", "\n")
    yield from _read_rows(text.partition("\n")[2], dialect)


def _list_notes(
    dialect: Dialect, above: Sequence[_Row], rows: Sequence[_Row], below: Sequence[_Row]
) -> list[str]:
    notes = []
    if not dialect.is_utf8:
        example = next(
            (
                f": {name.strip()!r} has {field.strip()!r}"
                for row in rows[1:]
                for name, field in zip(rows[0].fields, row.fields, strict=False)
                if not field.isascii()
            ),
            "",
        )
        notes.append(f"the encoding is {dialect.encoding}{example}")
    fields = dataclasses.replace(dialect, encoding=PLAIN.encoding, skip_rows=0, footer_rows=0)
    if fields != PLAIN:
        notes.append(f"the file is {fields.describe()}")
    if dialect.skip_rows:
        shown = next((str(row) for row in above if row.filled), "empty")
        lines = "line is" if dialect.skip_rows == 1 else f"{dialect.skip_rows} lines are"
        notes.append(f"the first {lines} left out, above the header: {shown}")
    if below:
        shown = next((str(row) for row in below if row.filled), "empty fields")
        rest = f"the last {len(below)} rows are" if len(below) > 1 else "the last row is"
        notes.append(f"{rest} left out: {shown}")
    return notes
