"""A table as a source of records, parsed on all cores.

The table is read once, whatever its size. All cores parse it in blocks and gather statistics; the
encoded rows are kept in partitions (write/spill.py) until their shards are written. A row's split
depends on a digest of its content: copies stay together, and another choice of columns moves no row
to another split. An invalid row (text instead of a number, no label) is rejected by its key; a
missing value of a column is no reason to reject a row, but is recorded as missing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.data.schema import Feature
from trainer.data.tables.columns import TableSchema
from trainer.data.tables.parsing import ParsedBlock, parse_rows
from trainer.data.tables.row_records import frame_records
from trainer.data.write.checks import suggest_missing
from trainer.data.write.process_pool import Processes
from trainer.data.write.shards import Piece
from trainer.data.write.spill import Spill
from trainer.data.write.totals import Totals
from trainer.data.write.writing_progress import ProgressLines, format_count
from trainer.errors import InputError

if TYPE_CHECKING:
    from trainer.data.tables.file_reader import TableKind
    from trainer.data.write.record_options import RecordOptions

MAX_CLASSES = 1000
FEW_CLASSES, FEW_ROWS = 20, 10
"""A label with more than FEW_CLASSES different numbers is a quantity rather than a class if any
of them has a fraction, or if a number has fewer than FEW_ROWS rows on average."""
_COMPARE = (
    'compare it with a bound, as by label={"column": "...", "above": 1}, give a column of its '
    "quantiles, or list its values as label's classes"
)
PIECE_ROWS = 1 << 12
"""Number of rows whose records are built at once."""


class Table:
    """The rows of a table: a `Source` whose examples are planned and written in blocks."""

    unit = "rows"
    is_table = True

    def __init__(self, reader: TableKind, schema: TableSchema, options: RecordOptions) -> None:
        self._source, self._schema, self.reader = options.source, schema, reader
        self._fractions, self._options = options.split_fractions, options
        self.name, self.location, self.details = reader.name, reader.location, reader.details
        self.classes = list(schema.label.classes)
        self.features: list[Feature] = []

    def plan(self, lines: ProgressLines, processes: Processes) -> tuple[Totals, Spill]:
        """Read the table; return totals and all rows, and set classes and features.

        Raise InputError if the table has no rows, or its label does not contain classes.
        """
        totals, rows = Totals(), Spill()
        files = range(len(self.reader.names))
        blocks = (block for file in files for block in self.reader.blocks(file))
        for parsed in processes.map(self.parse, blocks, size=1):
            rows.add(parsed.rows)
            totals.merge(parsed.totals)
            self.check(totals)
            lines.advance(parsed.totals.given)
        rows.finish()
        self.conclude(totals)
        return totals, rows

    def parse(self, block: Any) -> ParsedBlock:
        rows, name = self.reader.read(block), self.reader.names[block.file]
        return parse_rows(rows, name, self._schema, self._fractions)

    def check(self, totals: Totals) -> None:
        """Raise InputError if the label has too many values, before they take too much memory."""
        if len({name for _, name in totals.counts}) > MAX_CLASSES:
            raise InputError(
                f"source={self._source!r}: label column {self._schema.label.column!r} has more "
                f"than {MAX_CLASSES:,} distinct values; {_COMPARE}"
            )

    def conclude(self, totals: Totals) -> None:
        """Set the classes and features of the whole table; raise InputError as `plan` does."""
        counted_names = {name for _, name in totals.counts}
        self.classes = list(self._schema.label.classes) or sorted(counted_names, key=_natural_key)
        self._check_classes(totals)
        self.features = [
            Feature(
                name=statistics.column.name,
                kind=statistics.column.type,
                dtype=statistics.column.dtype,
                settings=statistics.settings(),
                statistics=statistics.summarize(totals.examples),
            )
            for statistics in totals.statistics
        ]
        for cross in self._schema.crosses:
            settings = dataclasses.asdict(cross)
            crossed = Feature(name=cross.name, kind="cross", dtype="int64", settings=settings)
            self.features.append(crossed)

    def make_pieces(self, rows: Iterable[pa.Table]) -> Iterator[Piece]:
        """Yield the records of rows, in pieces."""
        classes = pa.array(self.classes, pa.string())
        for batch in (batch for table in rows for batch in table.to_batches(PIECE_ROWS)):
            labels = pc.index_in(batch["label"], classes).to_numpy()
            records = frame_records(batch["entries"], labels)
            offsets = np.frombuffer(records.buffers()[1], np.int32, len(records) + 1)
            # TensorFlow's files accept no memoryview.
            content = bytes(memoryview(records.buffers()[2])[offsets[0] : offsets[-1]])
            counts = dict(enumerate(np.bincount(labels).tolist()))
            yield Piece(content, counts, [], len(labels))

    def __getstate__(self) -> dict[str, Any]:
        # Writing processes need neither statistics nor vocabularies.
        return {**self.__dict__, "features": []}

    def _check_classes(self, totals: Totals) -> None:
        rows, rejections = totals.counts.total(), totals.rejections
        first = ""
        if rejections:
            rejection = min(rejections, key=lambda rejection: (len(rejection.key), rejection.key))
            first = f"; the first that can't be used is {rejection.key}: {rejection.reason}"
            first += suggest_missing([rejection.reason], self._options)
        if not rows:
            raise InputError(f"source={self._source!r} has no rows that can be used{first}")
        label = self._schema.label
        column = f"source={self._source!r}: label column {label.column!r}"
        order = self.classes
        if len(order) < 2:
            raise InputError(
                f"{column} has only one value, {order[0]!r}; a classifier needs two or more{first}"
            )
        if not label.classes and _is_continuous(order, rows):
            raise InputError(
                f"{column} contains numbers, not classes: {len(order):,} different ones in "
                f"{format_count(rows, 'rows')}, from {order[0]} to {order[-1]}; {_COMPARE}"
            )


def _is_continuous(values: list[str], rows: int) -> bool:
    """Return whether a label's values are measurements or counts rather than class names."""
    try:
        numbers = [number for value in values if not math.isnan(number := float(value))]
    except ValueError:
        return False
    if len(numbers) <= FEW_CLASSES:
        return False
    return rows < FEW_ROWS * len(numbers) or not all(number.is_integer() for number in numbers)


def _natural_key(name: str) -> tuple[bool, float, str]:
    """Return a sort key: numbers by value, before other names."""
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    # NaN has no place among numbers.
    return (True, 0.0, name) if math.isnan(number) else (False, number, name)
