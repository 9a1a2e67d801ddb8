"""Parse a block of rows, and encode it as features of tf.train.Examples.

    bytes    the columns of texts in order, "" where missing
    floats   the columns of floats in order, NaN where missing
    ints     the columns of whole numbers in order, plus 1; 0 where missing
    key      where the row came from

With one feature for all columns of a type, a record has a third of the bytes that it has with a
feature per column, and is parsed in a third of the time.

A row's split depends on a digest of its content, or of its group: copies stay together, and another
choice of columns moves no row to another split. An invalid row (text instead of a number, no label)
is rejected by its key; a missing value of a column is no reason to reject a row, but is recorded as
missing.
"""

import collections
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer import formats
from trainer.data.digests import draw_splits
from trainer.data.records import encode_features
from trainer.data.schema import SPLITS
from trainer.data.source import DIGEST_BYTES, Rejection, digest, parse_split_name
from trainer.data.tables.columns import (
    COMPARISONS,
    FEATURES,
    WHOLE_NUMBER,
    Column,
    Label,
    SplitBy,
    TableSchema,
)
from trainer.data.tables.statistics import ColumnStatistics
from trainer.data.tables.times import Starts, TimeScan, parse_time, parse_times
from trainer.data.tables.values import MAX_FLOAT, parse_number
from trainer.data.totals import UNNAMED, ClassCounts, Totals, count_classes

_SHOWN = 40
"""Number of characters of a value that a rejection quotes."""


class Rows(NamedTuple):
    """The rows of a block, as a reader returns them."""

    numbers: np.ndarray  # the end of each row's key, such as its line; int64 [n]
    digests: bytes  # digests of the rows' content, `DIGEST_BYTES` each, concatenated
    columns: dict[str, pa.Array]  # columns of the schema, by name
    rejections: list[tuple[int, str]]  # (number, reason) of rows without usable fields


def scan_times(block: Any, column: str) -> TimeScan:
    """Return the times of a block's rows."""
    read: Rows = block.read([column])
    halves = np.frombuffer(read.digests, ">u8")[::2].astype(np.uint64)
    scan = TimeScan()
    scan.add(to_texts(read.columns[column]).to_numpy(zero_copy_only=False), halves)
    return scan


def parse_block(
    block: Any,
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
    sets = None
    lists = [schema.label.column] if schema.label.is_multilabel else []
    read: Rows = block.read(schema.needed, lists)
    bad: dict[int, str] = {}
    values = {
        column.name: _parse_values(column, read.columns[column.name], bad)
        for column in schema.measured
    }
    if schema.label.is_multilabel:
        sets = _parse_label_sets(schema.label, read.columns, bad)
    labels, codes = _parse_labels(schema.label, read.columns, values, bad)
    halves = np.frombuffer(read.digests, ">u8").reshape(-1, 2).astype(np.uint64)
    if starts:
        splits = _split_by_time(schema.split_by.time, read.columns, starts, bad)
    else:
        splits = _find_splits(schema.split_by, read.columns, halves[:, 1], split_fractions, bad)
    rejected = [*read.rejections, *((int(read.numbers[at]), bad[at]) for at in bad)]
    kept = np.setdiff1d(np.arange(len(read.numbers)), list(bad))
    if bad:
        chosen = pa.array(kept)
        values = {
            name: array[kept] if isinstance(array, np.ndarray) else array.take(chosen)
            for name, array in values.items()
        }
    halves, splits = halves[kept], splits[kept]
    statistics = [ColumnStatistics(column) for column in schema.measured]
    for statistic in statistics:
        statistic.add(values[statistic.column.name], splits, halves[:, 0])
    numbers = read.numbers[kept]
    keys = pc.binary_join_element_wise(f"{name}:", pc.cast(pa.array(numbers), pa.string()), "")
    digests = pa.py_buffer(halves.astype(">u8").tobytes())
    label_counts: ClassCounts = collections.Counter()
    if sets is not None:
        label = sets.take(pa.array(kept))
        names = label.flatten().dictionary_encode()
        of_labels = splits[label.value_parent_indices().to_numpy()]
        label_counts = count_classes(
            of_labels, names.indices.to_numpy(), names.dictionary.to_pylist()
        )
    elif schema.label.number:
        label = pa.array(values[schema.label.column].astype(np.float32))
    else:
        label = pa.array(labels, pa.string()).take(pa.array(codes[kept]))
    rows = pa.record_batch(
        {
            "digest": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(DIGEST_BYTES), len(kept), [None, digests]
            ),
            "label": label,
            "split": pa.array(splits, pa.uint8()),
            "entries": _encode_entries(schema.columns, values, keys),
        }
    )
    weights = numbers.astype(np.uint64) + np.frombuffer(digest(name.encode()), np.uint64)[0]
    return rows, Totals(
        counts=count_classes(splits, codes[kept], labels),
        labels=label_counts,
        rejections=[Rejection(f"{name}:{number}", reason) for number, reason in sorted(rejected)],
        content=(halves * (weights * np.uint64(2) + np.uint64(1))[:, None]).sum(axis=0),
        statistics=statistics,
        entry_bytes=pc.sum(pc.binary_length(rows["entries"])).as_py() or 0,
        starts=starts,
    )


