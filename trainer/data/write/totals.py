"""Totals of a source: what its shards and dataset.json depend on, besides each example.

Merging is associative and commutative, to the bit: one process, eight, or a thousand workers
of Dataflow, each with any part of the source, end in the same totals.
"""

import collections
import dataclasses
import hashlib
import heapq
import itertools
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from trainer.data.record_options import SPLITS
from trainer.data.sources import Example, Rejection
from trainer.data.tables.statistics import ColumnStatistics
from trainer.data.write.pixels import RejectedError
from trainer.data.write.records import frame, serialize

SAMPLE = 32
"""Examples that are encoded beforehand, for their size and the time that they take."""

NAMED_PAIRS = 10
"""Equal examples under two labels that dataset.json names."""

ROW_SECONDS = 1e-6
"""That a process takes to make a record of an encoded row."""

ROW_FRAME_BYTES = 36
"""Of a record, around the entries of its row: its frame and its label."""


ClassCounts = collections.Counter[tuple[str, str]]
"""Examples by split and class."""


@dataclasses.dataclass
class Totals:
    """Everything that is known of a source's examples together.

    Attributes:
        counts: examples by split and class.
        rejections: what can't be used, and duplicates between splits.
        contradictions: how many pairs have equal content and another label.
        pairs: the first NAMED_PAIRS of these, sorted.
        content: a hash of all examples, which adds up, uint64 [2].
        sample: the SAMPLE training examples with the least digests; of a table none.
        statistics: of each column of a table.
        entry_bytes: of all encoded rows of a table.
    """

    counts: ClassCounts = dataclasses.field(default_factory=collections.Counter)
    rejections: list[Rejection] = dataclasses.field(default_factory=list)
    contradictions: int = 0
    pairs: list[list[str]] = dataclasses.field(default_factory=list)
    content: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(2, np.uint64))
    sample: list[Example] = dataclasses.field(default_factory=list)
    statistics: list[ColumnStatistics] = dataclasses.field(default_factory=list)
    entry_bytes: int = 0

    def merge(self, other: "Totals") -> None:
        """Add the totals of another part.

        Raises:
            InputError: a column has too many different values for a vocabulary.
        """
        # Unlike +=, it goes through the other's counts alone: there may be many parts, and classes.
        self.counts.update(+other.counts)
        self.rejections += other.rejections
        self.contradictions += other.contradictions
        self.pairs = heapq.nsmallest(NAMED_PAIRS, self.pairs + other.pairs)
        self.content = self.content + other.content
        sample = self.sample + other.sample
        self.sample = heapq.nsmallest(SAMPLE, sample, key=lambda one: (one.digest, one.reference))
        for merged, one in zip(self.statistics, other.statistics, strict=False):
            merged.merge(one)
        self.statistics = self.statistics or other.statistics
        self.entry_bytes += other.entry_bytes

    @property
    def examples(self) -> dict[str, int]:
        """Return how many examples each split has."""
        found = dict.fromkeys(SPLITS, 0)
        for (split, _), count in self.counts.items():
            found[split] += count
        return found

    @property
    def given(self) -> int:
        """Return examples and rejections together."""
        return self.counts.total() + len(self.rejections)

    def fingerprint(self, circumstances: Any) -> str:
        """Return a digest of all of this and of `circumstances`, which json can write."""
        rejected = sorted([one.key, one.reason] for one in self.rejections)
        text = json.dumps([circumstances, self.content.tolist(), rejected], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def record_cost(self, source: Any) -> tuple[float, float]:
        """Return the mean bytes of a record, and the seconds that one takes."""
        if source.is_table:
            return self.entry_bytes / max(1, self.counts.total()) + ROW_FRAME_BYTES, ROW_SECONDS
        started = time.monotonic()
        sizes = []
        for one in self.sample:
            key = one.reference.key
            try:
                values = source.encode(source.fetch(one.reference), key, 0)[0]
            except (RejectedError, OSError):  # Told when it comes to be written.
                continue
            sizes.append(len(frame(serialize({"key": key.encode(), **values, "label": 0}))))
        seconds = (time.monotonic() - started) / max(1, len(self.sample))
        return sum(sizes) / max(1, len(sizes)), seconds


def counted_classes(splits: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> ClassCounts:
    """Count examples by split and class, both given as indices, uint8 [n] and int [n]."""
    found = np.bincount(splits.astype(np.int64) * len(classes) + labels).tolist()
    return collections.Counter(dict(zip(itertools.product(SPLITS, classes), found, strict=False)))


def content_of(identities: np.ndarray) -> np.ndarray:
    """Return the sum of hashes (S16 [n]) that `Totals.content` holds of these examples."""
    return np.frombuffer(identities.tobytes(), np.uint64).reshape(-1, 2).sum(axis=0)
