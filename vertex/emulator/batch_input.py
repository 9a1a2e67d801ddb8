"""The instances of a BatchPredictionJob's input, as Vertex AI sends them to a model's container.

jsonl            each line's value
csv              each row after the header as a list: a cell in double quotes is text, any other
                 a number. An empty cell without quotes is not documented; here it is ""
tf-record        each record as {"b64": ...}; tf-record-gzip: the same from compressed files
file-list        each listed file as {"b64": ...}

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/get-batch-predictions
"""

import base64
import csv
import functools
import gzip
import io
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import google_crc32c

from vertex.emulator import files
from vertex.errors import InputError

_MASK_DELTA = 0xA282EAD8


class Instance(NamedTuple):
    """An instance of the input."""

    shown: Any  # its representation in the output
    sent: Any = None  # its representation in the request to the container
    error: str = ""  # why it can't be sent; empty if it can


def read_instances(
    kind: str, uris: Sequence[str], local: Callable[[str], str] = str, storage: Any = files
) -> Iterator[Instance]:
    """Yield the instances of files; raise InputError for none, or one that can't be read.

    Args:
        kind: file-list, or one of `READERS`.
        uris: files or patterns, gs:// or local.
        local: converts a gs:// URI, also of a listed file, to the path that stands in for it.
        storage: has the functions of `vertex.emulator.files`.
    """
    for uri in map(local, uris):
        found = sorted(storage.list_matching(uri))
        if not found:
            raise InputError(f"{uri} matches no file")
        for file in found:
            try:
                content = storage.read(file)
            except OSError as error:
                raise InputError(f"{file} can't be read: {error.strerror or error}") from None
            if kind in READERS:
                yield from READERS[kind](file, content)
                continue
            for listed in filter(None, map(str.strip, _decode(file, content).split("\n"))):
                try:
                    yield Instance(listed, _encode_base64(storage.read(local(listed))))
                except OSError as error:
                    yield Instance(listed, error=f"can't be read: {error.strerror or error}")


def _decode(uri: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{uri} is not UTF-8") from None


def _read_lines(uri: str, content: bytes) -> Iterator[Instance]:
    for line in filter(str.strip, _decode(uri, content).split("\n")):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield Instance(line, error=f"not JSON: {error}")
            continue
        yield Instance(value, value)


def _read_rows(uri: str, content: bytes) -> Iterator[Instance]:
    head, _, rest = _decode(uri, content).partition("\n")
    width = len(next(csv.reader([head]), ()))
    reader = csv.reader(io.StringIO(rest, newline=""), quoting=csv.QUOTE_NONNUMERIC)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except ValueError as error:
            yield Instance(f"{uri}:{reader.line_num + 1}", error=f"{error}; quote all text")
            continue
        if any(isinstance(cell, str) and "\n" in cell for cell in row):
            yield Instance(row, error="a cell has a line break")
        elif len(row) != width:
            yield Instance(row, error=f"{len(row)} cells under a header of {width}")
        else:
            yield Instance(row, row)


def _read_records(
    uri: str, content: bytes, unpack: Callable[[bytes], bytes] = bytes
) -> Iterator[Instance]:
    """Yield the records of a file: each is its length, a checksum, the content, a checksum.

    https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
    """
    file = io.BytesIO(unpack(content))
    while head := file.read(8):
        sound = len(head) == 8 and file.read(4) == _checksum(head)
        (length,) = struct.unpack("<Q", head) if sound else (0,)
        record = file.read(length)
        if not sound or len(record) < length or file.read(4) != _checksum(record):
            raise InputError(f"{uri} is damaged, or not a TFRecord file")
        sent = _encode_base64(record)
        yield Instance(sent, sent)


def _checksum(data: bytes) -> bytes:
    """Return the masked CRC32C of a TFRecord file, as its bytes."""
    value = google_crc32c.value(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF)


def _encode_base64(content: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(content).decode()}


READERS: dict[str, Callable[[str, bytes], Iterator[Instance]]] = {
    "jsonl": _read_lines,
    "csv": _read_rows,
    "tf-record": _read_records,
    "tf-record-gzip": functools.partial(_read_records, unpack=gzip.decompress),
}
"""The reader of each format of instances in files."""
