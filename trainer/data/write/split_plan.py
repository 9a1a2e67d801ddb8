"""List images, assign splits, and decide which of equal images stay.

An example's split depends on a digest of its content alone: equal content is never in two splits,
and new data never moves old examples. Within a split, examples are in the order of their digests,
which is a shuffled order, and a shard is a range of digests: an example's digest and the number of
shards determine its shard.
"""

import hashlib
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.data import storage
from trainer.data.record_options import SPLITS
from trainer.data.sources import DIGEST_BYTES, Example, ImageSource, Reference, Rejection
from trainer.data.write.process_pool import Processes
from trainer.data.write.spill import Spill, digest_halves, sort_rows
from trainer.data.write.totals import NAMED_PAIRS, SAMPLE, Totals, count_classes, sum_identities
from trainer.data.write.writing_progress import ProgressLines

PIECE = 64
"""Files that a process or a thread takes at once."""

BATCH = 10_000
"""Listed examples that are converted to rows at once."""


def list_examples(
    source: ImageSource, lines: ProgressLines, processes: Processes
) -> Iterator[Example | Rejection]:
    """Yield what `source` lists: remote files are read in threads, local ones in `processes`."""

    def map_items(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        if not storage.is_remote(source.location):
            return processes.map(function, items, size=PIECE)
        waiting = iter(items)
        pieces = iter(lambda: list(itertools.islice(waiting, PIECE)), [])
        results = storage.read_ahead(
            lambda piece: list(map(function, piece)), pieces, uri=source.location
        )
        return itertools.chain.from_iterable(results)

    for one in source.examples(map_items):
        lines.advance(1)
        yield one


def plan_splits(
    listed: Iterator[Example | Rejection], classes: Sequence[str], fractions: Sequence[float]
) -> tuple[Totals, Spill]:
    """Return the totals of what a source lists, and the rows of the examples that stay."""
    totals, given, rows = Totals(), Spill(), Spill()
    while batch := list(itertools.islice(listed, BATCH)):
        totals.rejections += [one for one in batch if isinstance(one, Rejection)]
        given.add(to_rows(one for one in batch if isinstance(one, Example)))
    given.finish()
    present = np.flatnonzero(given.counts.sum(axis=1)).tolist()
    for partition in range(given.counts.shape[1]):
        parts = [
            given.read(split, partition) for split in present if given.counts[split, partition]
        ]
        if parts:
            kept, found = assign_splits(pa.concat_tables(parts), present, classes, fractions)
            rows.add(kept)
            totals.merge(found)
    rows.finish()
    return totals, rows


def to_rows(examples: Iterable[Example]) -> pa.RecordBatch:
    """Return examples as rows; those of a source without splits are in train."""
    found = list(examples)
    return pa.record_batch(
        {
            "digest": pa.array([one.digest for one in found], pa.binary(DIGEST_BYTES)),
            "key": pa.array([one.reference.key for one in found], pa.string()),
            "position": pa.array([one.reference.position for one in found], pa.int64()),
            "label": pa.array([one.label for one in found], pa.int32()),
            "split": pa.array([SPLITS.index(one.split or "train") for one in found], pa.uint8()),
        }
    )


def assign_splits(
    rows: pa.Table, present: Sequence[int], classes: Sequence[str], fractions: Sequence[float]
) -> tuple[pa.RecordBatch, Totals]:
    """Assign splits; return the rows that stay, and the totals of all.

    Of equal content in several splits, only what is in the last of them stays.

    Args:
        rows: of all examples with some digests, in any order.
        present: indices of the splits that the source has.
    """
    rows = sort_rows(rows)
    halves = digest_halves(rows["digest"])
    splits = choose_splits(rows["split"].to_numpy(), halves[:, 1], fractions, present)
    keys, labels = rows["key"].to_pylist(), rows["label"].to_numpy()
    totals, stays = Totals(), np.ones(len(keys), bool)
    fresh = np.flatnonzero(np.any(halves[1:] != halves[:-1], axis=1)) + 1
    ends = np.append(fresh, len(keys))
    sizes = np.diff(ends, prepend=0)
    for end, size in zip(ends[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
        group = np.arange(end - size, end)
        best = group[splits[group].argmax()]
        stays[group] = splits[group] == splits[best]
        reason = f"duplicate: same content as {keys[best]} in {SPLITS[splits[best]]}"
        gone = [keys[place] for place in group[~stays[group]]]
        totals.rejections += [Rejection(key, reason, tolerated=True) for key in gone]
        named = [f"{keys[place]} ({classes[labels[place]]})" for place in group]
        other = np.flatnonzero(labels[group] != labels[group[0]])
        totals.contradictions += len(other)
        pairs = [[named[0], named[place]] for place in other]
        totals.pairs = heapq.nsmallest(NAMED_PAIRS, totals.pairs + pairs)
    place = rows.schema.get_field_index("split")
    rows = rows.set_column(place, "split", pa.array(splits)).filter(stays).combine_chunks()
    totals.counts = count_classes(splits[stays], labels[stays], classes)
    totals.content = sum_identities(compute_identities(rows))
    first = rows.filter(rows["split"].to_numpy() == 0).slice(0, SAMPLE).to_pylist()
    totals.sample = [
        Example(Reference(one["key"], one["position"]), one["label"], one["digest"], "train")
        for one in first
    ]
    return rows.to_batches()[0], totals


def compute_identities(rows: pa.Table) -> np.ndarray:
    """Return a hash of the content, label and key of each example, S16 [n].

    Two runs with the same options have equal records if these are equal.
    """
    found = bytearray()
    columns = (rows[name].to_pylist() for name in ("digest", "label", "key"))
    for digest, label, key in zip(*columns, strict=True):
        text = digest + label.to_bytes(4, "little") + key.encode()
        found += hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()
    return np.frombuffer(found, f"S{DIGEST_BYTES}")


def choose_splits(
    given: np.ndarray, hashes: np.ndarray, fractions: Sequence[float], present: Sequence[int]
) -> np.ndarray:
    """Return each example's split, as its index in SPLITS, uint8 [n].

    Splits that the source has are kept. The others are taken from train, in proportion to
    `fractions`, by `hashes`: uint64 [n], uniform.
    """
    wanted = [place for place in range(len(SPLITS)) if place == 0 or place not in present]
    drawn = draw_splits(hashes, [fractions[place] for place in wanted])
    return np.where(given == 0, np.array(wanted, np.uint8)[drawn], given)


def draw_splits(hashes: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Return the index of the share that each hash (uint64 [n], uniform) falls into, uint8 [n]."""
    bounds = np.cumsum(np.array(shares) / np.sum(shares))[:-1]
    places = np.searchsorted(bounds, hashes.astype(np.float64) / 2.0**64, side="right")
    return places.astype(np.uint8)
