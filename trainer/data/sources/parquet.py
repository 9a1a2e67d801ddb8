"""parquet:URI: a table as Parquet, one file, a folder of them, or a pattern.

Files end in .parquet. A row's key is `file:row`, from 1.
"""

import contextlib
import io
from collections.abc import Iterator
from typing import Any, BinaryIO

from trainer.data import storage
from trainer.data.tables.file_formats import HEAD_BYTES, check_format, is_text
from trainer.data.tables.table_source import FileReader
from trainer.errors import InputError


class ParquetReader(FileReader):
    """A table in Parquet files."""

    help = "a table as a Parquet file, a folder of them or a pattern"
    endings = (".parquet",)

    def _read_header(self, uri: str) -> tuple[str, ...]:
        with _opened(uri) as file:
            return tuple(file.schema_arrow.names)

    def blocks(self, file: int) -> Iterator[Any]:
        from trainer.data.tables.batches import BATCH_ROWS, Batch

        row = 1
        with _opened(self._uris[file]) as opened:
            for batch in opened.iter_batches(BATCH_ROWS, use_threads=False):
                yield Batch(file, row, batch)
                row += len(batch)


class _RandomAccess(io.RawIOBase):
    """A remote file with all methods that Arrow needs, some of which TensorFlow's files lack."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def readinto(self, buffer: Any, /) -> int:
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


@contextlib.contextmanager
def _opened(uri: str) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with storage.catch_read_errors(uri), storage.open_file(uri, "rb") as file:
            head = file.read(HEAD_BYTES)
            if not head.startswith(b"PAR1"):
                check_format(uri, head)
                if is_text(head):
                    raise InputError(f"{uri} is text, not Parquet; use csv:{uri}")
            file.seek(0)
            yield pa.parquet.ParquetFile(_RandomAccess(file) if storage.is_remote(uri) else file)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{uri} can't be read as Parquet ({reason}); write it again") from None
