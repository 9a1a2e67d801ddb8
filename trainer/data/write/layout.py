"""Cut a plan into shards. Depends only on the data, the options and the store.

Never on the machine. Without a store that has earlier records, a split is cut into equal ranges
of digests. With one, shards of those that still hold stay, and what is left is cut evenly.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from trainer.data.record_options import RecordOptions
from trainer.data.sources import Source
from trainer.data.write.shards import ShardTask
from trainer.data.write.spill import Spill, digest_halves, shard_numbers
from trainer.data.write.split_plan import identities
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
    """The shards of a data set.

    Args:
        rows: the examples that `totals` count.
        stored: shards of earlier records, in the store that `options` name; None: there is none.

    Attributes:
        kept: shards that are taken over, by the name that each gets.
        tasks: a task for each of the others.
        examples: how many those have together.
        seconds: that one process will take for them, about.
    """

    def __init__(
        self,
        rows: Spill,
        totals: Totals,
        source: Source,
        options: RecordOptions,
        stored: Sequence[StoredShard] | None,
    ) -> None:
        mean, seconds = totals.record_cost(source)
        self.kept: dict[str, StoredShard] = {}
        self.tasks: list[ShardTask] = []
        self.examples, self.seconds = 0, 0.0
        for split, count in shard_counts(totals, mean, options).items():
            left, copies = totals.examples[split], variants(split, options)
            kept: list[StoredShard] = []
            parts: Sequence[list[pa.Table] | None] = [None] * count
            if stored is not None and left:
                usual = left * (1 + copies) * mean / count
                kept, tables = _cut(rows, split, stored, usual, count)
                parts, left = [[table] for table in tables], sum(map(len, tables))
            total = len(kept) + len(parts)
            files = [shard_name(split, number, total) for number in range(total)]
            self.kept.update(zip(files, kept, strict=False))
            self.tasks += [
                ShardTask(file, split, number, count, copies, part)
                for number, (file, part) in enumerate(zip(files[len(kept) :], parts, strict=True))
            ]
            self.examples += left
            self.seconds += seconds * left * (1 + copies)

    def fingerprint(self, of_plan: str) -> str:
        """Return the plan's own, where nothing is taken over; other shards have other notes."""
        names = [f"{file} {one.result.shard.sha256}" for file, one in self.kept.items()]
        text = "\n".join([of_plan, *names])
        return hashlib.sha256(text.encode()).hexdigest() if names else of_plan

    def identities(self) -> dict[str, np.ndarray]:
        """Return by file, with a store, the identities of its examples, S16 [n]."""
        written = {one.file: identities(one.rows[0]) for one in self.tasks if one.rows}
        return {**{file: shard.identities for file, shard in self.kept.items()}, **written}


def _cut(
    rows: Spill, split: str, stored: Iterable[StoredShard], usual: float, count: int
) -> tuple[list[StoredShard], list[pa.Table]]:
    """Return the shards of a split that can stay, and what they leave of it in new ones.

    Args:
        usual: bytes of a shard where all are written.
        count: shards of the split where all are written.
    """
    table = pa.concat_tables(rows.shard(split, 0, 1))
    kept, covered = unchanged(stored, split, identities(table), usual / 2)
    places = np.flatnonzero(~covered)
    if not kept:
        numbers = shard_numbers(digest_halves(table["digest"])[:, 0], count)
        parts = np.split(places, np.searchsorted(numbers, range(1, count)))
    elif count := min(len(places), max(1, round(count * len(places) / len(table)))):
        # What shards leave of digests has gaps: it is cut into equal lengths.
        parts = np.array_split(places, count)
    else:
        parts = []
    return kept, [table.take(part) for part in parts]


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
