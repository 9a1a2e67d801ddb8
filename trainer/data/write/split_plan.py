"""Assign splits to listed images, and decide which of several equal images are kept.

An example's split depends on a digest of its content alone: equal content is never in two splits,
and new data never moves old examples. Within a split, examples are in the order of their digests,
which is a shuffled order, and a shard is a range of digests: an example's digest and the number of
shards determine its shard.
"""

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.data.digests import digest_halves, draw_splits
from trainer.data.schema import SPLITS
from trainer.data.source import DIGEST_BYTES, Example, Reference, Rejection
from trainer.data.totals import NAMED_PAIRS, SAMPLE, Totals
from trainer.data.write.spill import Spill, sort_rows
from trainer.data.write.written_labels import ClassIndices, TableLabels
from trainer.process_pool import cut
from vertex.errors import InputError, one_line

Labels = ClassIndices | TableLabels

BATCH = 10_000
"""Number of listed examples that are converted to rows at once."""

_SPLIT_INDICES = {"": 0, **{name: index for index, name in enumerate(SPLITS)}}
"""Index of each split; examples without a split are in train."""


def plan_splits(
    listed: Iterator[Example | Rejection], labels: Labels, fractions: Sequence[float]
) -> tuple[Totals, Spill]:
    """Return the totals of what a source lists, and the rows of the examples that are kept."""
    totals, spill, rows = Totals(), Spill(), Spill()
    for batch in cut(listed, BATCH):
        totals.rejections += [item for item in batch if isinstance(item, Rejection)]
        spill.add(to_rows((item for item in batch if isinstance(item, Example)), labels.stored))
    spill.finish()
    present = np.flatnonzero(spill.counts.sum(axis=1)).tolist()
    for partition in range(spill.counts.shape[1]):
        parts = [
            spill.read(split, partition) for split in present if spill.counts[split, partition]
        ]
        if parts:
            kept, part_totals = assign_splits(pa.concat_tables(parts), present, labels, fractions)
            rows.add(kept)
            totals.merge(part_totals)
    rows.finish()
    return totals, rows


def to_rows(examples: Iterable[Example], label_type: pa.DataType) -> pa.RecordBatch:
    """Return examples as rows; examples without a split are in train.

    Raise InputError if a field of an example has a wrong type or size.
    """
    examples = list(examples)
    try:
        splits = [_SPLIT_INDICES[example.split or ""] for example in examples]
        positions = [example.reference.position for example in examples]
        digests = [example.digest for example in examples]
        return pa.record_batch(
            {
                "digest": pa.array(digests, pa.binary(DIGEST_BYTES)),
                "key": pa.array([example.reference.key for example in examples], pa.string()),
                "position": pa.array(positions, pa.int64()),
                "label": pa.array([example.label for example in examples], label_type),
                "split": pa.array(splits, pa.uint8()),
            }
        )
    except (ValueError, TypeError, KeyError) as error:  # Arrow's errors are subclasses.
        raise InputError(
            f"the source lists a malformed example: {one_line(error)}; an example has a key (str), "
            f"a position (int), a label ({label_type}), a digest ({DIGEST_BYTES} bytes) and a "
            f"split ('' or {', '.join(SPLITS)})"
        ) from None


def assign_splits(
    rows: pa.Table, present: Sequence[int], labels: Labels, fractions: Sequence[float]
) -> tuple[pa.RecordBatch, Totals]:
    """Assign splits; return the rows that are kept, and the totals of all rows.

    If several splits have equal content, it is rejected in all but the last of them.

    Args:
        rows: all examples with some digests, in any order.
        present: indices of the splits that the source has.
    """
    rows = sort_rows(rows)
    halves = digest_halves(rows["digest"])
    splits = choose_splits(rows["split"].to_numpy(), halves[:, 1], fractions, present)
    keys, given = rows["key"].to_pylist(), rows["label"].combine_chunks()
    labels.check(keys, given)
    rejections, pairs = _compare_copies(halves, splits, given.to_pylist(), keys, labels)
    stays = np.ones(len(keys), bool)
    stays[list(rejections)] = False
    column = rows.schema.get_field_index("split")
    rows = rows.set_column(column, "split", pa.array(splits)).filter(stays).combine_chunks()
    totals = Totals(
        rejections=list(rejections.values()),
        contradictions=len(pairs),
        pairs=heapq.nsmallest(NAMED_PAIRS, pairs),
        content=compute_identities(rows).view(np.uint64).reshape(-1, 2).sum(axis=0),
        sample=_sample_training(rows),
    )
    totals.merge(labels.count(rows["label"].combine_chunks(), splits[stays], halves[stays, 0]))
    return rows.to_batches()[0], totals


def _compare_copies(
    halves: np.ndarray,
    splits: np.ndarray,
    given: Sequence[Any],
    keys: Sequence[str],
    labels: Labels,
) -> tuple[dict[int, Rejection], list[list[str]]]:
    """Compare rows with equal digests; the rows are sorted.

    Return rejections, by index, of those that are not in the last split of their group, and pairs
    of the first of a group with each one that has another label.
    """
    rejections, pairs = {}, []
    begins = np.flatnonzero(np.any(halves[1:] != halves[:-1], axis=1)) + 1
    bounds = np.concatenate([[0], begins, [len(halves)]])
    for group in np.flatnonzero(np.diff(bounds) > 1):
        begin, end = bounds[group : group + 2].tolist()
        best = begin + int(splits[begin:end].argmax())
        reason = f"duplicate: same content as {keys[best]} in {SPLITS[splits[best]]}"
        first = f"{keys[begin]} ({labels.name(given[begin])})"
        for index in range(begin, end):
            if splits[index] != splits[best]:
                rejections[index] = Rejection(keys[index], reason, tolerated=True)
            if given[index] != given[begin]:
                pairs.append([first, f"{keys[index]} ({labels.name(given[index])})"])
    return rejections, pairs


def _sample_training(rows: pa.Table) -> list[Example]:
    """Return the first SAMPLE examples of the training split."""
    training = rows.filter(rows["split"].to_numpy() == 0).slice(0, SAMPLE)
    return [
        Example(Reference(row["key"], row["position"]), row["label"], row["digest"], "train")
        for row in training.to_pylist()
    ]


def compute_identities(rows: pa.Table) -> np.ndarray:
    """Return a hash of the content, label and key of each example, S16 [n].

    Two runs with the same options write equal records if these hashes are equal.
    """
    identities = bytearray()
    columns = (rows[name].to_pylist() for name in ("digest", "label", "key"))
    for digest, label, key in zip(*columns, strict=True):
        number = isinstance(label, int)
        text = digest + (label.to_bytes(4, "little") if number else str(label).encode())
        text += key.encode()
        identities += hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()
    return np.frombuffer(identities, f"S{DIGEST_BYTES}")


def choose_splits(
    splits: np.ndarray, hashes: np.ndarray, fractions: Sequence[float], present: Sequence[int]
) -> np.ndarray:
    """Return each example's split, as its index in SPLITS, uint8 [n].

    Splits that the source has are kept. The others are drawn from train, in proportion to
    `fractions`, by `hashes`: uint64 [n], uniform.
    """
    wanted = [index for index in range(len(SPLITS)) if index == 0 or index not in present]
    drawn = draw_splits(hashes, [fractions[index] for index in wanted])
    return np.where(splits == 0, np.array(wanted, np.uint8)[drawn], splits)
