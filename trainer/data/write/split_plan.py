"""The plan of a data set: which example lies in which split, in which order.

Made from one pass over the source. An example's split hangs on a digest of its content
alone: equal content never straddles two splits, and new data never moves old examples.
Within a split, examples lie in the order of their digests, which is a shuffled order, and a
shard is a range of digests: whoever knows the number of shards knows the shard of an example.

A plan takes about 62 bytes an example besides its key, whatever the example's size.
"""

import hashlib
import heapq
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from trainer.data.record_options import SPLITS
from trainer.data.sources import DIGEST_BYTES, Example, Reference, Rejection
from trainer.data.write.shards import ShardTask
from trainer.data.write.totals import NAMED_PAIRS, SAMPLE, Totals, content_of

RANKS = ("", *SPLITS)
"""Splits of listed examples by the rank that is stored; of equal content, the highest stays."""

IDENTIFIED_AT_ONCE = 100_000
"""Examples whose identities, 16 bytes each, are held together."""


class Plan:
    """Everything that a source listed, compactly.

    Attributes:
        rejections: what the source listed as unusable, and duplicates between splits.
        order: by split, the indices of its examples in their order, int64 [n].
        contradictions: pairs of examples whose content is equal, and whose labels are not.
    """

    def __init__(self, listed: Iterable[Example | Rejection], fractions: Sequence[float]) -> None:
        self.rejections: list[Rejection] = []
        self._keys, self._ends = bytearray(), array("Q", [0])
        self._positions, self._labels = array("q"), array("i")
        self._digests, self._given_splits = bytearray(), bytearray()
        for one in listed:
            if isinstance(one, Rejection):
                self.rejections.append(one)
            else:
                self._add(one)
        self.contradictions: list[tuple[Example, Example]] = []
        self.order = self._ordered(fractions)

    def example(self, index: int) -> Example:
        """Return an example with the split that the source gives it."""
        key = self._keys[self._ends[index] : self._ends[index + 1]].decode()
        digest = bytes(self._digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES])
        split = RANKS[self._given_splits[index]]
        return Example(Reference(key, self._positions[index]), self._labels[index], digest, split)

    def cut(self, split: str, count: int, covered: np.ndarray | None) -> list[np.ndarray]:
        """Return the indices of each of a split's `count` shards, in order.

        Args:
            covered: examples of the split that other shards have, bool [n]. What they leave of
                digests has gaps, so that it is cut into equal lengths.
        """
        if covered is not None:
            return np.array_split(self.order[split][~covered], count)
        order = self.order[split]
        halves = np.frombuffer(self._digests, ">u8")[::2][order].astype(np.uint64)
        return np.split(order, np.searchsorted(shard_numbers(halves, count), range(1, count)))

    def task(self, file: str, split: str, chosen: Sequence[int], variants: int) -> ShardTask:
        """Return the task of the shard `file` that has the examples `chosen`."""
        return ShardTask.of(file, map(self.example, chosen), variants)

    def totals(self, classes: Sequence[str]) -> Totals:
        """Return what the plan knows of all examples together."""
        labels = np.array(self._labels, np.int32)
        totals = Totals(rejections=self.rejections, contradictions=len(self.contradictions))
        for split, order in self.order.items():
            for label, count in enumerate(np.bincount(labels[order]).tolist()):
                if count:
                    totals.counts[split, classes[label]] = count
            for part in np.array_split(order, len(order) // IDENTIFIED_AT_ONCE + 1):
                totals.content = totals.content + content_of(self.identities(part))
        totals.sample = [self.example(index) for index in self.order["train"][:SAMPLE]]
        totals.pairs = named_pairs(self.contradictions, classes)
        return totals

    def identities(self, indices: np.ndarray) -> np.ndarray:
        """Return `identity` of each of `indices`, S16 [n].

        Two plans of the same options have equal records where these are equal.
        """
        found = bytearray()
        for index in indices:
            found += identity(self.example(index))
        return np.frombuffer(found, f"S{DIGEST_BYTES}")

    def _add(self, example: Example) -> None:
        self._keys += example.reference.key.encode()
        self._ends.append(len(self._keys))
        self._positions.append(example.reference.position)
        self._labels.append(example.label)
        self._digests += example.digest
        self._given_splits.append(RANKS.index(example.split))

    def _ordered(self, fractions: Sequence[float]) -> dict[str, np.ndarray]:
        """Return the indices of each split, and on the way: duplicates between splits are rejected.

        Sorted in parts by the digests' first byte, so that copies of digests stay small.
        """
        if not self._labels:
            return {split: np.empty(0, np.int64) for split in SPLITS}
        first_bytes = np.frombuffer(self._digests, np.uint8)[::DIGEST_BYTES]
        halves = np.frombuffer(self._digests, ">u8").reshape(-1, DIGEST_BYTES // 8)
        given = np.frombuffer(self._given_splits, np.uint8)
        absent = [split for split in SPLITS if not np.any(given == RANKS.index(split))]
        by_first = np.argsort(first_bytes, kind="stable")
        ends = np.cumsum(np.bincount(first_bytes, minlength=256))
        parts: dict[str, list[np.ndarray]] = {split: [] for split in SPLITS}
        for order in np.split(by_first, ends[:-1]):
            found = halves[order].astype(np.uint64)
            within = np.lexsort((found[:, 1], found[:, 0]))
            order, found = order[within], found[within]
            ranks = assigned(given[order], found[:, 1], fractions, absent)
            kept = self._without_duplicates(order, found, ranks)
            for split in SPLITS:
                parts[split].append(order[kept & (ranks == RANKS.index(split))])
        return {split: np.concatenate(parts.pop(split)) for split in SPLITS}

    def _without_duplicates(
        self, order: np.ndarray, sorted_halves: np.ndarray, ranks: np.ndarray
    ) -> np.ndarray:
        """Return which of `order` to keep, bool [n]; put equal content in the order of its keys.

        Args:
            order: indices in the order of their digests.
            sorted_halves: those digests, uint64 [n, 2].
            ranks: those examples' splits, uint8 [n].
        """
        kept = np.ones(len(order), bool)
        fresh = np.any(sorted_halves[1:] != sorted_halves[:-1], axis=1)
        ends = np.append(np.flatnonzero(fresh) + 1, len(order))
        sizes = np.diff(ends, prepend=0)
        for end, size in zip(ends[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
            group = slice(end - size, end)
            placed = zip(order[group].tolist(), ranks[group].tolist(), strict=True)
            copies = [self.example(index)._replace(split=RANKS[rank]) for index, rank in placed]
            judged = judge_copies(copies)
            order[group] = order[group][judged.order]
            ranks[group] = ranks[group][judged.order]
            kept[group] = judged.kept
            self.rejections += judged.rejections
            self.contradictions += judged.contradictions
        return kept


class JudgedCopies(NamedTuple):
    """Examples of equal content: their order by key, which of them stay, and what is wrong."""

    order: list[int]
    kept: list[bool]
    rejections: list[Rejection]
    contradictions: list[tuple[Example, Example]]


def identity(example: Example) -> bytes:
    """Return a hash of an example's content, label and key."""
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    found.update(example.digest)
    found.update(example.label.to_bytes(4, "little"))
    found.update(example.reference.key.encode())
    return found.digest()


def named_pairs(
    contradictions: Iterable[tuple[Example, Example]], classes: Sequence[str]
) -> list[list[str]]:
    """Return the first NAMED_PAIRS of pairs, each as ["<key> (<class>)", ...], sorted."""
    named = ([f"{one.reference.key} ({classes[one.label]})" for one in p] for p in contradictions)
    return heapq.nsmallest(NAMED_PAIRS, named)


def judge_copies(copies: Sequence[Example]) -> JudgedCopies:
    """Reject copies whose split is lower than another's; find those whose label is another."""
    order = sorted(range(len(copies)), key=lambda place: copies[place].reference)
    found = [copies[place] for place in order]
    stays = max(found, key=lambda one: RANKS.index(one.split))
    reason = f"duplicate: same content as {stays.reference.key} in {stays.split}"
    return JudgedCopies(
        order,
        [one.split == stays.split for one in found],
        [
            Rejection(one.reference.key, reason, tolerated=True)
            for one in found
            if one.split != stays.split
        ],
        [(found[0], one) for one in found if one.label != found[0].label],
    )


def assigned(
    given: np.ndarray, hashes: np.ndarray, fractions: Sequence[float], absent: Sequence[str]
) -> np.ndarray:
    """Return each example's split, as its rank, uint8 [n].

    Splits that the source has are kept. The others are cut out of train, in proportion to
    `fractions`, by `hashes`: uint64 [n], uniform.
    """
    wanted = [split for split in SPLITS if split == "train" or split in absent]
    shares = np.array([fractions[SPLITS.index(split)] for split in wanted])
    ranks = np.array([RANKS.index(split) for split in wanted], np.uint8)
    return np.where(given <= 1, ranks[drawn_ranks(hashes, shares)], given)


def shard_numbers(hashes: np.ndarray, count: int) -> np.ndarray:
    """Return which of `count` equal ranges each of `hashes` (uint64 [n]) is in, int64 [n].

    That is hash * count >> 64, by halves: NumPy has no whole numbers of 128 bits.
    """
    half, ranges = np.uint64(32), np.uint64(count)
    upper, lower = hashes >> half, hashes & np.uint64(0xFFFFFFFF)
    return ((upper * ranges + (lower * ranges >> half)) >> half).astype(np.int64)


def drawn_ranks(hashes: np.ndarray, shares: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return which of `shares` each of `hashes` (uint64 [n], uniform) falls into, uint8 [n]."""
    bounds = np.cumsum(np.asarray(shares) / np.sum(shares))[:-1]
    places = np.searchsorted(bounds, hashes.astype(np.float64) / 2.0**64, side="right")
    return places.astype(np.uint8)
