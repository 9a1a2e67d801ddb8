"""excel:URI: a table as a sheet of an Excel workbook, a folder of them, or a pattern.

The first sheet that is not hidden is read, or the one that `dialect` names. Dates are read as ISO
8601, and whole numbers without a fraction. A row's key is `file:row`, as Excel counts rows, and its
digest is computed from the texts of its cells.
"""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trainer.data import storage
from trainer.data.tables.dialect import Dialect, Sniffed, parse_dialect
from trainer.data.tables.table_source import FileReader
from trainer.data.tables.text_stream import FORMAT_BYTES, find_mark
from vertex.errors import InputError, first_line
from vertex.formats import suggest

if TYPE_CHECKING:
    from trainer.data.tables.rows import Block, Rows

BLOCK_ROWS = 1 << 14
"""Number of rows that are passed to a process at once."""


class ExcelReader(FileReader):
    """A table in Excel workbooks."""

    help = "a sheet of an Excel workbook, a folder of them or a pattern"
    endings = (".xlsx", ".xlsm", ".xls")
    dialect_keys = ("sheet", "skip_rows", "footer_rows")

    @classmethod
    def sniff(cls, place: str, given: Mapping[str, Any] | None = None) -> Sniffed:
        from trainer.data.tables.sniffing import sniff_rows

        uri = cls.list_files(place)[0]
        dialect = parse_dialect(given or {})
        book = _open(uri)
        found = sniff_rows(uri, _read_sheet(uri, book, dialect), given)
        others = [] if dialect.sheet else _list_others(book)
        notes = [f"other sheets are not read: {', '.join(others)}"] if others else []
        return Sniffed(found.dialect, [*found.notes, *notes])

    def _read_header(self, uri: str) -> tuple[str, ...]:
        from trainer.data.tables.sniffing import check_cells

        book = _open(uri)
        rows = _read_table(uri, book, self._dialect)
        header = _list_names(rows)
        missing = [name for name in self._needed if name not in header]
        others = [] if self._dialect.sheet else _list_others(book)
        if others and (missing or not header):
            fits = (
                name
                for name in others
                if {*missing} <= {*_list_names(_read_table(uri, book, Dialect(sheet=name)))}
            )
            problem = f"has no column {missing[0]!r}" if header else "is empty"
            setting = json.dumps({"sheet": next(fits, others[0])}, ensure_ascii=False)
            raise InputError(
                f"{uri}: its sheet {_find_first(book)!r} {problem}; choose another, "
                f"{' or '.join(others)}: --set 'dialect={setting}'"
            )
        check_cells(uri, rows, self._dialect)
        return header

    def blocks(self, file: int) -> Iterator[Block]:
        uri = self._uris[file]
        rows = _read_table(uri, _open(uri), self._dialect)
        rows = rows[: len(rows) - self._dialect.footer_rows]
        for start in range(1, len(rows), BLOCK_ROWS):
            yield _Cells(file, self._headers[file], rows[start : start + BLOCK_ROWS])


class _Cells(NamedTuple):
    """Some rows of a sheet, as texts."""

    file: int
    names: Sequence[str]
    rows: list[tuple[int, list[str]]]  # the number and the cells of each

    def read(self, wanted: Sequence[str], lists: Sequence[str] = ()) -> Rows:
        import numpy as np
        import pyarrow as pa

        from trainer.data.source import digest
        from trainer.data.tables.rows import Rows

        places = {name: self.names.index(name) for name in wanted}
        return Rows(
            np.array([number for number, _ in self.rows], np.int64),
            b"".join(digest("\x1f".join(cells).encode()) for _, cells in self.rows),
            {
                name: pa.array([cells[at] for _, cells in self.rows], pa.string())
                for name, at in places.items()
            },
            [],
        )


def _open(uri: str) -> Any:
    import python_calamine

    content = b""
    try:
        content = storage.read(uri)
        return python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(content))
    except (OSError, python_calamine.CalamineError) as error:
        head = content[:FORMAT_BYTES]
        if head.lstrip().startswith(b"<"):
            raise InputError(
                f"{uri} is a web page or XML; open it in Excel, and save it as .xlsx"
            ) from None
        if head and (find_mark(head) or b"\0" not in head):
            raise InputError(f"{uri} is text; use csv:{uri}") from None
        reason = getattr(error, "strerror", None) or first_line(error)
        raise InputError(
            f"{uri} can't be read as an Excel workbook ({reason}); save it again as .xlsx, without "
            "a password"
        ) from None


def _read_sheet(uri: str, book: Any, dialect: Dialect) -> list[tuple[int, list[str]]]:
    """Return the number and the texts of each row of a sheet that is not empty."""
    name = dialect.sheet or _find_first(book)
    if name not in book.sheet_names:
        raise InputError(f"{uri} has no sheet {name!r}{suggest(name, book.sheet_names)}")
    cells = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
    rows = ((number, list(map(_to_text, row))) for number, row in enumerate(cells, 1))
    return [(number, row) for number, row in rows if any(row)]


def _find_first(book: Any) -> str:
    """Return the first sheet that is not hidden."""
    import python_calamine

    visible = python_calamine.SheetVisibleEnum.Visible
    shown = [sheet.name for sheet in book.sheets_metadata if sheet.visible == visible]
    return (shown or book.sheet_names)[0]


def _list_others(book: Any) -> list[str]:
    return [name for name in book.sheet_names if name != _find_first(book)]


def _list_names(rows: Sequence[tuple[int, list[str]]]) -> tuple[str, ...]:
    return tuple(name.strip() for name in rows[0][1]) if rows else ()


def _read_table(uri: str, book: Any, dialect: Dialect) -> list[tuple[int, list[str]]]:
    """Return the rows of a table, from the header to the footer."""
    rows = _read_sheet(uri, book, dialect)
    return [(number, row) for number, row in rows if number > dialect.skip_rows]


def _to_text(cell: Any) -> str:
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime.datetime):
        is_day = cell.time() == datetime.time()
        return cell.date().isoformat() if is_day else cell.isoformat(" ")
    return str(cell)
