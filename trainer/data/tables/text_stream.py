"""Read the text of a table's file as UTF-8 with lines that end in LF, whatever the file contains.

A file may be compressed by gzip, bzip2, xz or zstd, or be the only file in a ZIP archive, whatever
its name. Bytes that the dialect's encoding does not have become bytes that UTF-8 does not have, so
that only their rows are lost.
"""

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

from trainer.data import storage
from trainer.data.tables.dialect import PLAIN, Dialect
from trainer.data.tables.file_formats import check_format
from trainer.errors import InputError

HEAD_BYTES = 1 << 16
"""Size of a file's beginning that is compared with the dialect."""
_TOLERATED = 0.01
"""Share of lines that may be damaged; their rows are rejected one by one."""
_COMPRESSED: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
_ZSTD, _ZIP = b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_BYTE_ORDER_MARKS = {
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-8": (codecs.BOM_UTF8,),
}
_INVALID = "\udc80"
codecs.register_error("mark", lambda error: (_INVALID, error.end))  # type: ignore[attr-defined]


class DialectError(InputError):
    """A file is not in the dialect that it is to be read in; the message says why."""


@contextlib.contextmanager
def open_text(uri: str, dialect: Dialect = PLAIN, reader: str = "csv") -> Iterator[Any]:
    """Open a file whose `read(size)` returns text as bytes in UTF-8 with LF, without its BOM.

    Raise InputError if it can't be read, is damaged or no table, and DialectError if its beginning
    is not in the dialect.
    """
    with open_bytes(uri) as file:
        head = file.read(HEAD_BYTES)
        check_format(uri, head, reader)
        if problem := _find_difference(head, dialect):
            raise DialectError(f"{uri} {problem}")
        yield _Text(head, file, dialect)


@contextlib.contextmanager
def open_bytes(uri: str) -> Iterator[Any]:
    """Open a file, decompressed; raise InputError if it can't be read or is damaged."""
    try:
        with storage.catch_read_errors(uri), contextlib.ExitStack() as stack:
            file = stack.enter_context(storage.open_file(uri, "rb"))
            yield _decompress(uri, file, stack)
    except (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{uri} can't be read ({reason}); fix it, or download it again") from None


def _decompress(uri: str, file: Any, stack: contextlib.ExitStack) -> Any:
    head = file.read(8)
    file.seek(0)
    for magic, opened in _COMPRESSED.items():
        if head.startswith(magic):
            return stack.enter_context(opened(file))
    if head.startswith(_ZSTD):
        import pyarrow as pa

        whole = pa.PythonFile(file, "r") if storage.is_remote(uri) else file
        return stack.enter_context(pa.CompressedInputStream(whole, "zstd"))
    if head.startswith(_ZIP):
        archive = stack.enter_context(zipfile.ZipFile(file))
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if "[Content_Types].xml" in names:
            raise InputError(f"{uri} is an Excel workbook; use excel:{uri}")
        # Finder adds a folder of attributes.
        names = [name for name in names if not name.startswith("__MACOSX/")]
        if len(names) != 1:
            raise InputError(
                f"{uri} is a ZIP archive of {len(names)} files; extract the tables into a folder"
            )
        if archive.getinfo(names[0]).flag_bits & 1:
            raise InputError(f"{uri} is an encrypted ZIP archive; extract the table from it")
        return stack.enter_context(archive.open(names[0]))
    return file


def read_ends(uri: str, size: int) -> tuple[bytes, bytes]:
    """Return a file's first and last bytes, `size` of each, decompressed.

    The last ones begin at a multiple of 4 bytes.
    """
    with open_bytes(uri) as file:
        head = tail = file.read(size)
        compressed = (gzip.GzipFile, bz2.BZ2File, lzma.LZMAFile, zipfile.ZipExtFile)
        if isinstance(file, compressed) or not file.seekable():
            length = len(head)
            while part := file.read(storage.CHUNK):
                length += len(part)
                tail = (tail + part)[-size - length % 4 :]
        else:
            file.seek(max(0, storage.size(uri) - size) // 4 * 4)
            tail = file.read()
    return head, tail


class _Text(io.RawIOBase):
    """A file that is transcoded as it is read."""

    def __init__(self, head: bytes, file: Any, dialect: Dialect) -> None:
        self._head, self._file = head, file
        name = dialect.encoding
        self._decoder = None if dialect.is_utf8 else codecs.getincrementaldecoder(name)("mark")
        self._returns = dialect.line_end == "\r"
        self._is_first = True

    def read(self, size: int = -1) -> bytes:
        """Return some text, of about `size` bytes; empty at the end."""
        text = b""
        while not text:
            raw = self._head or self._file.read(size)
            self._head, text = b"", raw
            if self._decoder:
                decoded = self._decoder.decode(raw, final=not raw)
                text = decoded.encode("utf-8", "surrogatepass")
            if self._returns:
                text = text.replace(b"\r", b"\n")
            if self._is_first and text:
                text, self._is_first = text.removeprefix(codecs.BOM_UTF8), False
            if not raw:
                break
        return text


def decode(raw: bytes, encoding: str, errors: str = "strict") -> str:
    """Decode the beginning of a file, whose last character may be cut, without its BOM."""
    return codecs.getincrementaldecoder(encoding)(errors).decode(raw).removeprefix("\ufeff")


def find_mark(head: bytes) -> str:
    """Return the encoding that a file's BOM or its null bytes tell; empty if they tell none."""
    for name, marks in _BYTE_ORDER_MARKS.items():
        if head.startswith(marks):
            return name
    even, odd = head[::2].count(0), head[1::2].count(0)
    # Text in UTF-16 contains at least line ends and delimiters.
    if max(even, odd) > 0.02 * len(head) and min(even, odd) < 0.1 * max(even, odd):
        return "utf-16-be" if even > odd else "utf-16-le"
    return ""


def count_damaged(text: bytes, encoding: str) -> tuple[int, int]:
    """Return the number of lines that are not in an encoding, and of all lines."""
    lines = decode(text, encoding, "mark").splitlines()
    return sum(_INVALID in line for line in lines), len(lines)


def is_damaged(text: bytes, encoding: str) -> bool:
    """Return whether more lines than a few are not in an encoding."""
    bad, lines = count_damaged(text, encoding)
    return bad > max(1, _TOLERATED * lines)


def _find_difference(head: bytes, dialect: Dialect) -> str:
    """Return what contradicts the dialect in a file's beginning; empty if nothing does."""
    name = codecs.lookup(dialect.encoding).name
    mark = find_mark(head)
    if mark.startswith("utf-16") and not name.startswith("utf-16"):
        return f"is in UTF-16, not in {dialect.encoding}"
    if mark == "utf-32" and name != mark:
        return f"is in UTF-32, not in {dialect.encoding}"
    if name == "utf-16" and mark != "utf-16":
        return "has no byte order mark, so it is not in utf-16"
    if not name.startswith(("utf-16", "utf-32")):
        if not dialect.is_utf8 and not head.isascii() and _is_utf8(head):
            return f"is in UTF-8, not in {dialect.encoding}"
        if not head.isascii() and is_damaged(head, dialect.encoding):
            return f"is not in {'UTF-8' if dialect.is_utf8 else dialect.encoding}"
        has_returns, has_feeds = b"\r" in head, b"\n" in head
        if dialect.line_end == "\n" and has_returns and not has_feeds:
            return "has lines that end in CR alone"
        if dialect.line_end == "\r" and has_feeds:
            return "has lines that end in LF"
    return ""


def _is_utf8(head: bytes) -> bool:
    try:
        decode(head, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
