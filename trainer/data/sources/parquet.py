"""parquet:URI: a table as Parquet, one file, a folder of them, or a pattern.

Files end in .parquet. A row's key is `file:row`, from 1.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from trainer.data import storage
from trainer.data.tables.file_formats import HEAD_BYTES, check_format
from trainer.data.tables.table_source import FileReader
from vertex.errors import InputError

if TYPE_CHECKING:
    from trainer.data.tables.rows import Block


class ParquetReader(FileReader):
    """A table in Parquet files."""

    help = "a table as a Parquet file, a folder of them or a pattern"
    endings = (".parquet",)

    def _read_header(self, uri: str) -> tuple[str, ...]:
        with _opened(uri) as file:
            return tuple(file.schema_arrow.names)

    def blocks(self, file: int) -> Iterator[Block]:
        from trainer.data.tables.batches import BATCH_ROWS, ArrowBlock

        row = 1
        with _opened(self._uris[file]) as opened:
            for batch in opened.iter_batches(BATCH_ROWS, use_threads=False):
                yield ArrowBlock(file, row, batch)
                row += len(batch)


class _OpenFile:
    """A remote file with the attribute that Arrow needs and TensorFlow's files lack."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.read, self.seek, self.tell = file.read, file.seek, file.tell


@contextlib.contextmanager
def _opened(uri: str) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with storage.catch_read_errors(uri), storage.open_file(uri, "rb") as file:
            head = file.read(HEAD_BYTES)
            if not head.startswith(b"PAR1"):
                check_format(uri, head, "parquet")
                if not re.search(rb"[\0-\x08\x0e-\x1f]", head):
                    raise InputError(f"{uri} is text, not Parquet; use csv:{uri}")
            file.seek(0)
            if storage.is_remote(uri):
                file = pa.PythonFile(_OpenFile(file), "r")
            yield pa.parquet.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{uri} can't be read as Parquet ({reason}); write it again") from None
