"""A table as a source of records, parsed on all cores.

The table is read once, whatever its size; twice, if its rows are split by time. All cores parse it
in blocks and gather statistics (tables/parsing.py); the encoded rows are kept in partitions
(spill.py) until their shards are written.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.data.records import frame_records
from trainer.data.schema import SPLITS, Feature
from trainer.data.tables.columns import AUTO, WEIGHT
from trainer.data.tables.number_finder import suggest_forms
from trainer.data.tables.parsing import parse_block
from trainer.data.tables.proposal import propose
from trainer.data.tables.rows import Block
from trainer.data.tables.schema_parser import parse_schema
from trainer.data.tables.splits import Starts, find_starts, merge_samples, scan_times
from trainer.data.tables.statistics import Sample
from trainer.data.tables.table_source import TableKind
from trainer.data.totals import Totals
from trainer.data.write.open_source import OpenSource, Piece
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.spill import Spill
from trainer.data.write.written_labels import TableLabels
from trainer.process_pool import Processes
from trainer.progress_lines import ProgressLines
from vertex.errors import InputError, escape_controls

PIECE_ROWS = 1 << 12
"""Number of rows whose records are built at once."""

ROW_SECONDS = 1e-6
"""The time that a process needs to build a record from an encoded row."""

ROW_FRAME_BYTES = 36
"""Bytes of a record in addition to the entries of its row: its frame and its label."""


def find_columns(kind: Any, place: str, options: RecordOptions) -> RecordOptions:
    """Return options with the columns that are proposed, if they are AUTO; print them."""
    if options.columns != AUTO:
        return options
    schema = parse_schema(options)
    hidden = {*schema.label.columns[:1], *schema.label.indicators}
    hidden |= {schema.split_by.group, schema.split_by.column, options.weight_column}
    opened = kind.open(place, options)
    first = schema.label.columns[0]
    proposal = propose(opened, f"source={options.source!r}", first, hidden)
    for column in proposal.columns:
        named = ", ".join(f"{key} {value}" for key, value in column.items() if key != "name")
        print(escape_controls(f"create_tfrecords: column {column['name']}: {named}"))
    for name, reason in proposal.left_out.items():
        print(escape_controls(f"create_tfrecords: column {name} is left out: {reason}"))
    for one in proposal.described:
        for note in one.notes:
            print(escape_controls(f"create_tfrecords: column {one.name}: {note}"))
    return dataclasses.replace(options, columns=proposal.columns)


class OpenTable(OpenSource):
    """A `TableKind`; its rows are planned and written in blocks."""

    unit = "rows"

    opened: TableKind
    labels: TableLabels

    def __init__(self, opened: TableKind, options: RecordOptions) -> None:
        super().__init__(opened, options)
        self._schema = parse_schema(options)
        self.labels = TableLabels(self._schema.label, options.source)
        self.features = []

    def plan(self, lines: ProgressLines, processes: Processes) -> tuple[Totals, Spill]:
        """Read the table; raise InputError if it has no rows, or its label can't be learned."""
        totals, rows = Totals(), Spill()
        starts = None
        if column := self.time_column:
            samples = processes.map(self.scan, self.opened.read_all(), size=1)
            starts = self.find_starts(self.merge_samples(samples))
            shown = (f"{split} from {start}" for split, start in _name_starts(starts).items())
            print(f"create_tfrecords: splits by {column}: {', '.join(shown)}")
        parse = functools.partial(self.parse, starts=starts)
        for parsed, part in processes.map(parse, self.opened.read_all(), size=1):
            rows.add(parsed)
            totals.merge(part)
            self.labels.check_part(totals)
            lines.advance(part.items)
        rows.finish()
        self.conclude(totals)
        return totals, rows

    @property
    def time_column(self) -> str:
        """Return the column of a split by time, for which `parse` needs starts; else empty."""
        return self._schema.split_by.time

    def scan(self, block: Block) -> Sample:
        """Return the times of a block's rows; every core runs this."""
        return scan_times(block, self.time_column)

    merge_samples = staticmethod(merge_samples)

    def find_starts(self, times: Sample) -> Starts:
        """Return when splits start; raise InputError if a split would be empty."""
        fractions = self.options.split_fractions
        return find_starts(times, self.time_column, fractions, self._schema.time_form)

    def parse(self, block: Block, starts: Starts | None) -> tuple[pa.RecordBatch, Totals]:
        """Parse a block as `parse_block` does; every core runs this."""
        name = self.opened.names[block.file]
        return parse_block(block, name, self._schema, self.options.split_fractions, starts)

    def conclude(self, totals: Totals) -> None:
        if totals.starts:
            self.details = {**self.details, "split_starts": _name_starts(totals.starts)}
        columns = totals.statistics[: len(self._schema.columns)]
        first = self._describe_first(totals)
        if not totals.counts.total():
            raise InputError(f"source={self.options.source!r} has no rows that can be used{first}")
        self.labels.conclude(totals, first)
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
        if weight := self._schema.weight:
            statistics = totals.statistics[len(columns)].summarize(totals.examples)
            if not statistics["maximum"]:
                raise InputError(
                    f"source={self.options.source!r}: weight column {weight!r} is 0 in all "
                    "training rows; leave weight_column out, or use another"
                )
            self.features.append(
                Feature(
                    name=WEIGHT,
                    kind="weight",
                    dtype="float32",
                    settings={"column": weight},
                    statistics=statistics,
                )
            )
        for cross in self._schema.crosses:
            settings = dataclasses.asdict(cross)
            crossed = Feature(name=cross.name, kind="cross", dtype="int64", settings=settings)
            self.features.append(crossed)

    def estimate_cost(self, totals: Totals) -> tuple[float, float]:
        return totals.entry_bytes / max(1, totals.counts.total()) + ROW_FRAME_BYTES, ROW_SECONDS

    def make_pieces(self, rows: Iterable[pa.Table], variants: int) -> Iterator[Piece]:
        for batch in (batch for table in rows for batch in table.to_batches(PIECE_ROWS)):
            labels, indices = self.labels.encode(batch["label"])
            records = frame_records(batch["entries"], labels)
            offsets = np.frombuffer(records.buffers()[1], np.int32, len(records) + 1)
            # TensorFlow's files accept no memoryview.
            content = bytes(memoryview(records.buffers()[2])[offsets[0] : offsets[-1]])
            counts = dict(enumerate(np.bincount(indices).tolist()))
            yield Piece(content, counts, [], len(labels))

    def __getstate__(self) -> dict[str, Any]:
        # Writing processes need neither statistics nor vocabularies.
        return {**self.__dict__, "features": []}

    def _describe_first(self, totals: Totals) -> str:
        """Return a clause about the first row that can't be used; empty if all can be."""
        if not totals.rejections:
            return ""
        rejection = min(totals.rejections, key=lambda found: (len(found.key), found.key))
        first = f"; the first that can't be used is {rejection.key}: {rejection.reason}"
        return first + suggest_forms([rejection.reason])


def _name_starts(starts: Starts) -> dict[str, str]:
    return {split: start for split, start in zip(SPLITS[1:], starts, strict=True) if start}
