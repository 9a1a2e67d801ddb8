"""csv:URI: a table as comma-separated values, one file, a folder of them, or a pattern.

Files end in .csv, or .csv.gz and the like, and each has a header. A row's key is `file:line`, and
its digest is computed from its bytes in UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainer.data.tables.dialect import Sniffed
from trainer.data.tables.table_source import FileReader

if TYPE_CHECKING:
    from trainer.data.tables.rows import Block


class CsvReader(FileReader):
    """A table in CSV files."""

    help = "a table as a CSV file, a folder of them or a pattern"
    endings = (".csv", ".csv.gz", ".csv.bz2", ".csv.xz", ".csv.zst", ".csv.zip")
    dialect_keys = (
        "encoding", "delimiter", "quote", "escape", "skip_initial_space", "line_end",
        "skip_rows", "footer_rows",
    )  # fmt: skip

    @classmethod
    def sniff(cls, place: str, given: Mapping[str, Any] | None = None) -> Sniffed:
        from trainer.data.tables.sniffing import sniff

        return sniff(cls.list_files(place)[0], given)

    def _read_header(self, uri: str) -> tuple[str, ...]:
        from trainer.data.tables.sniffing import read_header

        first = self._uris[0] if uri != self._uris[0] else ""
        return tuple(read_header(uri, self._dialect, self._needed, first))

    def blocks(self, file: int) -> Iterator[Block]:
        from trainer.data.tables.csv_text import read_blocks

        return read_blocks(self._uris[file], file, self._headers[file], self._dialect)
