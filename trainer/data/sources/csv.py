"""csv:URI: a table as comma-separated values, one file, a folder of them, or a pattern.

Files end in .csv or .csv.gz, and each has a header. A row's key is `file:line`, and its digest is
computed from its bytes.
"""

from collections.abc import Iterator
from typing import Any

from trainer.data.tables.table_source import FileReader


class CsvReader(FileReader):
    """A table in CSV files."""

    help = "a table as a CSV file, a folder of them or a pattern"
    endings = (".csv", ".csv.gz")

    def _read_header(self, uri: str) -> tuple[str, ...]:
        from trainer.data.tables.csv_text import read_header

        return tuple(read_header(uri))

    def blocks(self, file: int) -> Iterator[Any]:
        from trainer.data.tables.csv_text import read_blocks

        return read_blocks(self._uris[file], file, self._headers[file])
