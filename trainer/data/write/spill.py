"""Partition a source's rows by split and digest, between reading and writing.

A source that is gzipped or remote can't be read in random order, but shards contain rows in the
order of their digests. So the pass that reads the source keeps Arrow rows, one per example, in
partitions by split and by the first byte of the digest. Shards are then written from these. Rows
in excess of MEMORY_BYTES are on local disk, compressed, until their shards are complete.
"""

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.data import storage
from trainer.data.digests import digest_halves, shard_numbers
from trainer.data.schema import SPLITS

PARTITIONS = 256
"""Number of partitions of each split on disk; in memory, each split is one partition."""

MEMORY_BYTES = 8 * 10**6
_PREFIX = "create_tfrecords-rows-"
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class Spill:
    """Rows by partition; a pickled copy still reads what was added before.

    The folder is removed when the process that created it ends or, if that process is killed, by
    the next one.
    """

    def __init__(self) -> None:
        self.counts = np.zeros((len(SPLITS), 1), np.int64)  # rows by split and partition
        self._folder = ""
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows with a `digest` and a `split`, an index into SPLITS."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= MEMORY_BYTES:
            self._flush()

    def finish(self) -> None:
        """Make the added rows readable, and free the memory that reading the source needed."""
        if self._folder:
            self._flush()
        elif self._waiting:
            self._waiting = self._sort_by_partition(sort_rows(self._join_waiting())).to_batches()
        pa.default_memory_pool().release_unused()

    def read(self, split: int, partition: int) -> pa.Table:
        """Return the rows of a partition that is not empty, in order."""
        if not self._folder:
            begin = int(self.counts[:split].sum())
            return self._join_waiting().slice(begin, int(self.counts[split, 0]))
        with self._path(split, partition).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            tables = []
            while file.tell() < size:
                tables.append(pa.ipc.open_stream(file).read_all())
        return sort_rows(pa.concat_tables(tables))

    def read_shard(self, split: str, number: int, count: int) -> Iterator[pa.Table]:
        """Yield the rows of one of a split's `count` equal ranges of digests, in order.

        Removes the files of partitions whose rows are all in this range.
        """
        pa.default_memory_pool().release_unused()  # This process may have read the source.
        split_index = SPLITS.index(split)
        width = (1 << 64) // self.counts.shape[1]
        begin, end = (-(-(n << 64) // count) for n in (number, number + 1))
        for partition in range(begin // width, -(-end // width)):
            if not self.counts[split_index, partition]:
                continue
            rows = self.read(split_index, partition)
            numbers = shard_numbers(digest_halves(rows["digest"])[:, 0], count)
            first, last = np.searchsorted(numbers, (number, number + 1)).tolist()
            yield rows.slice(first, last - first)
            is_inside = begin <= partition * width and (partition + 1) * width <= end
            if is_inside and self._folder:
                self._path(split_index, partition).unlink()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_waiting": [] if self._folder else self._waiting}

    def _path(self, split: int, partition: int) -> Path:
        return Path(self._folder, f"{split}-{partition:03}")

    def _join_waiting(self) -> pa.Table:
        return pa.Table.from_batches(self._waiting)

    def _sort_by_partition(self, rows: pa.Table) -> pa.Table:
        """Return rows sorted by partition, and count them."""
        partitions = self.counts.shape[1]
        first_bytes = digest_halves(rows["digest"])[:, 0] >> np.uint64(56)
        partitions_of_rows = rows["split"].to_numpy().astype(np.int64) * partitions
        partitions_of_rows += first_bytes.astype(np.int64) * partitions // 256
        counts = np.bincount(partitions_of_rows, minlength=self.counts.size)
        self.counts += counts.reshape(self.counts.shape)
        return rows.take(np.argsort(partitions_of_rows, kind="stable")).combine_chunks()

    def _flush(self) -> None:
        if not self._waiting:
            return
        if not self._folder:
            _remove_orphans()
            self._folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            self.counts = np.zeros((len(SPLITS), PARTITIONS), np.int64)
        previous, begin = self.counts.copy(), 0
        table = self._sort_by_partition(self._join_waiting())
        with storage.catch_write_errors(self._folder):
            for partition, count in np.ndenumerate(self.counts - previous):
                if count:
                    with (
                        self._path(*partition).open("ab") as file,
                        pa.ipc.new_stream(file, table.schema, options=_COMPRESSED) as stream,
                    ):
                        stream.write_table(table.slice(begin, count))
                    begin += count
        self._waiting, self._waiting_bytes = [], 0


def sort_rows(rows: pa.Table) -> pa.Table:
    """Return rows sorted by digest, then by the other columns except label and split."""
    names = [name for name in rows.schema.names if name not in ("label", "split")]
    return rows.sort_by([(name, "ascending") for name in names])


def _remove_orphans() -> None:
    """Remove the folders of processes that have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            process = int(folder.name.removeprefix(_PREFIX).partition("-")[0])
            if not Path(f"/proc/{process}").exists() and Path("/proc/self").exists():
                shutil.rmtree(folder, ignore_errors=True)
