"""Which shards a plan becomes. It hangs on the data and the options alone, never on the machine."""

import math
import time
from collections.abc import Iterator

from trainer.dataset.options import SPLITS, RecordOptions
from trainer.dataset.pixels import RejectedError
from trainer.dataset.plan import Plan
from trainer.dataset.records import frame, serialize
from trainer.dataset.shards import ShardTask
from trainer.dataset.sources import Source

SHARD_MULTIPLE = 8
"""Several shards of a split are a multiple of this: 2, 4 or 8 readers get whole files each."""

PARALLEL_SHARDS = 16
"""A split of less than this many full shards is cut finer, so that all cores have work ..."""

LEAST_SHARD_BYTES = 256 * 10**3
LEAST_SHARD_EXAMPLES = 16
"""... but not into smaller shards than these."""

SAMPLE = 32
"""Examples that are encoded beforehand, for their size and the time that they take."""


class Layout:
    """A plan's shards.

    Attributes:
        counts: by split, how many shards.
        seconds: that one process will take, about.
    """

    def __init__(self, plan: Plan, source: Source, options: RecordOptions) -> None:
        self._plan = plan
        self._variants = dict.fromkeys(SPLITS, 0)
        if options.augmentation == "records":
            self._variants["train"] = options.augmentation_variants
        started = time.monotonic()
        mean = _mean_record_bytes(plan, source)
        examples = {split: len(plan.order[split]) for split in SPLITS}
        records = {split: examples[split] * (1 + self._variants[split]) for split in SPLITS}
        sampled = min(SAMPLE, examples["train"])
        self.seconds = (time.monotonic() - started) / sampled * sum(records.values())
        self.counts = {
            split: shard_count(examples[split], records[split] * mean, options.shard_megabytes)
            for split in SPLITS
        }

    def tasks(self) -> Iterator[ShardTask]:
        """A task a shard, split by split; lists of references are made as they are asked for."""
        for split, count in self.counts.items():
            order = self._plan.order[split]
            for shard in range(count):
                chosen = order[shard * len(order) // count : (shard + 1) * len(order) // count]
                yield ShardTask(
                    file=f"{split}-{shard:05}-of-{count:05}.tfrecord",
                    references=[self._plan.reference(index) for index in chosen],
                    labels=[self._plan.label(index) for index in chosen],
                    variants=self._variants[split],
                )


def shard_count(examples: int, size: float, shard_megabytes: float) -> int:
    """Shards for a split of `examples` that take `size` bytes; 0 where there are none."""
    by_size = math.ceil(size / (shard_megabytes * 1e6))
    finest = min(examples // LEAST_SHARD_EXAMPLES, int(size / LEAST_SHARD_BYTES))
    count = max(by_size, min(PARALLEL_SHARDS, finest))
    if count > 1:
        count = math.ceil(count / SHARD_MULTIPLE) * SHARD_MULTIPLE
    return min(examples, max(1, count))


def _mean_record_bytes(plan: Plan, source: Source) -> float:
    """Bytes of a record, the mean over the first of the training split that can be used."""
    sizes = []
    for index in plan.order["train"][:SAMPLE]:
        reference = plan.reference(index)
        try:
            fetched = source.fetch(reference)
            values = source.encode(fetched, reference.key, 0)[0]
        except RejectedError:
            continue
        key = reference.key.encode()
        sizes.append(len(frame(serialize({"key": key, **values, "label": 0}))))
    return sum(sizes) / max(1, len(sizes))
