"""csv:URI: a table as comma-separated values, one file, a folder of them, or a pattern.

Files end in .csv or .csv.gz and have a header each. A row's split hangs on a digest of its
bytes: copies stay together, and another choice of columns moves no row. What does not fit
(a number that is none, a row of the wrong length, no label) is rejected as `file:line`; a
missing value of a column is none of that, it is known as missing.

The table is read once, whatever its size: all cores parse it in blocks, statistics are
gathered on the way, and the rows are left on local disk (spill.py) for the shards.
"""

import contextlib
import glob
import itertools
import math
import re
import weakref
from collections.abc import Iterator
from typing import Any

from trainer.data import storage
from trainer.data.record_options import SPLITS, RecordOptions
from trainer.data.schema import Feature, join
from trainer.data.sources import DIGEST_BYTES, Example, Mapped, Reference, Rejection, digest
from trainer.data.tables.columns import Cross, TableSchema, read_schema
from trainer.data.tables.parsing import BlockParser, ParsedBlock, features_of
from trainer.data.tables.rows import Block, read_blocks, read_header
from trainer.data.tables.spill import Spill
from trainer.data.tables.statistics import ColumnStatistics
from trainer.data.write.fingerprint import is_pattern
from trainer.data.write.process_pool import available_cores, write_in_processes
from trainer.data.write.records import Values
from trainer.data.write.writing_progress import counted
from trainer.errors import InputError
from trainer.fields import nearest

ENDINGS = (".csv", ".csv.gz")
MAX_CLASSES = 1000
FEW_CLASSES, FEW_ROWS = 20, 10
"""More classes than so many are not numbers with a fraction, nor numbers with so few rows each:
that is a quantity, of which no class can be learned."""
_COMPARE = (
    'compare it with a bound, as by label={"column": "...", "above": 1}, give a column of its '
    "quantiles, or list its values as label's classes"
)
POOL_PAYS_BLOCKS = 4
"""A table of fewer blocks is parsed in this process: others cost 0.3 s to start."""


