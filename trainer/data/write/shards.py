"""Write a shard: rows, one per example, to one TFRecord file, atomically.

A shard is an independent, deterministic task: it needs only the source and the rows, so any
process on any machine may write it. Its result is noted in the output folder (output.py), so that a
rerun writes only what is missing.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.data import storage
from trainer.data.digests import digest_halves
from trainer.data.schema import Shard
from trainer.data.source import Rejection
from trainer.data.write.open_source import OpenSource
from trainer.data.write.output import OutputFolder, ShardResult
from trainer.data.write.spill import Spill


def shard_name(split: str, number: int, count: int) -> str:
    """Return the name of a shard's file."""
    return f"{split}-{number:05}-of-{count:05}.tfrecord"


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """A shard to write: one of the `count` shards of a split."""

    split: str
    number: int
    count: int
    variants: int  # augmented copies to write after each example
    # All rows in order; None: the rows in one of `count` equal ranges of digests.
    rows: Sequence[pa.Table] | None = None

    @property
    def file(self) -> str:
        return shard_name(self.split, self.number, self.count)


@dataclasses.dataclass(frozen=True)
class ShardWriter:
    """Writes shards of `source` into a folder."""

    source: OpenSource
    folder: OutputFolder
    creation: dict[str, Any]  # entry of dataset.json that says how the records were created
    rows: Spill | None = None  # rows for tasks that don't contain their rows

    def write(self, task: ShardTask, report: Callable[[int], None]) -> ShardResult:
        """Write a shard unless an earlier run did; call `report(n)` when n more examples are done.

        Raise InputError if the output can't be written, or the source is no longer as listed.
        """
        result = self.folder.find_result(task.file)
        if result is not None:
            report(result.shard.examples // (1 + task.variants) + len(result.rejections))
            return result
        return self.folder.place(task.file, lambda partial: self._write(task, partial, report))

    def _write(self, task: ShardTask, partial: str, report: Callable[[int], None]) -> ShardResult:
        digest, size = hashlib.sha256(), 0
        counts = [0] * len(self.source.labels.counted)
        rejections: list[Rejection] = []
        rows: Iterable[pa.Table] = task.rows or ()
        if self.rows and task.rows is None:
            rows = self.rows.read_shard(task.split, task.number, task.count)
        copies = 0

        def count_copies() -> Iterator[pa.Table]:
            nonlocal copies
            for table in rows:
                halves = digest_halves(table["digest"]) if len(table) else np.empty((0, 2))
                copies += int((halves[1:] == halves[:-1]).all(axis=1).sum())
                yield table

        with storage.open_file(partial, "wb") as file:
            for piece in self.source.make_pieces(count_copies(), task.variants):
                file.write(piece.content)
                digest.update(piece.content)
                size += len(piece.content)
                for label, count in piece.labels.items():
                    counts[label] += count
                rejections += piece.rejections
                report(piece.examples)
        shard = Shard(file=task.file, examples=sum(counts), bytes=size, sha256=digest.hexdigest())
        return ShardResult(shard, counts, rejections, copies)
