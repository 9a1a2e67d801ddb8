"""A table as a source of records: what its reader reads, parsed on all cores.

The table is read once, whatever its size. All cores parse it in blocks, statistics are gathered
on the way, and the encoded rows wait in partitions (spill.py) for the shards that they belong
to. A row's split depends on a digest of its content: copies stay together, and another choice of
columns moves no row. What does not fit (a number that is none, no label) is rejected by the
row's key; a missing value of a column is none of that, it is known as missing.
"""

import dataclasses
import itertools
import math
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.data.record_options import SPLITS, RecordOptions
from trainer.data.schema import Feature
from trainer.data.sources import Rejection
from trainer.data.tables.columns import Cross, TableSchema
from trainer.data.tables.parsing import BlockParser, ParsedBlock, TableReader
from trainer.data.tables.row_records import frames
from trainer.data.tables.spill import PARTITIONS, Spill, digest_halves
from trainer.data.tables.statistics import ColumnStatistics
from trainer.data.write.listing import map_in_processes
from trainer.data.write.process_pool import Spares, available_cores
from trainer.data.write.split_plan import shard_numbers
from trainer.data.write.table_plan import Piece, RowPlan, RowTask
from trainer.data.write.writing_progress import ProgressLines, counted
from trainer.errors import InputError

MAX_CLASSES = 1000
FEW_CLASSES, FEW_ROWS = 20, 10
"""More classes than so many are not numbers with a fraction, nor numbers with so few rows each:
that is a quantity, of which no class can be learned."""
_COMPARE = (
    'compare it with a bound, as by label={"column": "...", "above": 1}, give a column of its '
    "quantiles, or list its values as label's classes"
)
PIECE_ROWS = 1 << 12
"""Rows of which records are made at once."""

POOL_PAYS_BLOCKS = 4
"""A table of fewer blocks is parsed in this process: others cost 0.3 s to start."""