def _encode_entries(
    columns: Sequence[Column], values: Mapping[str, np.ndarray | pa.Array], keys: pa.Array
) -> pa.Array:
    """Return the serialized features of each row, except its label: binary [n]."""
    texts, floats, ints = (
        [values[column.name] for column in columns if column.dtype == dtype] for dtype in FEATURES
    )
    features: dict[str, Any] = {"bytes": texts} if texts else {}
    if floats:
        features["floats"] = np.stack([column.astype("<f4") for column in floats], axis=1)
    if ints:
        features["ints"] = np.nan_to_num(np.stack(ints, axis=1) + 1).astype(np.uint64)
    return encode_features({**features, "key": [keys]})


def _parse_values(column: Column, raw: pa.Array, bad: dict[int, str]) -> Any:
    """Return a column's values: numbers as float64 [n], NaN where missing; else stripped texts.

    Adds rows whose value is not of the column's type to `bad`, by index.
    """
    if column.missing:
        is_marker = pc.is_in(_clean_texts(raw), pa.array(column.missing))
        raw = pc.if_else(is_marker, pa.scalar(None, raw.type), raw)
    if column.dtype == "string":
        return _clean_texts(raw)
    numbers = _parse_numbers(column.name, raw, bad)

    def format_value(index: int) -> str:
        return repr(str(raw[index].as_py())[:_SHOWN])

    if column.type == "identity":
        fits = (numbers == np.floor(numbers)) & (numbers >= 0) & (numbers < column.buckets)
        for index in np.flatnonzero(~fits & ~np.isnan(numbers)).tolist():
            whole = f"a whole number from 0 to {column.buckets - 1}"
            bad.setdefault(index, f"{column.name} is not {whole}: {format_value(index)}")
    if column.log:
        for index in np.flatnonzero(numbers < 0).tolist():
            bad.setdefault(index, f"{column.name} is below 0, and has log: {format_value(index)}")
    return numbers


def _clean_texts(raw: pa.Array) -> pa.Array:
    """Return values as `clean_text` does, "" where missing."""
    texts = to_texts(raw)
    if pc.any(pc.match_substring(texts, ".0")).as_py():
        texts = pc.replace_substring_regex(texts, WHOLE_NUMBER, r"\1")
    return texts


def to_texts(raw: pa.Array) -> pa.Array:
    """Return values as text without surrounding whitespace, "" where missing."""
    text = _format_decimals(raw) if pa.types.is_decimal(raw.type) else raw.cast(pa.string())
    return pc.utf8_trim_whitespace(pc.fill_null(text, "") if text.null_count else text)


def _format_decimals(raw: pa.Array) -> pa.Array:
    """Return decimals as the shortest text: 17, where Arrow and BigQuery have 17.000000000."""
    coded = raw.dictionary_encode()
    texts = [f"{number:f}" for number in coded.dictionary.to_pylist()]
    texts = [text.rstrip("0").rstrip(".") if "." in text else text for text in texts]
    return pa.array(texts, pa.string()).take(coded.indices)


