"""Splits of rows, by the column that `split_by` names or by a digest of each row.

A split by time, in which the oldest rows are for training and the newest for the test, needs a scan
of all blocks, in any order:

    samples = [scan_times(block, "day") for block in blocks]
    find_starts(merge_samples(samples), "day", [0.8, 0.1, 0.1], DateForm())
    # ("2024-03-01", "2024-04-01")
"""

import datetime
import functools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from trainer.data.digests import draw_splits
from trainer.data.schema import SPLITS
from trainer.data.source import digest, parse_split_name
from trainer.data.tables.cells import SHOWN, clean_texts, to_texts
from trainer.data.tables.columns import TableSchema, clean_text
from trainer.data.tables.dates import DateForm
from trainer.data.tables.number_forms import parse_number, try_parse
from trainer.data.tables.rows import Block
from trainer.data.tables.statistics import Sample
from vertex import formats
from vertex.errors import InputError

Starts = tuple[str, str]
"""The times from which rows are for validation and for the test, as in the table; "": none are."""


def find_splits(
    schema: TableSchema,
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
    split_by = schema.split_by
    if starts:
        return _split_by_time(split_by.time, schema.time_form, columns, starts, bad)
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
    name: str,
    form: DateForm,
    columns: Mapping[str, pa.Array],
    starts: Starts,
    bad: dict[int, str],
) -> np.ndarray:
    """Return the index of each row's split, uint8 [n]; add rows without a time to `bad`."""
    texts = to_texts(columns[name]).to_pylist()
    times = parse_times(texts, form)
    for index in np.flatnonzero(np.isnan(times)).tolist():
        shown = f"{name} is not a time: {texts[index][:SHOWN]!r}"
        bad.setdefault(index, shown if texts[index] else f"no time, {name} is missing")
    bounds = [parse_time(start, form) if start else math.inf for start in starts]
    return np.searchsorted(bounds, times, side="right").astype(np.uint8)


def draw_split(group: str, fractions: Sequence[float]) -> str:
    """Return the split of a group, as `find_splits` does."""
    hashes = np.frombuffer(digest(group.encode()), ">u8")[1:].astype(np.uint64)
    return SPLITS[draw_splits(hashes, fractions)[0]]


@functools.lru_cache(1 << 16)
def parse_time(text: str, form: DateForm) -> float:
    """Return a number as it is, or a date or time as seconds since 1970.

    Without a form, it is in ISO 8601, and in UTC unless it has an offset. Empty text is NaN; raise
    ValueError for other text.
    """
    if form.format:
        text = form.parse(clean_text(text)) if text.strip() else ""
    try:
        return parse_number(text)
    except ValueError:
        # Python reads no Z after a date without a time.
        moment = datetime.datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    if not moment.tzinfo:
        moment = moment.replace(tzinfo=datetime.UTC)
    return moment.timestamp()


def parse_times(texts: Sequence[str], form: DateForm) -> np.ndarray:
    """Return times as `parse_time` does, float64 [n]; NaN where that is impossible."""
    parse = functools.partial(parse_time, form=form)
    return np.array([try_parse(parse, text, math.nan) for text in texts], float)


def scan_times(block: Block, column: str) -> Sample:
    """Return the times of a block's rows as text: of up to `SAMPLE` rows all, of more a sample."""
    read = block.read([column])
    times = Sample(object)
    times.add(read.halves[:, 0], to_texts(read.columns[column]).to_numpy(zero_copy_only=False))
    return times


def merge_samples(samples: Iterable[Sample]) -> Sample:
    merged = Sample(object)
    for sample in samples:
        merged.merge(sample)
    return merged


def find_starts(times: Sample, column: str, fractions: Sequence[float], form: DateForm) -> Starts:
    """Return the starts with which the sizes of splits are nearest to their fractions.

    Raise InputError if there are fewer different times than splits.
    """
    texts = times.values
    values = parse_times(texts.tolist(), form)
    known = ~np.isnan(values)
    distinct, first, counts = np.unique(values[known], return_index=True, return_counts=True)
    if not len(distinct):
        raise InputError(
            f"split_by: no row has a time in {column!r}; use a column of dates, such as "
            "2024-03-01, times, such as 2024-03-01T08:30:00Z, or numbers, or set its format, such "
            "as %d/%m/%Y"
        )
    # The share of the rows before each time.
    before = (np.cumsum(counts) - counts) / counts.sum()

    def find_nearest(share: float, low: int, high: int) -> int:
        if low >= high:
            raise InputError(
                f"split_by: {column!r} has only {len(distinct)} different times, fewer than "
                "there are splits; use another column"
            )
        return low + int(np.abs(before[low:high] - share).argmin())

    train, validation, test = fractions
    end = len(distinct)
    if test:
        end = find_nearest(train + validation, 2 if validation else 1, end)
    start = find_nearest(train, 1, end) if validation else end
    names = [*texts[known][first].tolist(), ""]
    return names[start], names[end]
