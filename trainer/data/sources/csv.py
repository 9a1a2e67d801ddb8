"""csv:URI: a table as comma-separated values, one file, a folder of them, or a pattern.

Files end in .csv or .csv.gz and have a header each. A row is known as `file:line`, and its digest
is that of its bytes.
"""

from collections.abc import Iterator

from trainer.data.tables.files import FileReader
from trainer.data.tables.parsing import Rows
from trainer.data.tables.rows import Block, read_blocks, read_header, read_rows


class CsvReader(FileReader):
    """Reads CSV files."""

    scheme = "csv"

    def _header(self, uri: str) -> tuple[str, ...]:
        return tuple(read_header(uri))

    def blocks(self) -> Iterator[Block]:
        for file, uri in enumerate(self._uris):
            yield from read_blocks(uri, file)

    def read(self, block: Block) -> Rows:
        return read_rows(block, self._headers[block.file], self._wanted)


open_source = CsvReader.open
