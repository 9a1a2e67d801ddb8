"""Cut a plan into shards. Depends only on the data, the options and the store.

Never on the machine. Without a store that has earlier records, a split is cut into equal ranges
of digests. With one, shards of those that still hold stay, and what is left is cut evenly.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from trainer.data.record_options import SPLITS, RecordOptions
from trainer.data.sources import Source
from trainer.data.write.shards import RowTask, ShardTask
from trainer.data.write.store import StoredShard, unchanged
from trainer.data.write.totals import Totals

SHARD_MULTIPLE = 8
"""Several shards of a split are a multiple of this: 2, 4 or 8 readers get whole files each."""

PARALLEL_SHARDS = 16
"""A split of less than this many full shards is cut finer, so that all cores have work ..."""

LEAST_SHARD_BYTES = 256 * 10**3
LEAST_SHARD_EXAMPLES = 16
"""... but not into smaller shards than these."""


class Layout:
    """A plan's shards.

    Args:
        plan: a `Plan` of what `totals` are; a table is its own.
        stored: shards of earlier records, in the store that `options` name.

    Attributes:
        kept: shards that are taken over, by the name that each gets.
        shards: how many others are to be written.
        examples: how many those have together.
        seconds: that one process will take for them, about.
    """

    def __init__(
        self,
        plan: Any,
        totals: Totals,
        source: Source,
        options: RecordOptions,
        stored: Sequence[StoredShard] = (),
    ) -> None:
        self._plan = plan
        self._options = options
        mean, seconds = totals.record_cost(source)
        counts = shard_counts(totals, mean, options)
        self.kept: dict[str, StoredShard] = {}
        self._files: dict[str, list[str]] = {}
        self._covered: dict[str, np.ndarray | None] = {}
        records = self.examples = 0
        for split in SPLITS:
            examples = totals.examples[split]
            size, count = examples * (1 + variants(split, options)) * mean, counts[split]
            kept, covered = self._unchanged(split, stored, size / max(1, count))
            left = examples if covered is None else int(np.sum(~covered))
            if kept:
                count = min(left, max(1, round(count * left / examples)))
            total = len(kept) + count
            files = [shard_name(split, number, total) for number in range(total)]
            self.kept.update(zip(files, kept, strict=False))
            self._files[split], self._covered[split] = files[len(kept) :], covered
            self.examples += left
            records += left * (1 + variants(split, options))
        self.seconds = seconds * records
        self.shards = sum(map(len, self._files.values()))

    def fingerprint(self, of_plan: str) -> str:
        """Return the plan's own, where nothing is taken over; other shards have other notes."""
        names = [f"{file} {one.result.shard.sha256}" for file, one in self.kept.items()]
        text = "\n".join([of_plan, *names])
        return hashlib.sha256(text.encode()).hexdigest() if names else of_plan

    def tasks(self) -> Iterator[ShardTask | RowTask]:
        """Yield a task a shard, split by split; lists of references are made when asked for."""
        for split in SPLITS:
            for file, chosen in self._cut(split):
                yield self._plan.task(file, split, chosen, variants(split, self._options))

    def identities(self) -> dict[str, np.ndarray]:
        """Return by file, also of those taken over, the identities of its examples, S16 [n]."""
        found = {file: shard.identities for file, shard in self.kept.items()}
        for split in SPLITS:
            for file, chosen in self._cut(split):
                found[file] = self._plan.identities(chosen)
        return found

    def _cut(self, split: str) -> Iterable[tuple[str, Any]]:
        """Return each file to write, with what the plan knows its examples by."""
        files = self._files[split]
        if not files:
            return ()
        return zip(files, self._plan.cut(split, len(files), self._covered[split]), strict=True)

    def _unchanged(
        self, split: str, stored: Sequence[StoredShard], usual: float
    ) -> tuple[list[StoredShard], np.ndarray | None]:
        """Shards to take over, and which examples they have; none, and None.

        Args:
            usual: bytes of a shard where all are written.
        """
        mine = [shard for shard in stored if shard.split == split]
        if not mine:
            return [], None
        identities = self._plan.identities(self._plan.order[split])
        kept, covered = unchanged(mine, identities, usual / 2)
        return (kept, covered) if kept else ([], None)


def variants(split: str, options: RecordOptions) -> int:
    """Return how many augmented copies each example of a split has in the records."""
    augmented = split == "train" and options.augmentation == "records"
    return options.augmentation_variants if augmented else 0


def shard_counts(totals: Totals, mean: float, options: RecordOptions) -> dict[str, int]:
    """Return how many shards each split is cut into; `mean` is the bytes of a record."""
    return {
        split: shard_count(
            examples, examples * (1 + variants(split, options)) * mean, options.shard_megabytes
        )
        for split, examples in totals.examples.items()
    }


def shard_name(split: str, number: int, count: int) -> str:
    """Return the name of a shard's file."""
    return f"{split}-{number:05}-of-{count:05}.tfrecord"


def shard_count(examples: int, size: float, shard_megabytes: float) -> int:
    """Shards for a split of `examples` that take `size` bytes; 0 where there are none."""
    by_size = math.ceil(size / (shard_megabytes * 1e6))
    finest = min(examples // LEAST_SHARD_EXAMPLES, int(size / LEAST_SHARD_BYTES))
    count = max(by_size, min(PARALLEL_SHARDS, finest))
    if count > 1:
        count = math.ceil(count / SHARD_MULTIPLE) * SHARD_MULTIPLE
    return min(examples, max(1, count))
