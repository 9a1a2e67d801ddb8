"""Write a shard: rows, one per example, to one TFRecord file, atomically.

A shard is an independent, deterministic task: it needs only the source and the rows, so any
process on any machine may write it. Its result is noted under `.unfinished/<fingerprint>/` in the
output folder, and a rerun trusts a shard only if the file has the checksum in the note. The
fingerprint covers options and plan, so notes of other options or other content are never used.
"""

import dataclasses
import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.data import storage
from trainer.data.digests import digest_halves
from trainer.data.integrity import find_shard_problem
from trainer.data.schema import Shard
from trainer.data.source import Rejection
from trainer.data.storage import join
from trainer.data.write.open_source import OpenSource
from trainer.data.write.spill import Spill

UNFINISHED = ".unfinished"


def shard_name(split: str, number: int, count: int) -> str:
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
class ShardResult:
    """The result of writing a shard."""

    shard: Shard
    class_counts: list[int]  # number of records of each class
    rejections: list[Rejection]
    copies: int = 0  # rows that are equal to another one before them

    @property
    def split(self) -> str:
        return self.shard.file.partition("-")[0]

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "ShardResult":
        """Return the result that `dataclasses.asdict` converted to `content`."""
        return cls(
            Shard(**content["shard"]),
            content["class_counts"],
            [Rejection(**rejection) for rejection in content["rejections"]],
            content["copies"],
        )


@dataclasses.dataclass(frozen=True)
class ShardWriter:
    """Writes shards of `source` into the folder `output_uri`."""

    source: OpenSource
    output_uri: str
    creation: dict[str, Any]  # entry of dataset.json that says how the records were created
    fingerprint: str  # fingerprint of the plan and of its layout
    rows: Spill | None = None  # rows for tasks that don't contain their rows

    @property
    def notes_uri(self) -> str:
        return join(self.output_uri, UNFINISHED, self.fingerprint)

    def write(self, task: ShardTask, report: Callable[[int], None]) -> ShardResult:
        """Write a shard unless an earlier run did; call `report(n)` when n more examples are done.

        Raise InputError if the output can't be written, or the source is no longer as listed.
        """
        result = self.find_result(task.file)
        if result is not None:
            report(result.shard.examples // (1 + task.variants) + len(result.rejections))
            return result
        return self.place(task.file, lambda partial: self._write(task, partial, report))

    def place(self, file: str, make: Callable[[str], ShardResult]) -> ShardResult:
        """Let `make` write a file, move it into place as a shard, and note the result."""
        # Two machines may write the same shard at the same time, in processes with the same id.
        partial = join(self.notes_uri, f"{file}.{secrets.token_hex(4)}.partial")
        with storage.catch_write_errors(self.output_uri):
            try:
                result = make(partial)
                storage.replace(partial, join(self.output_uri, file))
                # Write the note after the shard: a note without its shard is useless.
                note = json.dumps(dataclasses.asdict(result)).encode()
                storage.write_atomically(self._note_uri(file), note)
            except BaseException:
                storage.remove(partial)
                raise
        return result

    def find_result(self, file: str) -> ShardResult | None:
        """Return the result in an earlier run's note, if the shard is intact; otherwise None."""
        try:
            result = ShardResult.from_json(json.loads(storage.read(self._note_uri(file))))
        except Exception:  # There is no note, or it is damaged: the shard is written again.
            return None
        uri = join(self.output_uri, result.shard.file)
        return None if find_shard_problem(uri, result.shard) else result

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

    def _note_uri(self, file: str) -> str:
        return join(self.notes_uri, f"{file}.json")
