"""Rows on local disk, in the order in which they will be written.

A table can't be read at random, gzipped or remote as it may be, but shards hold rows in the
order of their digests. So the pass that lists a table leaves its rows in files by the first
byte of the digest: a shard's rows then lie in a few neighboring files, read from there.
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from trainer.data import storage

PARTITIONS = 256
_OFFSET_BITS = 44
_BUFFER_BYTES = 1 << 16
_LENGTH_BYTES = 4
_PREFIX = "create_tfrecords-rows-"


class Spill:
    """Rows by position; pickled, it still reads those that were added before.

    It takes the disk space of the uncompressed rows and goes with the process that made it;
    one that was killed is cleaned up after by the next.
    """

    def __init__(self) -> None:
        _remove_orphans()
        self._folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
        self._buffers = [bytearray() for _ in range(PARTITIONS)]
        self._ends = [0] * PARTITIONS
        self._open: tuple[int, int] | None = None

    def add(self, digest: bytes, row: bytes) -> int:
        """Keeps a row; returns its position."""
        partition = digest[0]
        buffer, offset = self._buffers[partition], self._ends[partition]
        buffer += len(row).to_bytes(_LENGTH_BYTES, "little")
        buffer += row
        self._ends[partition] = offset + _LENGTH_BYTES + len(row)
        if len(buffer) >= _BUFFER_BYTES:
            self._flush(partition)
        return partition << _OFFSET_BITS | offset

    def finish(self) -> None:
        """Writes what is still in memory."""
        for partition in range(PARTITIONS):
            self._flush(partition)

    def read(self, position: int) -> bytes:
        """The row at a position that `add` gave."""
        partition, offset = position >> _OFFSET_BITS, position & (1 << _OFFSET_BITS) - 1
        if self._open is None or self._open[0] != partition:
            self._close()
            self._open = (partition, os.open(self._path(partition), os.O_RDONLY))
        head = os.pread(self._open[1], 512, offset)
        size = _LENGTH_BYTES + int.from_bytes(head[:_LENGTH_BYTES], "little")
        if size > len(head):
            head = os.pread(self._open[1], size, offset)
        return head[_LENGTH_BYTES:size]

    def remove(self) -> None:
        """Removes the files."""
        self._close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __getstate__(self) -> dict[str, str]:
        return {"_folder": self._folder}

    def __setstate__(self, state: dict[str, str]) -> None:
        self._folder = state["_folder"]
        self._open = None

    def _path(self, partition: int) -> Path:
        return Path(self._folder, f"{partition:02x}")

    def _flush(self, partition: int) -> None:
        if self._buffers[partition]:
            with storage.writing(self._folder), self._path(partition).open("ab") as file:
                file.write(self._buffers[partition])
            self._buffers[partition].clear()

    def _close(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None


def _remove_orphans() -> None:
    """Removes folders of processes that are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            process = int(folder.name.removeprefix(_PREFIX).partition("-")[0])
            if not Path(f"/proc/{process}").exists() and Path("/proc/self").exists():
                shutil.rmtree(folder, ignore_errors=True)
