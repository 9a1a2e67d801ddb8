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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from trainer.data import storage
from trainer.data.write.records import DamagedFileError, read_record
from trainer.errors import InputError


class Instance(NamedTuple):
    """An instance of the input."""

    shown: Any  # its representation in the output
    sent: Any = None  # its representation in the request to the container
    error: str = ""  # why it can't be sent; empty if it can


def read_instances(
    kind: str, uris: Sequence[str], local: Callable[[str], str] = str
) -> Iterator[Instance]:
    """Yield the instances of files; raise InputError for none, or one that can't be read.

    Args:
        kind: file-list, or one of `READERS`.
        uris: files or patterns, gs:// or local.
        local: converts a gs:// URI, also of a listed file, to the path that stands in for it.
    """
    for uri in map(local, uris):
        found = sorted(storage.list_matching(uri))
        if not found:
            raise InputError(f"{uri} matches no file")
        for file in found:
            yield from READERS[kind](file) if kind in READERS else _read_files(file, local)


def _read_text(uri: str) -> str:
    try:
        return storage.read(uri).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{uri} is not UTF-8") from None
    except OSError as error:
        raise InputError(f"{uri} can't be read: {error.strerror or error}") from None


def _read_lines(uri: str) -> Iterator[Instance]:
    for line in filter(str.strip, _read_text(uri).split("\n")):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield Instance(line, error=f"not JSON: {error}")
            continue
        yield Instance(value, value)


def _read_rows(uri: str) -> Iterator[Instance]:
    head, _, rest = _read_text(uri).partition("\n")
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


def _read_records(uri: str, unpack: Callable[[bytes], bytes] = bytes) -> Iterator[Instance]:
    file = io.BytesIO(unpack(storage.read(uri)))
    try:
        while record := read_record(file):
            sent = _encode_base64(record)
            yield Instance(sent, sent)
    except DamagedFileError:
        raise InputError(f"{uri} is damaged, or not a TFRecord file") from None


def _read_files(uri: str, local: Callable[[str], str]) -> Iterator[Instance]:
    for file in filter(None, map(str.strip, _read_text(uri).split("\n"))):
        try:
            yield Instance(file, _encode_base64(storage.read(local(file))))
        except OSError as error:
            yield Instance(file, error=f"can't be read: {error.strerror or error}")


def _encode_base64(content: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(content).decode()}


READERS: dict[str, Callable[[str], Iterator[Instance]]] = {
    "jsonl": _read_lines,
    "csv": _read_rows,
    "tf-record": _read_records,
    "tf-record-gzip": functools.partial(_read_records, unpack=gzip.decompress),
}
"""The reader of each format of instances in files."""
