"""Convert columns of a table to the inputs of a network: numbers, category ids and words.

    columns          raw: {name: float32, int64 or string [n]}; missing: NaN, -1, ""
    numbers          float32 [n, number_count]: for each column of numbers or dates, its position
                     in each bucket (0: below, 1: above), the normalized value if it is numeric or
                     the day of a date, and whether it is missing
    ids              int32 [n, categories]: the id of each category, 0 for a missing value; 1 for
                     any text
    words            int32 [n, k], only if there are texts: for each text, the ids of its words,
                     then of its pairs of words; 0 where there is none in the vocabulary

Everything follows from dataset.json. There are no lookup tables to initialize, only stateless
operations: the same code runs in the input pipeline of any worker of any tf.distribute strategy,
in parallel with the training step, and inside the SavedModel.
"""

import math
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from trainer.data.schema import Dataset, Feature
from trainer.data.tables.columns import FEATURES, WHOLE_NUMBER, list_columns
from trainer.data.tables.dates import AFTERNOON, EPOCHS, FORM, MONTHS, PARTS, PIVOT, DateForm
from trainer.data.tables.number_forms import parse_number, try_parse
from trainer.data.tables.values import list_boolean_forms
from trainer.data.tables.words import list_terms, split_words

NUMBER_LIMIT = 10.0
"""Normalized values are clipped to +-10 standard deviations: larger values are typing errors."""

_MIN_DIVISOR = 1e-37
"""Smallest divisor: TensorFlow treats denormal numbers, which are below 1.2e-38, as 0."""
_HASHES = 2**63 - 1
_SPACES = (
    r"\t-\r\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}"
    r"\x{3000}"
)
"""The whitespace of Unicode, which Python and Arrow strip, as characters of a class of RE2."""
_LISTS = {"vocabulary": "values", "text": "vocabulary"}
"""The setting with the values that have an id, by kind of column."""
MISSING: dict[str, float | int | str] = {"float32": math.nan, "int64": -1, "string": ""}
"""The value that stands for a missing value in a raw column, by type."""


class Category(NamedTuple):
    """A categorical input: ids from 0 (missing) to size - 1."""

    name: str
    size: int
    embedding: int  # dimension of its embedding in the deep part; 0: none
    # True if the deep part gets indicators when there is no embedding. It gets positions in buckets
    # for numbers, and nothing for crosses.
    indicators: bool


class Text(NamedTuple):
    """A text's part of `words`: `width` ids from 0 (none) to size - 1."""

    name: str
    size: int
    width: int
    embedding: int  # dimension of its embedding in the deep part; 0: none


def parse_columns(serialized: tf.Tensor, dataset: Dataset) -> dict[str, tf.Tensor]:
    """Parse tf.Examples (string [n]) to raw columns."""
    return _parse(serialized, dataset, {})[0]


def parse_rows(serialized: tf.Tensor, dataset: Dataset) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Parse tf.Examples (string [n]) to raw columns and labels [n, ...]."""
    label = dataset.feature("label")
    description = {label.name: tf.io.FixedLenFeature(label.shape, label.dtype)}
    columns, features = _parse(serialized, dataset, description)
    return columns, features[label.name]


def _parse(
    serialized: tf.Tensor, dataset: Dataset, others: Mapping[str, Any]
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Parse tf.Examples to raw columns, and to features with the descriptions `others`."""
    columns = list_columns(dataset)
    names_by_dtype = {
        dtype: [column.name for column in columns if column.dtype == dtype] for dtype in FEATURES
    }
    description = {
        FEATURES[dtype]: tf.io.FixedLenFeature([len(names)], dtype)
        for dtype, names in names_by_dtype.items()
        if names
    }
    features = tf.io.parse_example(serialized, {**description, **others})
    raw = {
        name: features[FEATURES[dtype]][:, index]
        for dtype, names in names_by_dtype.items()
        for index, name in enumerate(names)
    }
    for name in names_by_dtype["int64"]:
        raw[name] -= 1
    return raw, features