class Table:
    """The rows of the files at `location`, a URI.

    Raises:
        InputError: no such file, or a header without the columns that are asked for.
    """

    unit = "rows"
    is_spilled = True

    def __init__(self, location: str, options: RecordOptions) -> None:
        self._source = options.source
        self._schema = read_schema(options.columns, options.crosses, options.label)
        self._uris = _files(location, options.source)
        self.name = location.rstrip("/").rpartition("/")[2] or location
        self._names = _short_names(self._uris)
        # Of a remote table nothing but the spill is read again.
        self.location = "" if storage.is_remote(location) else location.partition("*")[0]
        headers = [tuple(read_header(uri)) for uri in self._uris]
        for uri, header in zip(self._uris, headers, strict=True):
            _check_header(uri, header, self._schema)
        self._parser = BlockParser(self._schema, headers, tuple(options.split_fractions))
        self.classes = list(self._schema.label.classes)
        self.features: list[Feature] = []
        self.label_order: list[int] = []
        self.details = {"files": len(self._uris)}
        self._spill = Spill()
        weakref.finalize(self, self._spill.remove)

    def examples(self, _: Mapped = map, /) -> Iterator[Example | Rejection]:
        """Lists every row; then classes, features and label_order are known.

        label_order: by label as listed, its index in `classes`.
        """
        statistics = [ColumnStatistics(column) for column in self._schema.columns]
        rows = dict.fromkeys(SPLITS, 0)
        known = {name: index for index, name in enumerate(self.classes)}
        first_rejected = ""
        for block, parsed in self._parsed():
            file = self._names[block.file]
            for line, reason in parsed.rejections:
                first_rejected = first_rejected or f"{file}:{line}: {reason}"
                yield Rejection(f"{file}:{line}", reason)
            for number, (label, row) in enumerate(zip(parsed.labels, parsed.stored, strict=True)):
                content = parsed.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
                index = known.setdefault(label, len(known))
                # The key is kept with the row: a plan of many rows must stay small.
                yield Example(Reference("", self._spill.add(content, row)), index, content, "")
            if len(known) > MAX_CLASSES:
                raise InputError(
                    f"source={self._source!r}: label column {self._schema.label.column!r} has "
                    f"more than {MAX_CLASSES:,} different values; {_COMPARE}"
                )
            for merged, one in zip(statistics, parsed.statistics, strict=True):
                merged.merge(one)
            for split, count in zip(SPLITS, parsed.split_rows, strict=True):
                rows[split] += count
        self._spill.finish()
        self._name_classes(list(known), sum(rows.values()), first_rejected)
        self.features = [
            Feature(
                name=one.column.name,
                kind=one.column.type,
                dtype=one.column.dtype,
                settings=one.settings(),
                statistics=one.figures(rows),
            )
            for one in statistics
        ] + [_crossed(cross) for cross in self._schema.crosses]

    def fetch(self, reference: Reference) -> bytes:
        """A row as it was spilled: `<file>:<line>:<row>`."""
        return self._spill.read(reference.position)

    def digest(self, fetched: bytes) -> bytes:
        return digest(fetched.split(b":", 2)[2])

    def encode(self, fetched: bytes, key: str, variants: int) -> list[Values]:
        number, line, row = fetched.split(b":", 2)
        file = int(number)
        values = features_of(row, self._parser.headers[file], self._schema.columns)
        return [{**values, "key": b"%s:%s" % (self._names[file].encode(), line)}]

    def __getstate__(self) -> dict[str, Any]:
        # Writing processes need neither statistics nor vocabularies.
        return {**self.__dict__, "features": []}

    def _parsed(self) -> Iterator[tuple[Block, ParsedBlock]]:
        """Every block and what it holds, in their order, parsed on all cores."""
        blocks = itertools.chain.from_iterable(
            read_blocks(uri, file) for file, uri in enumerate(self._uris)
        )
        first = list(itertools.islice(blocks, POOL_PAYS_BLOCKS))
        count = available_cores()
        if len(first) < POOL_PAYS_BLOCKS or count == 1:
            for block in itertools.chain(first, blocks):
                yield block, self._parser.parse(block)
            return
        pending: dict[int, Block] = {}

        def tasks() -> Iterator[tuple[int, Block]]:
            for number, block in enumerate(itertools.chain(first, blocks)):
                # Only what names a block is needed again, not its text.
                pending[number] = block._replace(text=b"")
                yield number, block

        done: dict[int, ParsedBlock] = {}
        following = 0
        results = write_in_processes(self._parser, tasks(), count, lambda _: None)
        with contextlib.closing(results):
            for number, parsed in results:
                done[number] = parsed
                while following in done:
                    yield pending.pop(following), done.pop(following)
                    following += 1

    def _name_classes(self, found: list[str], rows: int, first_rejected: str) -> None:
        """Orders the classes; `rows` are those that can be used."""
        label = self._schema.label
        place = f"source={self._source!r}: label column {label.column!r}"
        order = found if label.classes else sorted(found, key=_natural)
        if len(order) < 2:
            why = f"; of the rows that can't be used, the first is {first_rejected}"
            raise InputError(
                f"{place} has {'only one value, ' + repr(order[0]) if order else 'no value'}; a "
                f"classifier needs two or more{why if first_rejected else ''}"
            )
        if not label.classes and _is_continuous(order, rows):
            raise InputError(
                f"{place} holds numbers, not classes: {len(order):,} different ones in "
                f"{counted(rows, 'rows')}, from {order[0]} to {order[-1]}; {_COMPARE}"
            )
        self.classes = order
        self.label_order = [order.index(name) for name in found]


def _is_continuous(values: list[str], rows: int) -> bool:
    """Tell if a label's values are measured or counted, rather than names of classes."""
    try:
        numbers = [number for value in values if not math.isnan(number := float(value))]
    except ValueError:
        return False
    if len(numbers) <= FEW_CLASSES:
        return False
    return rows < FEW_ROWS * len(numbers) or not all(number.is_integer() for number in numbers)


def open_source(rest: str, options: RecordOptions) -> Table:
    if not rest:
        raise InputError("source='csv:' names no table; use csv:URI of a file, folder or pattern")
    return Table(rest, options)


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


def _crossed(cross: Cross) -> Feature:
    settings = {"columns": cross.columns, "buckets": cross.buckets, "embedding": cross.embedding}
    return Feature(name=cross.name, kind="cross", dtype="int64", settings=settings)


def _natural(name: str) -> tuple[bool, float, str]:
    """Numbers by value, before other names."""
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name
