"""jsonl:URI: a table as JSON Lines, one file, a folder of them, or a pattern.

Each line is an object, whose names are the columns. A file's columns are the names in its first
2 MB; others are ignored, and `recipes new` names them. A name that a line lacks is a missing value,
as null is. A row's key is `file:line`, and its digest is computed from the line's bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trainer.data.tables.dialect import Dialect
from trainer.data.tables.table_source import FileReader
from vertex.errors import InputError

if TYPE_CHECKING:
    from trainer.data.tables.rows import Block, Rows


class JsonLinesReader(FileReader):
    """A table in files of JSON Lines."""

    help = "a table as a file of JSON Lines, a folder of them or a pattern"
    endings = (".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.bz2", ".jsonl.xz", ".jsonl.zst")

    def _read_header(self, uri: str) -> tuple[str, ...]:
        lines = next(_read_lines(uri, 0, ()), None)
        if lines is None:
            return ()
        if lines.text.lstrip().startswith(b"["):
            raise InputError(
                f"{uri} is one list in JSON; write each row on a line of its own: jq -c '.[]' FILE"
            )
        rejections: list[tuple[int, str]] = []
        rows = lines.parse(rejections)
        names = tuple(dict.fromkeys(name for _, _, row in rows for name in row))
        if rejections and not names:
            is_object = lines.text.lstrip().startswith(b"{")
            remedy = ": jq -c . FILE" if is_object else f", or use csv:{uri} if that is its format"
            number, reason = rejections[0]
            raise InputError(
                f"{uri}:{number}: {reason}; write each row as an object on its own line{remedy}"
            )
        return names

    def blocks(self, file: int) -> Iterator[Block]:
        return _read_lines(self._uris[file], file, self._headers[file])


class _Lines(NamedTuple):
    """Complete lines of a file."""

    file: int
    names: Sequence[str]
    first_line: int
    text: bytes

    def read(self, wanted: Sequence[str], lists: Sequence[str] = ()) -> Rows:
        import numpy as np

        from trainer.data.source import digest
        from trainer.data.tables.rows import Rows

        rejections: list[tuple[int, str]] = []
        rows = list(self.parse(rejections))
        columns = {
            name: _to_array(name, [row.get(name) for *_, row in rows], name in lists)
            for name in wanted
        }
        digests = b"".join(digest(line) for _, line, _ in rows)
        numbers = np.array([number for number, *_ in rows], np.int64)
        late = {name for *_, row in rows for name in row} - {*self.names}
        return Rows(numbers, digests, columns, rejections, frozenset(late))

    def parse(self, rejections: list[tuple[int, str]]) -> Iterator[tuple[int, bytes, dict]]:
        """Yield the number, the bytes and the object of each line; add others to `rejections`."""
        for number, line in enumerate(self.text.split(b"\n"), self.first_line):
            line = line.strip()
            if not line:
                continue
            try:
                row = json.loads(line)
                if b"\\ud" in line.lower():
                    json.dumps(row, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                rejections.append((number, "row has half of a surrogate pair, which is not text"))
                continue
            except (ValueError, RecursionError) as error:
                rejections.append((number, f"row is not JSON: {error}"))
                continue
            if not isinstance(row, dict):
                rejections.append((number, "row is not an object of JSON"))
            else:
                yield number, line, row


def _read_lines(uri: str, file: int, names: Sequence[str]) -> Iterator[_Lines]:
    from trainer.data.tables.csv_text import read_blocks
    from trainer.data.tables.text_stream import DialectError

    try:
        for block in read_blocks(uri, file, names, Dialect(quote=""), "jsonl"):
            yield _Lines(file, names, block.first_line, block.text)
    except DialectError as error:
        raise InputError(f"{error}; save it in UTF-8, with LF at the end of each line") from None


def _to_array(name: str, values: list[Any], takes_lists: bool) -> Any:
    import pyarrow as pa

    kinds = {type(value) for value in values} - {type(None)}
    if takes_lists and kinds == {list}:
        return pa.array(
            [value and [_to_text(name, item) for item in value] for value in values],
            pa.list_(pa.string()),
        )
    if kinds in ({float}, {bool}):
        return pa.array(values)
    return pa.array(
        [None if value is None else _to_text(name, value) for value in values], pa.string()
    )


def _to_text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        raise InputError(
            f"the table's column {name!r} contains lists, which only a label can; give it "
            'type = "multilabel" and lists in all rows, or use another column'
        )
    if isinstance(value, dict):
        raise InputError(
            f"the table's column {name!r} contains objects, which are neither numbers nor text; "
            "use another column, or write its parts as columns of their own"
        )
    return json.dumps(value)