def clean_columns(raw: Mapping[str, tf.Tensor], dataset: Dataset) -> dict[str, tf.Tensor]:
    """Return raw columns, of a client, as in the records.

    Texts are those of `columns.clean_text`, and markers of missing values become missing.
    """
    cleaned = {}
    for column in list_columns(dataset):
        values, markers = raw[column.name], column.settings.get("missing", [])
        if column.dtype == "string":
            values = tf.strings.regex_replace(values, f"^[{_SPACES}]+|[{_SPACES}]+$", "")
            values = tf.strings.regex_replace(values, WHOLE_NUMBER, r"\1")
        else:
            markers = _list_numbers(markers, column.dtype)
        for marker in markers:
            is_marker = tf.equal(values, tf.constant(marker, values.dtype))
            values = tf.where(is_marker, tf.constant(MISSING[column.dtype], values.dtype), values)
        if column.kind == "date":
            values = _clean_dates(values, DateForm(column.settings.get("format", "")))
        cleaned[column.name] = values
    return cleaned


def _list_numbers(texts: Iterable[str], dtype: str) -> list[Any]:
    """Return the texts that are numbers of the type float32 or int64."""
    parsed = (try_parse(parse_number, text) for text in texts)
    numbers = [number for number in parsed if number is not None]
    if dtype == "float32":
        return numbers
    return [int(number) for number in numbers if number.is_integer()]


def row_values(example: Mapping[str, list[Any]], columns: Iterable[Any]) -> dict[str, Any]:
    """Return a row's values by column, None where missing, from the result of `records.parse`.

    `columns` are all columns in their order, each with a name and a dtype.
    """
    left = {dtype: iter(example.get(name, ())) for dtype, name in FEATURES.items()}
    row = {}
    for column in columns:
        value = next(left[column.dtype])
        missing = not value if column.dtype != "float32" else value != value
        row[column.name] = None if missing else value - 1 if column.dtype == "int64" else value
    return row


def list_categories(dataset: Dataset) -> list[Category]:
    """Return the categories in the order of `ids`."""
    sizes = {column.name: _id_count(column) for column in list_columns(dataset)}
    categories = []
    for column in list_columns(dataset):
        if column.kind == "date":
            categories += [
                Category(f"{column.name} {part}", count + 1, 0, indicators=True)
                for part, count in PARTS.items()
            ]
        elif size := sizes[column.name]:
            # The embedding of a text is of its words.
            embedding = column.settings["embedding"] if column.kind != "text" else 0
            indicators = column.dtype != "float32"
            categories.append(Category(column.name, size, embedding, indicators))
    for cross in list_crosses(dataset):
        settings = cross.settings
        combinations = math.prod(sizes[name] for name in settings["columns"])
        size = min(combinations, settings["buckets"])
        categories.append(Category(cross.name, size, settings["embedding"], indicators=False))
    return categories


def list_texts(dataset: Dataset) -> list[Text]:
    """Return the texts in the order of their parts of `words`."""
    return [
        Text(
            column.name,
            size=len(column.settings["vocabulary"]) + 1,
            width=2 * column.settings["longest"] - 1,
            embedding=column.settings["embedding"],
        )
        for column in list_columns(dataset)
        if column.kind == "text"
    ]


def list_crosses(dataset: Dataset) -> list[Feature]:
    return [feature for feature in dataset.features if feature.kind == "cross"]


def number_count(dataset: Dataset) -> int:
    """Return the width of `numbers`."""
    return sum(
        len(_bucket_edges(column)[1:]) + (column.kind != "bucketized") + 1
        for column in list_columns(dataset)
        if column.dtype == "float32" or column.kind == "date"
    )


