"""Parse a block of rows, and encode it as features of tf.train.Examples.

    bytes    the columns of texts in order, "" where missing
    floats   the columns of floats in order, NaN where missing
    ints     the columns of whole numbers in order, plus 1; 0 where missing
    weight   the row's weight, if rows have weights
    key      where the row came from

With one feature for all columns of a type, a record has a third of the bytes that it has with a
feature per column, and is parsed in a third of the time.

A row's split depends on a digest of its content, or of its group: copies stay together, and another
choice of columns moves no row to another split. An invalid row (text instead of a number, no label)
is rejected by its key; a missing value of a column is no reason to reject a row, but is recorded as
missing.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.data.records import encode_features
from trainer.data.source import DIGEST_BYTES, Rejection, digest
from trainer.data.tables.cells import parse_numbers, parse_values, reject
from trainer.data.tables.columns import FEATURES, WEIGHT, Column, TableSchema
from trainer.data.tables.labels import count_labels, parse_labels, store_labels
from trainer.data.tables.rows import Block
from trainer.data.tables.splits import Starts, find_splits
from trainer.data.tables.statistics import ColumnStatistics
from trainer.data.totals import Totals


def parse_block(
    block: Block,
    name: str,
    schema: TableSchema,
    split_fractions: Sequence[float],
    starts: Starts | None = None,
) -> tuple[pa.RecordBatch, Totals]:
    """Return the usable rows of a block from the file `name`, and the totals of all its rows.

    The columns are `digest`, `label` (the class, as text, the number, float32, or several classes,
    a list), `split` (an index into SPLITS), and `entries`, the encoded features.

    Args:
        starts: those of a split by time.
    """
    lists = [schema.label.column] if schema.label.is_multilabel else []
    read = block.read(schema.needed, lists)
    bad = dict.fromkeys(find_headers(read.columns), "repeats the header")
    # Those of each column, then the weights if rows have them.
    values = [parse_values(column, read.columns[column.name], bad) for column in schema.columns]
    if schema.weight:
        values.append(_parse_weights(schema.weight, read.columns[schema.weight], bad))
    labels = parse_labels(schema.label, read.columns, bad)
    halves = read.halves
    splits = find_splits(schema, read.columns, halves[:, 1], split_fractions, starts, bad)
    rejected = [*read.rejections, *((int(read.numbers[at]), bad[at]) for at in bad)]
    kept = np.setdiff1d(np.arange(len(read.numbers)), list(bad))
    if bad:
        chosen = pa.array(kept)
        values = [
            array[kept] if isinstance(array, np.ndarray) else array.take(chosen) for array in values
        ]
        labels = labels.take(chosen)
    halves, splits = halves[kept], splits[kept]
    statistics = [ColumnStatistics(column) for column in schema.columns]
    if schema.weight:
        statistics.append(ColumnStatistics(Column(name=schema.weight, type="numeric")))
    for measured, array in zip(statistics, values, strict=True):
        measured.add(array, splits, halves[:, 0])
    totals = count_labels(schema.label, labels, splits, halves[:, 0])
    numbers = read.numbers[kept]
    keys = pc.binary_join_element_wise(f"{name}:", pc.cast(pa.array(numbers), pa.string()), "")
    digests = pa.py_buffer(halves.astype(">u8").tobytes())
    rows = pa.record_batch(
        {
            "digest": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(DIGEST_BYTES), len(kept), [None, digests]
            ),
            "label": store_labels(labels),
            "split": pa.array(splits, pa.uint8()),
            "entries": _encode_entries(schema.columns, values, keys),
        }
    )
    weights = numbers.astype(np.uint64) + np.frombuffer(digest(name.encode()), np.uint64)[0]
    return rows, dataclasses.replace(
        totals,
        rejections=[Rejection(f"{name}:{number}", reason) for number, reason in sorted(rejected)],
        content=(halves * (weights * np.uint64(2) + np.uint64(1))[:, None]).sum(axis=0),
        statistics=[*statistics, *totals.statistics],
        entry_bytes=pc.sum(pc.binary_length(rows["entries"])).as_py() or 0,
        starts=starts,
    )


def find_headers(columns: Mapping[str, pa.Array]) -> list[int]:
    """Return the rows that repeat the header, as in files that were joined, by index."""
    repeats: Any = pa.scalar(bool(columns))
    for name, column in columns.items():
        if not pa.types.is_string(column.type):
            return []
        # A file that was joined may begin with a byte order mark.
        repeats = pc.and_(repeats, pc.is_in(column, pa.array([name, f"\ufeff{name}"])))
        if not pc.any(repeats).as_py():
            return []
    return pc.indices_nonzero(repeats).to_pylist()


def _encode_entries(
    columns: Sequence[Column], values: Sequence[np.ndarray | pa.Array], keys: pa.Array
) -> pa.Array:
    """Return the serialized features of each row, except its label: binary [n].

    `values` are those of each column, then the weights if rows have them.
    """
    texts, floats, ints = (
        [array for column, array in zip(columns, values, strict=False) if column.dtype == dtype]
        for dtype in FEATURES
    )
    features: dict[str, Any] = {"bytes": texts} if texts else {}
    if floats:
        features["floats"] = np.stack([column.astype("<f4") for column in floats], axis=1)
    if ints:
        features["ints"] = np.nan_to_num(np.stack(ints, axis=1) + 1).astype(np.uint64)
    for weights in values[len(columns) :]:
        features[WEIGHT] = np.asarray(weights, "<f4")[:, None]
    return encode_features({**features, "key": [keys]})


def _parse_weights(name: str, raw: pa.Array, bad: dict[int, str]) -> np.ndarray:
    """Return weights, float64 [n]; add rows without one, or with one below 0, to `bad`."""
    weights = parse_numbers(name, raw, bad)
    reject(bad, np.isnan(weights), f"no weight, {name} is missing")
    for index in np.flatnonzero(weights < 0).tolist():
        bad.setdefault(index, f"weight {name} is below 0: {weights[index]:g}")
    return weights
