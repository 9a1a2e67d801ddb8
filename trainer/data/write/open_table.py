"""A table as a source of records, parsed on all cores.

The table is read once, whatever its size; twice, if its rows are split by time. All cores parse it
in blocks and gather statistics (tables/parsing.py); the encoded rows are kept in partitions
(spill.py) until their shards are written.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer import formats
from trainer.data.records import frame_records
from trainer.data.schema import SPLITS, Feature
from trainer.data.tables.parsing import parse_block, scan_times, suggest_missing
from trainer.data.tables.schema_parser import parse_schema
from trainer.data.tables.table_source import TableKind
from trainer.data.tables.times import Starts, TimeScan
from trainer.data.totals import Totals
from trainer.data.write.open_source import OpenSource, Piece
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.spill import Spill
from trainer.errors import InputError
from trainer.process_pool import Processes
from trainer.progress_lines import ProgressLines

MAX_CLASSES = 1000
FEW_CLASSES, FEW_ROWS = 20, 10
"""A label with more than FEW_CLASSES different numbers is a quantity rather than a class if any
of them has a fraction, or if a number has fewer than FEW_ROWS rows on average."""
_COMPARE = (
    'predict the number by label={"column": "...", "type": "numeric"}, compare it with a bound, '
    'as by {"column": "...", "above": 1}, give a column of its '
    "quantiles, or list its values as label's classes"
)
PIECE_ROWS = 1 << 12
"""Number of rows whose records are built at once."""

ROW_SECONDS = 1e-6
"""The time that a process needs to build a record from an encoded row."""

ROW_FRAME_BYTES = 36
"""Bytes of a record in addition to the entries of its row: its frame and its label."""


class OpenTable(OpenSource):
    """A `TableKind`; its rows are planned and written in blocks."""

    unit = "rows"

    opened: TableKind

    def __init__(self, opened: TableKind, options: RecordOptions) -> None:
        super().__init__(opened, options)
        self._schema = parse_schema(options)
        self.classes, self.features = list(self._schema.label.classes), []
        number = self._schema.label.number
        if number:
            adaptive = self._schema.label.adaptive
            settings = {"column": number.name, "log": number.log, "adaptive": adaptive}
            self.label = dataclasses.replace(self.label, dtype=number.dtype, settings=settings)
        elif self._schema.label.is_multilabel:
            self.label = dataclasses.replace(self.label, shape=[len(self.classes)])

    def plan(self, lines: ProgressLines, processes: Processes) -> tuple[Totals, Spill]:
        """Read the table; raise InputError if it has no rows, or its label can't be learned."""
        totals, rows = Totals(), Spill()
        starts = None
        if self.is_split_by_time:
            scans = processes.map(self.scan, self._read_blocks(), size=1)
            starts = self.find_starts(self.merge_scans(scans))
            column = self._schema.split_by.time
            shown = (f"{split} from {start}" for split, start in _name_starts(starts).items())
            print(f"create_tfrecords: splits by {column}: {', '.join(shown)}")
        parse = functools.partial(self.parse, starts=starts)
        for parsed, part in processes.map(parse, self._read_blocks(), size=1):
            rows.add(parsed)
            totals.merge(part)
            self.check(totals)
            lines.advance(part.items)
        rows.finish()
        self.conclude(totals)
        return totals, rows

    def _read_blocks(self) -> Iterator[Any]:
        for file in range(len(self.opened.names)):
            yield from self.opened.blocks(file)

    @property
    def is_split_by_time(self) -> bool:
        """Return whether `parse` needs what `find_starts` returns of all blocks."""
        return bool(self._schema.split_by.time)

    def scan(self, block: Any) -> TimeScan:
        """Return the times of a block's rows; every core runs this."""
        return scan_times(block, self._schema.split_by.time)

    def merge_scans(self, scans: Iterable[TimeScan]) -> TimeScan:
        merged = TimeScan()
        for scan in scans:
            merged.merge(scan)
        return merged

    def find_starts(self, scan: TimeScan) -> Starts:
        """Return when splits start; raise InputError if a split would be empty."""
        return scan.find_starts(self._schema.split_by.time, self.options.split_fractions)

    def parse(self, block: Any, starts: Starts | None) -> tuple[pa.RecordBatch, Totals]:
        """Parse a block as `parse_block` does; every core runs this."""
        name = self.opened.names[block.file]
        return parse_block(block, name, self._schema, self.options.split_fractions, starts)

    def check(self, totals: Totals) -> None:
        # Too many values of the label would take too much memory.
        if len({name for _, name in (*totals.counts, *totals.labels)}) > MAX_CLASSES:
            raise InputError(
                f"{self._label_column} has more than {MAX_CLASSES:,} distinct values; {_COMPARE}"
            )

    def conclude(self, totals: Totals) -> None:
        if totals.starts:
            self.details = {**self.details, "split_starts": _name_starts(totals.starts)}
        columns = totals.statistics[: len(self._schema.columns)]
        if self._schema.label.number:
            statistics = totals.statistics[-1].summarize(totals.examples)
            self.label = dataclasses.replace(self.label, statistics=statistics)
        else:
            several = self._schema.label.is_multilabel
            counted_names = {name for _, name in (totals.labels if several else totals.counts)}
            self.classes = list(self._schema.label.classes) or sorted(
                counted_names, key=_natural_key
            )
            if several:
                counts = {
                    split: {name: totals.labels[split, name] for name in self.classes}
                    for split in SPLITS
                }
                statistics = {"counts": counts["train"], "by_split": counts}
                self.label = dataclasses.replace(
                    self.label, shape=[len(self.classes)], statistics=statistics
                )
        self._check_label(totals)
        self.features = [
            Feature(
                name=statistics.column.name,
                kind=statistics.column.type,
                dtype=statistics.column.dtype,
                settings=statistics.settings(),
                statistics=statistics.summarize(totals.examples),
            )
            for statistics in columns
        ]
        for cross in self._schema.crosses:
            settings = dataclasses.asdict(cross)
            crossed = Feature(name=cross.name, kind="cross", dtype="int64", settings=settings)
            self.features.append(crossed)

    def estimate_cost(self, totals: Totals) -> tuple[float, float]:
        return totals.entry_bytes / max(1, totals.counts.total()) + ROW_FRAME_BYTES, ROW_SECONDS

    def make_pieces(self, rows: Iterable[pa.Table], variants: int) -> Iterator[Piece]:
        classes = pa.array(self.classes, pa.string())
        for batch in (batch for table in rows for batch in table.to_batches(PIECE_ROWS)):
            if self.label.shape:
                lists, counts = batch["label"], {0: len(batch)}
                labels = np.zeros((len(batch), len(self.classes)), np.int64)
                at = pc.index_in(lists.flatten(), classes).to_numpy()
                labels[lists.value_parent_indices().to_numpy(), at] = 1
            elif self.classes:
                labels = pc.index_in(batch["label"], classes).to_numpy()
                counts = dict(enumerate(np.bincount(labels).tolist()))
            else:
                labels, counts = batch["label"].to_numpy(), {0: len(batch)}
            records = frame_records(batch["entries"], labels)
            offsets = np.frombuffer(records.buffers()[1], np.int32, len(records) + 1)
            # TensorFlow's files accept no memoryview.
            content = bytes(memoryview(records.buffers()[2])[offsets[0] : offsets[-1]])
            yield Piece(content, counts, [], len(labels))

    def __getstate__(self) -> dict[str, Any]:
        # Writing processes need neither statistics nor vocabularies.
        return {**self.__dict__, "features": []}

    @property
    def _label_column(self) -> str:
        return f"source={self.options.source!r}: label column {self._schema.label.columns[0]!r}"

    def _check_label(self, totals: Totals) -> None:
        """Raise InputError if there are no rows, or only one value of the label."""
        rejections, first = totals.rejections, ""
        if rejections:
            rejection = min(rejections, key=lambda rejection: (len(rejection.key), rejection.key))
            first = f"; the first that can't be used is {rejection.key}: {rejection.reason}"
            first += suggest_missing([rejection.reason], self.options.columns)
        if not totals.counts.total():
            raise InputError(f"source={self.options.source!r} has no rows that can be used{first}")
        if self._schema.label.number:
            self._check_numbers(first)
        else:
            self._check_classes(totals.counts.total(), first)

    def _check_numbers(self, first: str) -> None:
        statistics = self.label.statistics
        if statistics["minimum"] == statistics["maximum"]:
            raise InputError(
                f"{self._label_column} has only one value in the training rows, "
                f"{statistics['minimum']:.6g}; there is nothing to predict{first}"
            )

    def _check_classes(self, rows: int, first: str) -> None:
        column, order = self._label_column, self.classes
        if len(order) < 2:
            found = f"only one value, {order[0]!r}" if order else "no value"
            raise InputError(f"{column} has {found}; a classifier needs two or more{first}")
        if self.label.shape:
            counts = self.label.statistics["by_split"]
            for name in order:
                if not any(of[name] for of in counts.values()):
                    raise InputError(
                        f"{column}: no usable row has {name!r}; add some or remove the class"
                    )
            return
        if not self._schema.label.classes and _is_continuous(order, rows):
            raise InputError(
                f"{column} contains numbers, not classes: {len(order):,} different ones in "
                f"{formats.number_of(rows, 'rows')}, from {order[0]} to {order[-1]}; {_COMPARE}"
            )


def _name_starts(starts: Starts) -> dict[str, str]:
    return {split: start for split, start in zip(SPLITS[1:], starts, strict=True) if start}


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