class Encoder:
    """Turns raw columns into the inputs of a network; may be created while a graph is traced."""

    def __init__(self, dataset: Dataset) -> None:
        self._columns = list_columns(dataset)
        self._crosses = list_crosses(dataset)
        self._sizes = {column.name: _id_count(column) for column in self._columns}
        self._vocabularies = {
            column.name: _hash_vocabulary(values)
            for column in self._columns
            if (values := column.settings.get(_LISTS.get(column.kind, "")))
        }

    def __call__(self, columns: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        numbers, words = [], []
        ids: dict[str, tf.Tensor] = {}
        all_ids: list[tf.Tensor] = []
        for column in self._columns:
            raw = columns[column.name]
            if column.kind == "date":
                days, parts = _read_dates(raw)
                numbers.append(_encode_numbers(days, column))
                all_ids += parts.values()
            if column.dtype == "float32":
                numbers.append(_encode_numbers(raw, column))
            if column.kind == "text":
                words.append(self._encode_words(raw, column))
            if self._sizes[column.name]:
                ids[column.name] = self._encode_ids(raw, column)
                all_ids.append(ids[column.name])
        all_ids += [self._cross_ids(ids, cross) for cross in self._crosses]
        none = tf.zeros([tf.shape(next(iter(columns.values())))[0], 0])
        return {
            "numbers": tf.concat(numbers or [none], axis=1),
            "ids": tf.cast(tf.stack(all_ids, axis=1) if all_ids else none, tf.int32),
            **({"words": tf.cast(tf.concat(words, axis=1), tf.int32)} if words else {}),
        }

    def _encode_ids(self, raw: tf.Tensor, column: Feature) -> tf.Tensor:
        """Return a column's ids, int64 [n]; 0 is missing."""
        settings = column.settings
        if column.dtype == "float32":
            bucket = tf.raw_ops.Bucketize(input=raw, boundaries=settings["boundaries"])
            ids = tf.cast(bucket, tf.int64) + 1
            return tf.where(tf.math.is_nan(raw), tf.zeros_like(ids), ids)
        if column.kind == "identity":
            inside = (raw >= 0) & (raw < settings["buckets"])
            return tf.where(inside, raw + 1, 0)
        if column.kind == "hashed":
            ids = tf.strings.to_hash_bucket_fast(raw, settings["buckets"]) + 1
        elif column.kind == "text":
            ids = tf.ones_like(raw, tf.int64)
        else:
            ids = self._look_up(raw, column.name)
        return tf.where(tf.not_equal(raw, ""), ids, 0)

    def _encode_words(self, raw: tf.Tensor, column: Feature) -> tf.Tensor:
        """Return the ids of a text's words and pairs of words, int64 [n, width]."""
        words = split_words(raw, column.settings["words"])
        # No longer than the longest text in training, which keeps the model's input short.
        terms = list_terms(words[:, : column.settings["longest"]])
        ids = self._look_up(tf.reshape(terms, [-1]), column.name) - 1
        return tf.reshape(ids, [-1, terms.shape[1]])

    def _look_up(self, text: tf.Tensor, name: str) -> tf.Tensor:
        """Return texts' ids, int64 [n]: 1 if not in the vocabulary, else 2 + the index in it."""
        if name not in self._vocabularies:
            return tf.ones_like(text, tf.int64)
        hashes, indices = self._vocabularies[name]
        text_hashes = tf.strings.to_hash_bucket_fast(text, _HASHES)
        position = tf.minimum(tf.searchsorted(hashes, text_hashes), len(hashes) - 1)
        return tf.where(
            tf.gather(hashes, position) == text_hashes, tf.gather(indices, position) + 2, 1
        )

    def _cross_ids(self, ids: Mapping[str, tf.Tensor], cross: Feature) -> tf.Tensor:
        """Return an id for each combination if there are enough buckets, else its hash."""
        combined, combinations, buckets = 0, 1, cross.settings["buckets"]
        for name in cross.settings["columns"]:
            combined = combined * self._sizes[name] + ids[name]
            combinations *= self._sizes[name]
        if combinations <= buckets:
            return combined
        return tf.strings.to_hash_bucket_fast(tf.strings.as_string(combined), buckets)


def _encode_numbers(raw: tf.Tensor, column: Feature) -> tf.Tensor:
    """Return a column's part of `numbers`; missing values are 0.

    The places in buckets are the piecewise linear encoding of Gorishniy et al. (2022), "On
    Embeddings for Numerical Features in Tabular Deep Learning", arXiv:2203.05556.
    """
    # Halve each value: the distance between two values may exceed float32.
    edges, missing = _bucket_edges(column) / 2, tf.math.is_nan(raw)[:, None]
    parts = [tf.clip_by_value((raw[:, None] / 2 - edges[:-1]) / np.diff(edges), 0.0, 1.0)]
    if column.kind != "bucketized":
        scaled = tf.math.log1p(tf.maximum(raw, 0.0)) if column.settings.get("log") else raw
        deviation = column.statistics["deviation"]
        deviation = deviation if deviation > _MIN_DIVISOR else 1.0
        value = (scaled - column.statistics["mean"]) / deviation
        parts.append(tf.clip_by_value(value, -NUMBER_LIMIT, NUMBER_LIMIT)[:, None])
    numbers = tf.where(missing, 0.0, tf.concat(parts, axis=1))
    return tf.concat([numbers, tf.cast(missing, tf.float32)], axis=1)


def _clean_dates(texts: tf.Tensor, form: DateForm) -> tf.Tensor:
    """Return dates as `DateForm.parse` does, string [n]; empty where there is none."""
    cleaned = _clean_iso_dates(texts)
    if not form.format:
        return cleaned
    matches = tf.strings.regex_full_match(texts, form.pattern)
    if form.is_epoch:
        number = tf.strings.regex_replace(tf.where(matches, texts, "0"), form.pattern, r"\1")
        seconds = tf.strings.to_number(number, tf.int64) // EPOCHS[form.format]
        days, second = seconds // 86_400, seconds % 86_400
        year, month, day = _find_day(days)
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        return tf.where(matches, _join_date(year, month, day, hour, minute, second), cleaned)
    groups = {
        part: tf.strings.lower(tf.strings.regex_replace(texts, form.pattern, rf"\{group}"))
        for group, part in enumerate(form.parts, 1)
    }

    def read(part: str, default: int) -> tf.Tensor:
        text = tf.where(matches, groups[part], "0") if part in groups else str(default)
        return tf.strings.to_number(tf.broadcast_to(text, tf.shape(texts)), tf.int64)

    year, month, day = read("Y", 1970), read("m" if "m" in groups else "", 1), read("d", 1)
    if "y" in groups:
        year = read("y", 0)
        year += tf.where(year >= PIVOT, tf.constant(1900, tf.int64), 2000)
    if "b" in groups:
        is_month = [tf.strings.regex_full_match(groups["b"], f"{name}.*") for name in MONTHS]
        month = tf.argmax(tf.stack(is_month), axis=0) + 1
    hour = read("H" if "H" in groups else "I", 0)
    if "p" in groups:
        matches &= (hour >= 1) & (hour <= 12)
        is_afternoon = tf.strings.regex_full_match(groups["p"], AFTERNOON.replace(".", r"\."))
        hour = hour % 12 + tf.where(is_afternoon, tf.constant(12, tf.int64), 0)
    if {"H", "I"}.isdisjoint(groups):
        return tf.where(matches, _join_date(year, month, day), cleaned)
    dates = _join_date(year, month, day, hour, read("M", 0), read("S", 0))
    return tf.where(matches, dates, cleaned)


def _join_date(*parts: tf.Tensor) -> tf.Tensor:
    """Return dates, or dates and times, of ISO 8601, string [n], from their numbers."""
    widths, marks = (4, 2, 2, 2, 2, 2), ("", "-", "-", "T", ":", ":")
    texts = []
    for part, width, mark in zip(parts, widths, marks, strict=False):
        texts += [mark, tf.strings.as_string(part, width=width, fill="0")]
    return tf.strings.join(texts)


def _find_day(days: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the year, month and day of days since 1970, int64 [n] each; by Hinnant, as below."""
    days += 719_468
    era = days // 146_097
    of_era = days % 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month += tf.where(month < 10, tf.constant(3, tf.int64), -9)
    return year + era * 400 + tf.cast(month <= 2, tf.int64), month, day


def _clean_iso_dates(texts: tf.Tensor) -> tf.Tensor:
    """Return dates as `dates.clean_date` does, string [n]; empty where there is none."""
    day, minute, second = (
        tf.strings.regex_replace(texts, FORM, f"\\{group}") for group in (1, 2, 3)
    )
    second = tf.where(tf.equal(second, ""), ":00", second)
    with_time = tf.strings.join([day, "T", minute, second])
    cleaned = tf.where(tf.equal(minute, ""), day, with_time)
    return tf.where(tf.strings.regex_full_match(texts, FORM), cleaned, "")


def _read_dates(texts: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Return the days since 1970 of dates (string [n]), float32 [n], NaN where missing; and ids.

    The ids of each part, int64 [n], are 0 where missing, else from 1.
    """
    missing = tf.equal(texts, "")
    texts = tf.where(missing, "1970-01-01", texts)
    texts = tf.strings.join([texts, "T00:00:00"])

    def read(start: int, length: int) -> tf.Tensor:
        return tf.strings.to_number(tf.strings.substr(texts, start, length), tf.int64)

    year, month, day = read(0, 4), read(5, 2), read(8, 2)
    hour, minute, second = read(11, 2), read(14, 2), read(17, 2)
    # Years from March, so that the leap day is the last (Hinnant, "chrono-Compatible Low-Level
    # Date Algorithms").
    year -= tf.cast(month <= 2, tf.int64)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = year * 365 + year // 4 - year // 100 + year // 400 + of_year - 719_468
    seconds = hour * 3600 + minute * 60 + second
    number = tf.cast(tf.cast(days, tf.float64) + tf.cast(seconds, tf.float64) / 86_400, tf.float32)
    none = tf.zeros_like(days)
    values = {"month": month - 1, "weekday": (days + 3) % 7, "hour": hour}
    ids = {
        part: tf.where(missing, none, tf.clip_by_value(value, 0, PARTS[part] - 1) + 1)
        for part, value in values.items()
    }
    return tf.where(missing, math.nan, number), ids


def _bucket_edges(column: Feature) -> np.ndarray:
    """Return the edges of a column's buckets, ascending, float32 [buckets + 1]; or empty."""
    bounds = column.settings.get("boundaries", [])
    ends = [column.statistics[end] for end in ("minimum", "maximum")] if bounds else []
    edges = np.unique(np.array([*bounds, *(end for end in ends if end is not None)], np.float32))
    return edges[np.diff(edges.astype(np.float64), prepend=-np.inf) > _MIN_DIVISOR]


def _id_count(column: Feature) -> int:
    """Return the number of a column's ids, including the one for missing values; 0: no ids."""
    settings = column.settings
    if column.kind == "text":
        return 2
    if column.kind == "date":  # Its parts have ids.
        return 0
    if column.kind == "vocabulary":
        return len(settings["values"]) + 2
    if column.kind in ("identity", "hashed"):
        return settings["buckets"] + 1
    bucketized = column.kind == "bucketized" or settings["boundaries"] or settings["quantiles"]
    return len(settings["boundaries"]) + 2 if bucketized else 0


def _hash_vocabulary(values: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted hashes of the values, and the index of each in `values`; both int64.

    Other forms of booleans, and the decomposed form (NFD) of letters with marks, have the index of
    the value that they stand for.
    """
    indices = {unicodedata.normalize("NFD", value): index for index, value in enumerate(values)}
    indices |= {value: index for index, value in enumerate(values)}
    for form, value in list_boolean_forms(values).items():
        indices[form] = indices[value]
    with tf.init_scope():
        hashes = tf.strings.to_hash_bucket_fast([*indices], _HASHES).numpy()
    order = np.argsort(hashes)
    return hashes[order], np.array([*indices.values()], np.int64)[order]
