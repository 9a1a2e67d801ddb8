"""Rows of a table between its reading and its records, parted by split and digest.

A table can't be read at random, gzipped or remote as it may be, but shards hold rows in the
order of their digests. So the pass that reads a table keeps the encoded rows in partitions, by
split and the first byte of the digest, which shards are then made of. What exceeds
MEMORY_BYTES lies on local disk, compressed, until the shards that it belongs to are whole.
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.data import storage
from trainer.data.record_options import SPLITS
from trainer.data.sources import DIGEST_BYTES

PARTITIONS = 256
"""Of each split."""

MEMORY_BYTES = 8 * 10**6
_PREFIX = "create_tfrecords-rows-"
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
SCHEMA = pa.schema({"digest": pa.binary(DIGEST_BYTES), "label": pa.int32(), "entries": pa.binary()})


class Spill:
    """Rows by partition; pickled, it still reads what was added before.

    Its folder goes with the process that made it; one that was killed is cleaned up after by
    the next.

    Attributes:
        counts: rows of each partition, int64 [splits, PARTITIONS].
    """

    def __init__(self) -> None:
        self.counts = np.zeros((len(SPLITS), PARTITIONS), np.int64)
        self._folder = ""
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Keeps rows with the columns of SCHEMA and their `split`, an index into SPLITS."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= MEMORY_BYTES:
            self._flush()

    def finish(self) -> None:
        """Makes what was added readable."""
        if self._folder:
            self._flush()
        else:
            self._waiting = self._sorted().to_batches()

    def read(self, split: int, partition: int) -> pa.Table:
        """Return the rows of a partition in the order of their digests, then of their entries."""
        number = split * PARTITIONS + partition
        if self._folder:
            with self._path(number).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                parts = []
                while file.tell() < size:
                    parts.append(pa.ipc.open_stream(file).read_all())
            rows = pa.concat_tables(parts)
        else:
            begin = int(self.counts.reshape(-1)[:number].sum())
            table = pa.Table.from_batches(self._waiting, SCHEMA)
            rows = table.slice(begin, int(self.counts[split, partition]))
        return in_order(rows)

    def forget(self, split: int, partition: int) -> None:
        """Removes the file of a partition that nobody will read again."""
        if self._folder:
            self._path(split * PARTITIONS + partition).unlink()

    def remove(self) -> None:
        """Removes all files."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_waiting": [] if self._folder else self._waiting}

    def _path(self, number: int) -> Path:
        return Path(self._folder, f"{number:03}")

    def _sorted(self) -> pa.Table:
        """Return what waits, ordered by partition, and count it."""
        schema = pa.schema([*SCHEMA, ("split", pa.uint8())])
        table = pa.Table.from_batches([one.select(schema.names) for one in self._waiting], schema)
        first = digest_halves(table["digest"])[:, 0] >> np.uint64(56)
        places = table["split"].to_numpy().astype(np.int64) * PARTITIONS + first.astype(np.int64)
        self.counts += np.bincount(places, minlength=self.counts.size).reshape(self.counts.shape)
        ordered = table.select(SCHEMA.names).take(np.argsort(places, kind="stable"))
        return ordered.combine_chunks()

    def _flush(self) -> None:
        """Writes what waits to the files of its partitions."""
        if not self._folder:
            _remove_orphans()
            self._folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
        before = self.counts.reshape(-1).copy()
        table = self._sorted()
        begin = 0
        with storage.writing(self._folder):
            for number, count in enumerate((self.counts.reshape(-1) - before).tolist()):
                if count:
                    with (
                        self._path(number).open("ab") as file,
                        pa.ipc.new_stream(file, SCHEMA, options=_COMPRESSED) as stream,
                    ):
                        stream.write_table(table.slice(begin, count))
                    begin += count
        self._waiting, self._waiting_bytes = [], 0


def in_order(rows: pa.Table) -> pa.Table:
    """Return rows in the order of their digests, then of their entries."""
    return rows.sort_by([("digest", "ascending"), ("entries", "ascending")])


def digest_halves(digests: pa.ChunkedArray) -> np.ndarray:
    """Return digests as uint64 [n, 2], whose order is theirs."""
    chunks = [
        np.frombuffer(one.buffers()[1], ">u8", 2 * len(one), one.offset * DIGEST_BYTES)
        for one in digests.chunks
        if len(one)
    ]
    return np.concatenate([np.empty(0, np.uint64), *chunks]).astype(np.uint64).reshape(-1, 2)


def _remove_orphans() -> None:
    """Removes folders of processes that are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            process = int(folder.name.removeprefix(_PREFIX).partition("-")[0])
            if not Path(f"/proc/{process}").exists() and Path("/proc/self").exists():
                shutil.rmtree(folder, ignore_errors=True)