def _parse_numbers(name: str, raw: pa.Array, bad: dict[int, str]) -> np.ndarray:
    """Return values as float64 [n]; missing ones and "nan" are NaN."""
    with_nulls = raw
    if pa.types.is_string(raw.type):
        with_nulls = pc.if_else(pc.equal(raw, ""), pa.scalar(None, pa.string()), raw)
    try:
        cast = pc.cast(with_nulls, pa.float64(), safe=False)
        numbers = cast.to_numpy(zero_copy_only=False).copy()
        doubtful = np.abs(numbers) > MAX_FLOAT
        doubtful |= np.isnan(numbers) & cast.is_valid().to_numpy(zero_copy_only=False)
    except pa.ArrowException:  # Python parses more forms of numbers than Arrow: " 1", "+1".
        numbers, doubtful = np.full(len(raw), math.nan), np.ones(len(raw), bool)
    indices = np.flatnonzero(doubtful)
    for index, text in zip(indices.tolist(), raw.take(pa.array(indices)).to_pylist(), strict=True):
        text = "" if text is None else str(text).strip()
        try:
            number = parse_number(text)
        except ValueError:
            bad.setdefault(index, f"{name} is not a number: {text[:_SHOWN]!r}")
            number = math.nan
        # NaN has several bit patterns; always write the same one.
        numbers[index] = math.nan if math.isnan(number) else number
    return numbers


def _parse_labels(
    label: Label,
    columns: Mapping[str, pa.Array],
    values: Mapping[str, Any],
    bad: dict[int, str],
) -> tuple[Sequence[str], np.ndarray]:
    """Return classes and each row's index into them, int64 [n]; add rows without label to `bad`.

    Where examples do not have one class each, all are of one without a name. Numbers are among the
    parsed `values`.
    """
    if label.is_multilabel:
        return UNNAMED, np.zeros(len(columns[label.columns[0]]), np.int64)
    if label.number:
        for index in np.flatnonzero(np.isnan(values[label.column])).tolist():
            bad.setdefault(index, f"no label, {label.column} is missing")
        return UNNAMED, np.zeros(len(values[label.column]), np.int64)
    if not label.comparisons:
        texts = to_texts(columns[label.column])
        if label.classes:
            encoded = pc.fill_null(pc.index_in(texts, pa.array(label.classes, pa.string())), -1)
            names, codes = label.classes, encoded.to_numpy(zero_copy_only=False)
        else:
            encoded = texts.dictionary_encode()
            names = encoded.dictionary.to_pylist()
            codes = encoded.indices.to_numpy(zero_copy_only=False)
        missing = pc.equal(texts, "").to_numpy(zero_copy_only=False)
        for index in np.flatnonzero(missing | (codes < 0)).tolist():
            if missing[index]:
                reason = f"no label, {label.column} is missing"
            else:
                text = texts[index].as_py()[:_SHOWN]
                reason = f"label {label.column} is not in classes: {text!r}"
            bad.setdefault(index, reason)
        return names, codes
    sides = {name: _parse_numbers(name, columns[name], bad) for name in label.columns}
    for name, side in sides.items():
        for index in np.flatnonzero(np.isnan(side)).tolist():
            bad.setdefault(index, f"no label, {name} is missing")
    ((name, number),) = label.comparisons.items()
    bound = number * sides.get(label.times_column, 1.0)
    is_true = COMPARISONS[name](sides[label.column], bound)
    return label.classes, is_true.astype(np.int64)


def is_list(column: pa.Array) -> bool:
    """Return whether a column's values are lists."""
    return pa.types.is_list(column.type) or pa.types.is_large_list(column.type)


def _parse_label_sets(
    label: Label, columns: Mapping[str, pa.Array], bad: dict[int, str]
) -> pa.Array:
    """Return the labels of each row, lists of text [n], sorted; add bad rows to `bad`.

    A row without a value has no label.
    """
    if label.indicators:
        rows, names = _read_indicators(label, columns, bad)
        n = len(columns[label.indicators[0]])
    else:
        raw = columns[label.column]
        n = len(raw)
        if not is_list(raw):
            raw = pc.split_pattern(to_texts(raw), label.separator)
        rows, names = raw.value_parent_indices().to_numpy(), to_texts(raw.flatten())
    given = pc.not_equal(names, "").to_numpy(zero_copy_only=False)
    rows, names = rows[given], names.filter(pa.array(given))
    if label.classes:
        unknown = pc.invert(pc.is_in(names, pa.array(label.classes))).to_numpy(zero_copy_only=False)
        for index, name in zip(rows[unknown].tolist(), names.filter(unknown), strict=True):
            text = name.as_py()[:_SHOWN]
            bad.setdefault(index, f"label {label.column} is not in classes: {text!r}")
    # Each label once, in a fixed order.
    table = pa.table({"row": rows, "name": names}).group_by(["row", "name"]).aggregate([])
    table = table.sort_by([("row", "ascending"), ("name", "ascending")])
    sizes = np.bincount(table["row"].to_numpy(), minlength=n)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), table["name"].combine_chunks())


