"""csv:URI: a table as comma-separated values, one file, a folder of them, or a pattern.

Files end in .csv or .csv.gz and have a header each. A row is known as `file:line`, and its digest
is that of its bytes.
"""

import glob
import itertools
import re
from collections.abc import Iterator
from typing import Any

from trainer.data import storage
from trainer.data.record_options import RecordOptions
from trainer.data.schema import join
from trainer.data.tables.columns import TableSchema, read_schema
from trainer.data.tables.parsing import Rows
from trainer.data.tables.rows import Block, read_blocks, read_header, read_rows
from trainer.data.tables.table import Table
from trainer.data.write.fingerprint import is_pattern
from trainer.errors import InputError
from trainer.fields import nearest

ENDINGS = (".csv", ".csv.gz")


class CsvReader:
    """A TableReader of the files at `location`, a URI.

    Raises:
        InputError: no such file, or a header without the columns that are asked for.
    """

    def __init__(self, location: str, source: str, schema: TableSchema) -> None:
        self._uris = _files(location, source)
        self._wanted = schema.needed
        self.name = location.rstrip("/").rpartition("/")[2] or location
        self.names = _short_names(self._uris)
        # Of a remote table nothing is read again.
        self.location = "" if storage.is_remote(location) else location.partition("*")[0]
        self.details: dict[str, Any] = {"files": len(self._uris)}
        self._headers = [tuple(read_header(uri)) for uri in self._uris]
        for uri, header in zip(self._uris, self._headers, strict=True):
            _check_header(uri, header, schema)

    def blocks(self) -> Iterator[Block]:
        for file, uri in enumerate(self._uris):
            yield from read_blocks(uri, file)

    def read(self, block: Block) -> Rows:
        return read_rows(block, self._headers[block.file], self._wanted)


def open_source(rest: str, options: RecordOptions) -> Table:
    if not rest:
        raise InputError("source='csv:' names no table; use csv:URI of a file, folder or pattern")
    schema = read_schema(options.columns, options.crosses, options.label)
    return Table(CsvReader(rest, options.source, schema), schema, options)


def check_source(rest: str, options: RecordOptions) -> None:
    """Raises InputError as `open_source`, but of several files only the first is looked at."""
    first = _files(rest, options.source)[0]
    schema = read_schema(options.columns, options.crosses, options.label)
    _check_header(first, tuple(read_header(first)), schema)


def _check_header(uri: str, header: tuple[str, ...], schema: TableSchema) -> None:
    for name in schema.needed:
        if name not in header:
            hint = nearest(name, header)
            if len(header) == 1 and (found := re.search("[;\t|]", header[0])):
                hint = f"; its fields are separated by {found[0]!r}: convert it to commas"
            raise InputError(f"{uri} has no column {name!r}{hint}")
        if header.count(name) > 1:
            raise InputError(f"{uri}: its header has {name!r} twice; rename one")


def _files(location: str, source: str) -> list[str]:
    """The files that `location` means, sorted."""
    if is_pattern(location):
        found = [uri for uri in _matching(location) if not storage.is_folder(uri)]
    elif storage.is_folder(location):
        found = list(_below(location.rstrip("/") or "/"))
    elif storage.exists(location):
        found = [location]
    else:
        raise InputError(
            f"source={source!r}: {location} does not exist; give a CSV file, a folder of them, "
            "or a pattern such as trips-*.csv.gz"
        )
    # An object store may keep what a job has left: files of nothing.
    found = sorted(uri for uri in found if storage.size(uri))
    if not found:
        raise InputError(
            f"source={source!r}: no file with content that ends in {' or '.join(ENDINGS)} is there"
        )
    return found


def _matching(pattern: str) -> list[str]:
    if storage.is_remote(pattern):
        import tensorflow as tf

        return tf.io.gfile.glob(pattern)
    return glob.glob(pattern, recursive=True)  # noqa: PTH207 - a pattern, not a folder


def _below(folder: str) -> Iterator[str]:
    for name, inner in storage.scan(folder):
        if name.startswith("."):
            continue
        if inner:
            yield from _below(join(folder, name))
        elif name.lower().endswith(ENDINGS):
            yield join(folder, name)


def _short_names(uris: list[str]) -> list[str]:
    """Paths below the folder that holds them all."""
    # Not commonpath, for which gs://bucket is gs:/bucket.
    parts = [uri.split("/") for uri in uris]
    levels = zip(*(folders for *folders, _ in parts), strict=False)
    shared = itertools.takewhile(lambda names: len(set(names)) == 1, levels)
    start = sum(1 for _ in shared)
    return ["/".join(one[start:]) for one in parts]
