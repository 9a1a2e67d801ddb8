"""Read the text of a table's file as UTF-8 with lines that end in LF, whatever the file contains.

A file may be compressed by gzip, bzip2, xz or zstd, or be the only file in a ZIP archive, whatever
its name. Bytes that the dialect's encoding does not have become bytes that UTF-8 does not have, so
that only their rows are lost.
"""

import bz2
import codecs
import contextlib
import gzip
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

from trainer.data import storage
from trainer.data.tables.dialect import Dialect
from vertex.errors import InputError

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
FORMAT_BYTES = 512
"""Number of first bytes that tell a file's format."""
_EXTRACT = "extract the table from it"
_FORMATS = (
    # CSV text may begin with PAR1, but has no control character there.
    (rb"PAR1[\0-\x08\x0e-\x1f]", "a Parquet file", "use parquet:{uri}"),
    (rb"PK\x03\x04(.{26}\[Content_Types\]|.*xl/)", "an Excel workbook", "use excel:{uri}"),
    (rb"PK\x03\x04", "a ZIP archive", f"{_EXTRACT}, or use csv:{{uri}} if it contains CSV"),
    (rb"\xd0\xcf\x11\xe0", "an Excel workbook", "use excel:{uri}"),
    (rb"\xff\xd8\xff|\x89PNG\r\n|GIF8[79]a|RIFF.{4}WEBP", "an image", "use images:FOLDER"),
    (rb".{257}ustar", "a tar archive", _EXTRACT),
    (
        rb"\x1f\x8b|BZh[1-9]1AY|\xfd7zXZ\0|\x28\xb5\x2f\xfd",
        "a compressed file",
        "decompress it, or use csv:{uri} if it contains CSV",
    ),
    (rb"%PDF-", "a PDF", "save its table as CSV in UTF-8"),
    (rb"\s*(<!DOCTYPE html|<html)", "a web page", "download the table itself"),
    (rb'\s*(\{\s*"[^"\n]*"\s*:|\[\s*\{)', "JSON", "use jsonl:{uri} if each line is an object"),
)
INVALID = "\udc80"
codecs.register_error("mark", lambda error: (INVALID, error.end))  # type: ignore[attr-defined]


class DialectError(InputError):
    """A file is not in the dialect that it is to be read in; the message says why."""


def read_text(uri: str, dialect: Dialect, size: int, reader: str = "csv") -> Iterator[bytes]:
    """Yield the text of a file in parts of about `size` bytes: in UTF-8, with LF, without its BOM.

    Raise InputError if it can't be read, is damaged or no table, and DialectError if its beginning
    is not in the dialect.

    Args:
        reader: the kind of source that reads the file.
    """
    with open_bytes(uri) as file:
        raw = file.read(HEAD_BYTES)
        check_format(uri, raw, reader)
        if problem := _find_difference(raw, dialect):
            raise DialectError(f"{uri} {problem}")
        decoder = codecs.getincrementaldecoder(dialect.encoding)("mark")
        mark = codecs.BOM_UTF8
        while raw:
            text = raw
            if not dialect.is_utf8:
                text = decoder.decode(raw).encode("utf-8", "surrogatepass")
            if dialect.line_end == "\r":
                text = text.replace(b"\r", b"\n")
            yield text.removeprefix(mark)
            mark, raw = b"", file.read(size)
        if not dialect.is_utf8:
            yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")


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


def read_ends(uri: str, size: int, tail_size: int = 0) -> tuple[bytes, bytes]:
    """Return a file's first and last bytes, decompressed.

    The last `tail_size` bytes begin at a multiple of 4. They are empty if the first `size` are all.
    """
    with open_bytes(uri) as file:
        head = b""
        while len(head) <= size and (part := file.read(size + 1 - len(head))):
            head += part
        if len(head) <= size or not tail_size:
            return head[:size], b""
        compressed = (gzip.GzipFile, bz2.BZ2File, lzma.LZMAFile, zipfile.ZipExtFile)
        if file.seekable() and not isinstance(file, compressed):
            file.seek(max(0, storage.size(uri) - tail_size) // 4 * 4)
            return head[:size], file.read()
        length, tail = len(head), head
        while part := file.read(storage.CHUNK):
            length += len(part)
            tail = (tail + part)[-tail_size - length % 4 :]
    return head[:size], tail


def decode(raw: bytes, encoding: str) -> str:
    """Decode the beginning of a file, whose last character may be cut, without its BOM.

    Bytes that the encoding does not have become INVALID.
    """
    return codecs.getincrementaldecoder(encoding)("mark").decode(raw).removeprefix("\ufeff")


def check_format(uri: str, head: bytes, reader: str = "csv") -> None:
    """Raise InputError if a file's first bytes are those of a format that a reader does not read.

    Args:
        reader: the kind of source that reads the file.
    """
    for pattern, name, remedy in _FORMATS:
        if f"use {reader}:" in remedy:
            continue
        if re.match(pattern, head, re.DOTALL | re.IGNORECASE):
            raise InputError(f"{uri} is {name}; {remedy.format(uri=uri)}")


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


def is_damaged(text: str, header: int = 0) -> bool:
    """Return whether a text that `decode` marked is in another encoding.

    A few lines may be damaged, but not the header, which has this index.
    """
    lines = text.splitlines()
    if INVALID in "".join(lines[header : header + 1]):
        return True
    return sum(INVALID in line for line in lines) > max(1, _TOLERATED * len(lines))


def _find_difference(head: bytes, dialect: Dialect) -> str:
    """Return what contradicts the dialect in a file's beginning; empty if nothing does."""
    name = codecs.lookup(dialect.encoding).name
    mark = find_mark(head)
    found = mark[:6]  # without the order of bytes
    if not found and not name.startswith("utf") and not head.isascii():
        found = "" if INVALID in decode(head, "utf-8") else "utf-8"
    if found and not (dialect.is_utf8 if found == "utf-8" else name.startswith(found)):
        return f"is in {found.upper()}, not in {dialect.encoding}"
    if name == "utf-16" and mark != "utf-16":
        return "has no byte order mark, so it is not in utf-16"
    text = decode(head, dialect.encoding)
    if is_damaged(text, dialect.skip_rows):
        return f"is not in {'UTF-8' if dialect.is_utf8 else dialect.encoding}"
    if dialect.line_end == "\n" and "\r" in text and "\n" not in text:
        return "has lines that end in CR alone"
    if dialect.line_end == "\r" and "\n" in text:
        return "has lines that end in LF"
    return ""
