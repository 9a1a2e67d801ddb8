"""Convert columns of a table, as Arrow arrays, to texts and numbers."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.data.tables.columns import WHOLE_NUMBER, Column
from trainer.data.tables.number_forms import MAX_FLOAT, NumberForm, parse_number

SHOWN = 40
"""Number of characters of a value that a rejection quotes."""


def parse_values(column: Column, raw: pa.Array, bad: dict[int, str]) -> Any:
    """Return a column's values: numbers as float64 [n], NaN where missing; else stripped texts.

    Adds rows whose value is not of the column's type to `bad`, by index.
    """
    raw = mark_missing(raw, column.missing)
    if column.type == "date":
        unfit = f"{column.name} is not a date"
        dates = parse_distinct(clean_texts(raw), column.date_form.parse, unfit, bad)
        return pc.fill_null(dates.cast(pa.string()), "")
    if column.dtype == "string":
        return clean_texts(raw)
    numbers = parse_numbers(column.name, raw, bad, column.number_form)
    if column.type == "identity":
        fits = (numbers == np.floor(numbers)) & (numbers >= 0) & (numbers < column.buckets)
        problem = f"{column.name} is not a whole number from 0 to {column.buckets - 1}"
        reject(bad, ~fits & ~np.isnan(numbers), problem, raw)
    if column.log:
        reject(bad, numbers < 0, f"{column.name} is below 0, but has log", raw)
    return numbers


def reject(bad: dict[int, str], unfit: np.ndarray, problem: str, raw: pa.Array = None) -> None:
    """Add the rows of a mask, bool [n], to `bad`, by index, with the problem and the value."""
    for index in np.flatnonzero(unfit).tolist():
        shown = "" if raw is None else f": {str(raw[index].as_py())[:SHOWN]!r}"
        bad.setdefault(index, problem + shown)


def mark_missing(raw: pa.Array, markers: Sequence[str]) -> pa.Array:
    """Return values with null in place of the texts that stand for a missing value."""
    if not markers:
        return raw
    is_marker = pc.is_in(clean_texts(raw), pa.array(markers, pa.string()))
    return pc.if_else(is_marker, pa.scalar(None, raw.type), raw)


def parse_distinct(
    texts: pa.Array, parse: Callable[[str], Any], unfit: str, bad: dict[int, str]
) -> pa.Array:
    """Return what each text is parsed to, null where it is empty or can't be parsed.

    Adds rows with the latter to `bad`, by index, with the reason `unfit`.
    """
    coded = texts.dictionary_encode()
    parsed, reasons = [], {}
    for code, text in enumerate(coded.dictionary.to_pylist()):
        try:
            parsed.append(parse(text) if text else None)
        except ValueError:
            reasons[code] = f"{unfit}: {text[:SHOWN]!r}"
            parsed.append(None)
    codes = coded.indices.to_numpy()
    for index in np.flatnonzero(np.isin(codes, list(reasons))).tolist():
        bad.setdefault(index, reasons[codes[index]])
    return pa.array(parsed).take(coded.indices)


def clean_texts(raw: pa.Array) -> pa.Array:
    """Return values as `clean_text` does, "" where missing."""
    texts = to_texts(raw)
    if pc.any(pc.match_substring(texts, ".0")).as_py():
        texts = pc.replace_substring_regex(texts, WHOLE_NUMBER, r"\1")
    if not pc.all(pc.string_is_ascii(texts)).as_py():
        texts = pc.utf8_normalize(texts, form="NFC")
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


def parse_numbers(
    name: str, raw: pa.Array, bad: dict[int, str], form: NumberForm | None = None
) -> np.ndarray:
    """Return values as float64 [n]; missing ones and "nan" are NaN.

    Text is read in the form, if one is given; rows that are not are added to `bad`, by index.
    """
    if form and not form.is_plain and pa.types.is_string(raw.type):
        parsed = parse_distinct(to_texts(raw), form.parse, f"{name} is not a number", bad)
        numbers = parsed.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.where(np.isnan(numbers), math.nan, numbers)
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
    return pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