class Table:
    """The rows of a table; a `Source` whose examples are planned and written in blocks.

    Attributes:
        reader: its files.
        label_order: by label as spilled, its index in `classes`.
    """

    unit = "rows"
    is_spilled = True

    def __init__(self, reader: TableReader, schema: TableSchema, options: RecordOptions) -> None:
        self._source, self._schema, self._reader = options.source, schema, reader
        self._parser = BlockParser(reader, schema, tuple(options.split_fractions))
        self.name, self.location, self.details = reader.name, reader.location, reader.details
        self.classes = list(schema.label.classes)
        self.features: list[Feature] = []
        self.label_order: list[int] = []
        self._spill = Spill()
        weakref.finalize(self, self._spill.remove)

    def plan(self, lines: ProgressLines, spares: Spares) -> RowPlan:
        """Reads every row; then classes, features and label_order are known."""
        statistics = [ColumnStatistics(column) for column in self._schema.columns]
        known = {name: index for index, name in enumerate(self.classes)}
        counts = np.zeros(MAX_CLASSES, np.int64)
        content = np.zeros(2, np.uint64)
        rejections: list[Rejection] = []
        for parsed in self._parsed(spares):
            rejections += [Rejection(key, reason) for key, reason in parsed.rejections]
            codes = np.array([known.setdefault(one, len(known)) for one in parsed.labels], np.int32)
            if len(known) > MAX_CLASSES:
                raise InputError(
                    f"source={self._source!r}: label column {self._schema.label.column!r} has "
                    f"more than {MAX_CLASSES:,} different values; {_COMPARE}"
                )
            labels = codes[parsed.rows.column("label")]
            place = parsed.rows.schema.get_field_index("label")
            self._spill.add(parsed.rows.set_column(place, "label", pa.array(labels)))
            counts += np.bincount(labels, minlength=MAX_CLASSES)
            content += parsed.content
            for merged, one in zip(statistics, parsed.statistics, strict=True):
                merged.merge(one)
            lines.advance(len(labels) + len(parsed.rejections))
        self._spill.finish()
        found = [name for name, index in known.items() if counts[index] or self.classes]
        self._name_classes(found, int(counts.sum()), rejections)
        rows = dict(zip(SPLITS, self._spill.counts.sum(axis=1).tolist(), strict=True))
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
        in_order = dict(zip(self.label_order, counts.tolist(), strict=False))
        return RowPlan(
            rejections=sorted(rejections, key=lambda one: one.key),
            order={split: range(count) for split, count in rows.items()},
            counts=[in_order[label] for label in range(len(self.classes))],
            content=[*content.tolist(), *self._reader.names],
            entry_bytes=self._spill.bytes,
        )

    def pieces(self, task: RowTask) -> Iterator[Piece]:
        """Yield the records of a task, partition by partition."""
        tables = [task.carried] if task.carried is not None else self._rows(task)
        for rows in (part for table in tables for part in table.to_batches(PIECE_ROWS)):
            labels = np.array(self.label_order)[rows["label"].to_numpy()]
            records = frames(rows["entries"], labels)
            offsets = np.frombuffer(records.buffers()[1], np.int32, len(records) + 1)
            content = memoryview(records.buffers()[2])[offsets[0] : offsets[-1]]
            counts = dict(enumerate(np.bincount(labels).tolist()))
            yield Piece(content, counts, [], len(labels))

    def carried(self, task: RowTask) -> RowTask:
        """Return a task with its rows, for a machine without this one's disk."""
        return dataclasses.replace(task, carried=pa.concat_tables(self._rows(task)))

    def _rows(self, task: RowTask) -> Iterator[pa.Table]:
        split, width = SPLITS.index(task.split), (1 << 64) // PARTITIONS
        ends = [-(-(n << 64) // task.count) for n in (task.number, task.number + 1)]
        for partition in range(ends[0] // width, -(-ends[1] // width)):
            if not self._spill.counts[split, partition]:
                continue
            rows = self._spill.read(split, partition)
            numbers = shard_numbers(digest_halves(rows["digest"])[:, 0], task.count)
            begin, end = np.searchsorted(numbers, (task.number, task.number + 1)).tolist()
            yield rows.slice(begin, end - begin)
            # No other shard has rows of it.
            if ends[0] <= partition * width and (partition + 1) * width <= ends[1]:
                self._spill.forget(split, partition)

    def __getstate__(self) -> dict[str, Any]:
        # Writing processes need neither statistics nor vocabularies.
        return {**self.__dict__, "features": []}

    def _parsed(self, spares: Spares) -> Iterator[ParsedBlock]:
        """Yield what every block holds, in their order, parsed on all cores."""
        blocks = self._reader.blocks()
        first = list(itertools.islice(blocks, POOL_PAYS_BLOCKS))
        count = available_cores()
        if len(first) < POOL_PAYS_BLOCKS or count == 1:
            yield from map(self._parser.parse, itertools.chain(first, blocks))
            return
        if not spares.started:
            spares.start(count, [type(self._reader).__module__, __name__])
        yield from map_in_processes(
            self._parser.parse, itertools.chain(first, blocks), spares, size=1
        )

    def _name_classes(self, found: list[str], rows: int, rejections: list[Rejection]) -> None:
        """Put the classes in order; `rows` are those that can be used."""
        if not rows and not rejections:
            raise InputError(f"source={self._source!r} has no rows, only columns; add rows")
        label = self._schema.label
        place = f"source={self._source!r}: label column {label.column!r}"
        order = found if label.classes else sorted(found, key=_natural)
        if len(order) < 2:
            why = "; of the rows that can't be used, the first is "
            first = f"{why}{rejections[0].key}: {rejections[0].reason}" if rejections else ""
            raise InputError(
                f"{place} has {'only one value, ' + repr(order[0]) if order else 'no value'}; a "
                f"classifier needs two or more{first}"
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


def _crossed(cross: Cross) -> Feature:
    settings = {"columns": cross.columns, "buckets": cross.buckets, "embedding": cross.embedding}
    return Feature(name=cross.name, kind="cross", dtype="int64", settings=settings)


def _natural(name: str) -> tuple[bool, float, str]:
    """Return numbers by value, before other names."""
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name
