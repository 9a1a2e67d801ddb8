"""Splits of rows by the column that `split_by` names, or by a digest of each row."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from trainer import formats
from trainer.data.digests import draw_splits
from trainer.data.schema import SPLITS
from trainer.data.source import digest, parse_split_name
from trainer.data.tables.cells import SHOWN, clean_texts, to_texts
from trainer.data.tables.columns import SplitBy
from trainer.data.tables.times import Starts, parse_time, parse_times


def find_splits(
    split_by: SplitBy,
    columns: Mapping[str, pa.Array],
    hashes: np.ndarray,
    fractions: Sequence[float],
    starts: Starts | None,
    bad: dict[int, str],
) -> np.ndarray:
    """Return the index of each row's split, uint8 [n]; add rows without one to `bad`.

    Args:
        hashes: those of the rows, uint64 [n].
        starts: those of a split by time.
    """
    if starts:
        return _split_by_time(split_by.time, columns, starts, bad)
    name = split_by.group or split_by.column
    if not name:
        return draw_splits(hashes, fractions)
    encoded = clean_texts(columns[name]).dictionary_encode()
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
            code: f"{name} is not {formats.choices(SPLITS)}: {texts[code][:SHOWN]!r}"
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
        shown = f"{name} is not a time: {texts[index][:SHOWN]!r}"
        bad.setdefault(index, shown if texts[index] else f"no time, {name} is missing")
    bounds = [parse_time(start) if start else math.inf for start in starts]
    return np.searchsorted(bounds, times, side="right").astype(np.uint8)


def draw_split(group: str, fractions: Sequence[float]) -> str:
    """Return the split of a group, as `find_splits` does."""
    hashes = np.frombuffer(digest(group.encode()), ">u8")[1:].astype(np.uint64)
    return SPLITS[draw_splits(hashes, fractions)[0]]
