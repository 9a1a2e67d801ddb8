"""The plan of a data set: which example lies in which split, in which order.

Made from one pass over the source. An example's split hangs on a digest of its content
alone: equal content never straddles two splits, and new data never moves old examples.
Within a split, examples lie in the order of their digests, which is a shuffled order, and a
shard is a range of digests: whoever knows the number of shards knows the shard of an example.

A plan takes about 62 bytes an example besides its key, whatever the example's size.
"""

import hashlib
import json
import time
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from trainer.data.record_options import SPLITS
from trainer.data.sources import DIGEST_BYTES, Example, Reference, Rejection, Source
from trainer.data.write.pixels import RejectedError
from trainer.data.write.records import frame, serialize
from trainer.data.write.shards import ShardTask

_SPLITS = ("", *SPLITS)
"""Splits of listed examples by the rank that is stored; of equal content, the highest stays."""

SAMPLE = 32
"""Examples that are encoded beforehand, for their size and the time that they take."""


class Plan:
    """Everything that a source listed, compactly.

    Attributes:
        given: examples and rejections together.
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
        self.given = len(self._labels) + len(self.rejections)
        self.order = self._ordered(fractions)

    def reference(self, index: int) -> Reference:
        key = self._keys[self._ends[index] : self._ends[index + 1]].decode()
        return Reference(key, self._positions[index])

    def example(self, index: int) -> Example:
        """Return an example with the split that the source gives it."""
        split = _SPLITS[self._given_splits[index]]
        return Example(self.reference(index), self._labels[index], self.digest(index), split)

    def digest(self, index: int) -> bytes:
        return bytes(self._digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES])

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
        return ShardTask(
            file=file,
            references=[self.reference(index) for index in chosen],
            labels=[self._labels[index] for index in chosen],
            digests=[self.digest(index) for index in chosen],
            variants=variants,
        )

    def cost(self, source: Source) -> tuple[float, float]:
        """Return the bytes and the seconds of a record: the mean over SAMPLE training examples."""
        started = time.monotonic()
        sizes = []
        sampled = self.order["train"][:SAMPLE]
        for index in sampled:
            reference = self.reference(index)
            try:
                fetched = source.fetch(reference)
                values = source.encode(fetched, reference.key, 0)[0]
            except RejectedError:
                continue
            key = reference.key.encode()
            sizes.append(len(frame(serialize({"key": key, **values, "label": 0}))))
        seconds = (time.monotonic() - started) / max(1, len(sampled))
        return sum(sizes) / max(1, len(sizes)), seconds

    def identities(self, indices: np.ndarray) -> np.ndarray:
        """Return a hash of content, label and key of each of `indices`, S16 [n].

        Two plans of the same options have equal records where these are equal.
        """
        found = bytearray()
        for index in indices:
            identity = hashlib.blake2b(digest_size=DIGEST_BYTES)
            identity.update(self.digest(index))
            identity.update(self._labels[index].to_bytes(4, "little"))
            identity.update(self._keys[self._ends[index] : self._ends[index + 1]])
            found += identity.digest()
        return np.frombuffer(found, f"S{DIGEST_BYTES}")

    def class_counts(self, classes: int) -> list[int]:
        """Count the examples of each class, over all splits."""
        labels = np.frombuffer(self._labels, np.int32) if self._labels else np.empty(0, np.int32)
        return [
            sum(counts)
            for counts in zip(
                *(np.bincount(labels[order], minlength=classes) for order in self.order.values()),
                strict=True,
            )
        ]

    def fingerprint(self, circumstances: Any) -> str:
        """Return a digest of the whole plan and of `circumstances`, which json can write."""
        content = hashlib.sha256(json.dumps(circumstances, sort_keys=True).encode())
        for part in (self._keys, self._ends, self._positions, self._labels, self._digests):
            content.update(part)
        for split in SPLITS:
            content.update(self.order[split].data)
        for rejection in self.rejections:
            content.update(f"{rejection.key}\0{rejection.reason}\0".encode())
        return content.hexdigest()

    def _add(self, example: Example) -> None:
        self._keys += example.reference.key.encode()
        self._ends.append(len(self._keys))
        self._positions.append(example.reference.position)
        self._labels.append(example.label)
        self._digests += example.digest
        self._given_splits.append(_SPLITS.index(example.split))

    def _ordered(self, fractions: Sequence[float]) -> dict[str, np.ndarray]:
        """Return the indices of each split, and on the way: duplicates between splits are rejected.

        Sorted in parts by the digests' first byte, so that copies of digests stay small.
        """
        if not self._labels:
            return {split: np.empty(0, np.int64) for split in SPLITS}
        first_bytes = np.frombuffer(self._digests, np.uint8)[::DIGEST_BYTES]
        halves = np.frombuffer(self._digests, ">u8").reshape(-1, DIGEST_BYTES // 8)
        given = np.frombuffer(self._given_splits, np.uint8)
        absent = [split for split in SPLITS if not np.any(given == _SPLITS.index(split))]
        by_first = np.argsort(first_bytes, kind="stable")
        ends = np.cumsum(np.bincount(first_bytes, minlength=256))
        parts: dict[str, list[np.ndarray]] = {split: [] for split in SPLITS}
        for order in np.split(by_first, ends[:-1]):
            found = halves[order].astype(np.uint64)
            within = np.lexsort((found[:, 1], found[:, 0]))
            order, found = order[within], found[within]
            ranks = _assigned(given[order], found[:, 1], fractions, absent)
            kept = self._without_duplicates(order, found, ranks)
            for split in SPLITS:
                parts[split].append(order[kept & (ranks == _SPLITS.index(split))])
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
            copies = [self.example(index)._replace(split=_SPLITS[rank]) for index, rank in placed]
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


def judge_copies(copies: Sequence[Example]) -> JudgedCopies:
    """Reject copies whose split is lower than another's; find those whose label is another."""
    order = sorted(range(len(copies)), key=lambda place: copies[place].reference)
    found = [copies[place] for place in order]
    stays = max(found, key=lambda one: _SPLITS.index(one.split))
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


def _assigned(
    given: np.ndarray, hashes: np.ndarray, fractions: Sequence[float], absent: Sequence[str]
) -> np.ndarray:
    """Return each example's split, as its rank, uint8 [n].

    Splits that the source has are kept. The others are cut out of train, in proportion to
    `fractions`, by `hashes`: uint64 [n], uniform.
    """
    wanted = [split for split in SPLITS if split == "train" or split in absent]
    shares = np.array([fractions[SPLITS.index(split)] for split in wanted])
    drawn = np.array([_SPLITS.index(split) for split in wanted], np.uint8)[
        drawn_ranks(hashes, shares)
    ]
    return np.where(given <= _SPLITS.index("train"), drawn, given)


def shard_numbers(hashes: np.ndarray, count: int) -> np.ndarray:
    """Return which of `count` equal ranges each of `hashes` (uint64 [n]) is in, int64 [n]."""
    bounds = [-(-(number << 64) // count) for number in range(1, count)]
    return np.searchsorted(np.array(bounds, np.uint64), hashes, side="right")


def drawn_ranks(hashes: np.ndarray, shares: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return which of `shares` each of `hashes` (uint64 [n], uniform) falls into, uint8 [n]."""
    bounds = np.cumsum(np.asarray(shares) / np.sum(shares))[:-1]
    places = np.searchsorted(bounds, hashes.astype(np.float64) / 2.0**64, side="right")
    return places.astype(np.uint8)
