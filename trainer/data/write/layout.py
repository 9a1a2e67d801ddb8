"""Cut a plan into shards. Depends only on the data, the options and the store.

It never depends on the machine. Without a store of earlier records, a split is cut into equal
ranges of digests. With a store, earlier shards that are still valid are kept, and the remaining
examples are divided evenly.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from trainer.data.digests import digest_halves, shard_numbers
from trainer.data.totals import Totals
from trainer.data.write.open_source import OpenSource
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.shards import ShardTask, shard_name
from trainer.data.write.spill import Spill
from trainer.data.write.split_plan import compute_identities
from trainer.data.write.store import StoredShard, find_unchanged

SHARD_MULTIPLE = 8
"""The number of a split's shards, unless it is 1, is a multiple of this: so each of 2, 4 or 8
readers gets whole files."""

PARALLEL_SHARDS = 16
"""A split with fewer full shards than this is cut into smaller ones, so that all cores work."""

MIN_SHARD_BYTES = 256 * 10**3
MIN_SHARD_EXAMPLES = 16
"""The least content of these smaller shards."""


class Layout:
    """The shards of a dataset.

    Args:
        rows: the examples that `totals` count.
        stored: shards of earlier records, from the store that its options name; None: no store.
    """

    def __init__(
        self,
        rows: Spill,
        totals: Totals,
        source: OpenSource,
        stored: Sequence[StoredShard] | None,
    ) -> None:
        options = source.options
        mean, seconds = source.estimate_cost(totals)
        self.kept: dict[str, StoredShard] = {}  # stored shards to copy, by new file name
        self.tasks: list[ShardTask] = []  # a task for each of the other shards
        # The examples of all tasks, and the approximate time that one process needs for them.
        self.examples, self.seconds = 0, 0.0
        for split, count in shard_counts(totals, mean, options).items():
            examples, variants = totals.examples[split], variant_count(split, options)
            kept: list[StoredShard] = []
            rows_of_tasks: Sequence[list[pa.Table] | None] = [None] * count
            if stored is not None and examples:
                mean_shard = examples * (1 + variants) * mean / count
                kept, tables = _cut(rows, split, stored, mean_shard, count)
                rows_of_tasks = [[table] for table in tables]
                examples = sum(map(len, tables))
            total = len(kept) + len(rows_of_tasks)
            for number, shard in enumerate(kept):
                self.kept[shard_name(split, number, total)] = shard
            for number, task_rows in enumerate(rows_of_tasks, len(kept)):
                self.tasks.append(ShardTask(split, number, total, variants, task_rows))
            self.examples += examples
            self.seconds += seconds * examples * (1 + variants)

    def fingerprint(self, plan_fingerprint: str) -> str:
        """Return the fingerprint of a plan with the shards in `kept`, if any."""
        names = [f"{file} {stored.result.shard.sha256}" for file, stored in self.kept.items()]
        text = "\n".join([plan_fingerprint, *names])
        return hashlib.sha256(text.encode()).hexdigest() if names else plan_fingerprint

    def compute_identities(self) -> dict[str, np.ndarray]:
        """Return the identities of each file's examples, S16 [n]; needs a store."""
        written = {task.file: compute_identities(task.rows[0]) for task in self.tasks if task.rows}
        return {file: shard.identities for file, shard in self.kept.items()} | written


def _cut(
    rows: Spill, split: str, stored: Iterable[StoredShard], mean_size: float, count: int
) -> tuple[list[StoredShard], list[pa.Table]]:
    """Return the shards of a split that can be kept, and the remaining rows in new shards.

    Args:
        mean_size: size of a shard in bytes, if all shards are written.
        count: number of the split's shards, if all are written.
    """
    table = pa.concat_tables(rows.read_shard(split, 0, 1))
    kept, covered = find_unchanged(stored, split, compute_identities(table), mean_size / 2)
    remaining = np.flatnonzero(~covered)
    if not kept:
        numbers = shard_numbers(digest_halves(table["digest"])[:, 0], count)
        parts = np.split(remaining, np.searchsorted(numbers, range(1, count)))
    elif count := min(len(remaining), max(1, round(count * len(remaining) / len(table)))):
        # The remaining digests have gaps: divide the rows into equal numbers instead.
        parts = np.array_split(remaining, count)
    else:
        parts = []
    return kept, [table.take(part) for part in parts]


def variant_count(split: str, options: RecordOptions) -> int:
    """Return the number of augmented copies of each example of a split in the records."""
    augmented = split == "train" and options.augmentation == "records"
    return options.augmentation_variants if augmented else 0


def shard_counts(totals: Totals, mean: float, options: RecordOptions) -> dict[str, int]:
    """Return the number of shards of each split; `mean` is the mean bytes of a record."""
    return {
        split: shard_count(
            examples, examples * (1 + variant_count(split, options)) * mean, options.shard_megabytes
        )
        for split, examples in totals.examples.items()
    }


def shard_count(examples: int, size: float, shard_megabytes: float) -> int:
    """Return the number of shards for a split with `examples` in `size` bytes; 0 if it is empty."""
    by_size = math.ceil(size / (shard_megabytes * 1e6))
    finest = min(examples // MIN_SHARD_EXAMPLES, int(size / MIN_SHARD_BYTES))
    count = max(by_size, min(PARALLEL_SHARDS, finest))
    if count > 1:
        count = math.ceil(count / SHARD_MULTIPLE) * SHARD_MULTIPLE
    return min(examples, max(1, count))