def _read_indicators(
    label: Label, columns: Mapping[str, pa.Array], bad: dict[int, str]
) -> tuple[np.ndarray, pa.Array]:
    """Return a row and a label's name for each 1."""
    rows, names = [], []
    for name in label.indicators:
        numbers = _parse_numbers(name, columns[name], bad)
        for index in np.flatnonzero(~np.isnan(numbers) & (numbers != 0) & (numbers != 1)).tolist():
            bad.setdefault(index, f"label {name} is neither 0 nor 1: {numbers[index]:g}")
        rows.append(np.flatnonzero(numbers == 1))
        names += [name] * len(rows[-1])
    return np.concatenate(rows), pa.array(names, pa.string())


def _find_splits(
    split_by: SplitBy,
    columns: Mapping[str, pa.Array],
    hashes: np.ndarray,
    fractions: Sequence[float],
    bad: dict[int, str],
) -> np.ndarray:
    """Return the index of each row's split, uint8 [n]; add rows without one to `bad`.

    `hashes` are those of the rows, uint64 [n].
    """
    name = split_by.group or split_by.column
    if not name:
        return draw_splits(hashes, fractions)
    encoded = _clean_texts(columns[name]).dictionary_encode()
    texts, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    if split_by.group:
        digests = b"".join(digest(text.encode()) for text in texts)
        splits = draw_splits(np.frombuffer(digests, ">u8")[1::2], fractions)
        unfit = {
            code: f"no group, {name} is missing" for code, text in enumerate(texts) if not text
        }
    else:
        names = [parse_split_name(text) for text in texts]
        splits = np.array([SPLITS.index(split) if split else 0 for split in names], np.uint8)
        unfit = {
            code: f"{name} is not {formats.choices(SPLITS)}: {texts[code][:_SHOWN]!r}"
            for code, split in enumerate(names)
            if not split
        }
    for index in np.flatnonzero(np.isin(codes, list(unfit))).tolist():
        bad.setdefault(index, unfit[codes[index]])
    return splits[codes]


def _split_by_time(
    name: str, columns: Mapping[str, pa.Array], starts: Starts, bad: dict[int, str]
) -> np.ndarray:
    """Return the index of each row's split, uint8 [n]; add rows without a time to `bad`."""
    texts = to_texts(columns[name]).to_pylist()
    times = parse_times(texts)
    for index in np.flatnonzero(np.isnan(times)).tolist():
        shown = f"{name} is not a time: {texts[index][:_SHOWN]!r}"
        bad.setdefault(index, shown if texts[index] else f"no time, {name} is missing")
    bounds = [parse_time(start) if start else math.inf for start in starts]
    return np.searchsorted(bounds, times, side="right").astype(np.uint8)


def suggest_missing(reasons: Iterable[str], columns: Iterable[Mapping[str, Any]]) -> str:
    """Return how columns of numbers can read rejected words, such as '?', as missing values.

    The text is to be appended to a message; it is empty if `reasons` name no such word.
    `columns` are those of the options.
    """
    names = {column["name"] for column in columns}
    markers: dict[str, list[str]] = {}
    for reason in reasons:
        match = re.fullmatch(r"(.+) is not a number: '(\D+)'", reason)
        if match and match[1] in names:
            markers.setdefault(match[1], []).append(match[2])
    return "".join(
        f"; if {' and '.join(map(repr, texts))} in {name} mean that the value is missing, add "
        f"missing = {json.dumps(texts, ensure_ascii=False)} to the column"
        for name, texts in markers.items()
    )
