"""Totals of a source: what its shards and dataset.json depend on, in addition to each example.

Merging is associative and commutative, to the bit: one process, eight processes or a thousand
Dataflow workers, each with any part of the source, compute the same totals.
"""

import collections
import dataclasses
import hashlib
import heapq
import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from trainer.data.schema import SPLITS
from trainer.data.source import Example, Rejection

SAMPLE = 32
"""Number of examples that are encoded in advance to measure size and time."""

NAMED_PAIRS = 10
"""Number of pairs of equal examples with different labels that dataset.json names."""

UNNAMED = ("",)
"""The only class of examples that do not have one class each, by which they are counted."""

ClassCounts = collections.Counter[tuple[str, str]]
"""Examples by split and class."""


@dataclasses.dataclass
class Totals:
    """Everything that is known about all examples of a source, or of a part of it."""

    counts: ClassCounts = dataclasses.field(default_factory=collections.Counter)
    # Labels by split and class, where an example may have several.
    labels: ClassCounts = dataclasses.field(default_factory=collections.Counter)
    # Unusable items, and duplicates between splits.
    rejections: list[Rejection] = dataclasses.field(default_factory=list)
    starts: tuple[str, str] | None = None  # those of a split by time
    contradictions: int = 0  # pairs with equal content and different labels
    # The first NAMED_PAIRS of these pairs, sorted.
    pairs: list[list[str]] = dataclasses.field(default_factory=list)
    # An additive hash of all examples, uint64 [2].
    content: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(2, np.uint64))
    # The SAMPLE training examples with the smallest digests; empty for a table.
    sample: list[Example] = dataclasses.field(default_factory=list)
    # The `tables.statistics.ColumnStatistics` of each column of a table.
    statistics: list[Any] = dataclasses.field(default_factory=list)
    entry_bytes: int = 0  # size of all encoded rows of a table

    def merge(self, other: "Totals") -> None:
        """Add the totals of another part.

        Raise InputError if a column has too many distinct values for a vocabulary.
        """
        # Unlike +=, update visits only the counts in `other`; there may be many parts and classes.
        self.counts.update(+other.counts)
        self.labels.update(+other.labels)
        self.rejections += other.rejections
        self.starts = self.starts or other.starts
        self.contradictions += other.contradictions
        self.pairs = heapq.nsmallest(NAMED_PAIRS, self.pairs + other.pairs)
        self.content = self.content + other.content
        sample = self.sample + other.sample
        self.sample = heapq.nsmallest(
            SAMPLE, sample, key=lambda example: (example.digest, example.reference)
        )
        for merged, added in zip(self.statistics, other.statistics, strict=False):
            merged.merge(added)
        self.statistics = self.statistics or other.statistics
        self.entry_bytes += other.entry_bytes

    @property
    def examples(self) -> dict[str, int]:
        """Return the number of examples by split."""
        counts = dict.fromkeys(SPLITS, 0)
        for (split, _), count in self.counts.items():
            counts[split] += count
        return counts

    @property
    def items(self) -> int:
        return self.counts.total() + len(self.rejections)

    def fingerprint(self, circumstances: Any) -> str:
        """Return a digest of the totals and of `circumstances`, which are JSON-serializable."""
        rejected = sorted([rejection.key, rejection.reason] for rejection in self.rejections)
        text = json.dumps([circumstances, self.content.tolist(), rejected], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def count_rejections(rejections: Iterable[Rejection]) -> dict[str, Any]:
    """Return their number and, by reason without its details, the numbers and the first keys."""
    reasons, first = collections.Counter[str](), dict[str, str]()
    for rejection in sorted(rejections, key=lambda found: (len(found.key), found.key)):
        reason = rejection.reason.partition(": ")[0]
        reasons[reason] += 1
        first.setdefault(reason, rejection.key)
    return {
        "count": reasons.total(),
        "reasons": dict(sorted(reasons.items())),
        "first": dict(sorted(first.items())),
    }


def count_classes(splits: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> ClassCounts:
    """Count examples by split and class, both given as indices, uint8 [n] and int [n]."""
    counts = np.bincount(splits.astype(np.int64) * len(classes) + labels).tolist()
    return collections.Counter(dict(zip(itertools.product(SPLITS, classes), counts, strict=False)))
