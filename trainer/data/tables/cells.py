"""Convert columns of a table, as Arrow arrays, to texts and numbers."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.data.tables.columns import WHOLE_NUMBER, Column
from trainer.data.tables.dates import clean_date
from trainer.data.tables.values import MAX_FLOAT, parse_number

SHOWN = 40
"""Number of characters of a value that a rejection quotes."""


def parse_values(column: Column, raw: pa.Array, bad: dict[int, str]) -> Any:
    """Return a column's values: numbers as float64 [n], NaN where missing; else stripped texts.

    Adds rows whose value is not of the column's type to `bad`, by index.
    """
    if column.missing:
        is_marker = pc.is_in(clean_texts(raw), pa.array(column.missing))
        raw = pc.if_else(is_marker, pa.scalar(None, raw.type), raw)
    if column.type == "date":
        return _parse_dates(column.name, clean_texts(raw), bad)
    if column.dtype == "string":
        return clean_texts(raw)
    numbers = parse_numbers(column.name, raw, bad)

    def format_value(index: int) -> str:
        return repr(str(raw[index].as_py())[:SHOWN])

    if column.type == "identity":
        fits = (numbers == np.floor(numbers)) & (numbers >= 0) & (numbers < column.buckets)
        for index in np.flatnonzero(~fits & ~np.isnan(numbers)).tolist():
            whole = f"a whole number from 0 to {column.buckets - 1}"
            bad.setdefault(index, f"{column.name} is not {whole}: {format_value(index)}")
    if column.log:
        for index in np.flatnonzero(numbers < 0).tolist():
            bad.setdefault(index, f"{column.name} is below 0, and has log: {format_value(index)}")
    return numbers


def _parse_dates(name: str, texts: pa.Array, bad: dict[int, str]) -> pa.Array:
    coded = texts.dictionary_encode()
    cleaned, unfit = [], {}
    for code, text in enumerate(coded.dictionary.to_pylist()):
        try:
            cleaned.append(clean_date(text) if text else "")
        except ValueError:
            unfit[code] = f"{name} is not a date: {text[:SHOWN]!r}"
            cleaned.append("")
    codes = coded.indices.to_numpy()
    for index in np.flatnonzero(np.isin(codes, list(unfit))).tolist():
        bad.setdefault(index, unfit[codes[index]])
    return pa.array(cleaned, pa.string()).take(coded.indices)


def clean_texts(raw: pa.Array) -> pa.Array:
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


def parse_numbers(name: str, raw: pa.Array, bad: dict[int, str]) -> np.ndarray:
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
            bad.setdefault(index, f"{name} is not a number: {text[:SHOWN]!r}")
            number = math.nan
        # NaN has several bit patterns; always write the same one.
        numbers[index] = math.nan if math.isnan(number) else number
    return numbers


def is_list(column: pa.Array) -> bool:
    """Return whether a column's values are lists."""
    return pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
