"""Statistics of a table's columns, gathered block by block and merged, in bounded memory.

They cover only the training split, except for the rates of missing values, which are counted in
every split. Merging is associative and commutative, to the bit: blocks of any size, parsed by any
number of processes and merged in any order, yield the same statistics.
"""

import collections
import fractions
import functools
import itertools
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.data.schema import SPLITS
from trainer.data.tables.columns import Column
from trainer.data.tables.dates import count_days
from trainer.data.tables.number_forms import is_number
from vertex.errors import InputError

if TYPE_CHECKING:
    from trainer.data.tables.words import Terms

SAMPLE = 1 << 16
"""Number of values that quantiles, and the words of texts, are computed from: the rows with the
smallest hashes."""

QUANTILES = (np.arange(100) + 0.5) / 100
"""Quantiles of a column's numbers in dataset.json."""

MAX_DISTINCT = 10**6
"""Largest number of different values from which a vocabulary is learned: some 100 MB."""

MAX_DRAWN = 1000
"""Number of words with which dataset.json describes the texts of a column."""

_HASH_BUCKETS, _HASH_NAME = 50, "hash {}"
"""Number of counts that stand for the values of a hashed column, however many those are."""

_SHIFT = 1200
"""Sums are in units of 2^-_SHIFT, which is smaller than any float64."""


def exact_sum(values: np.ndarray) -> int:
    """Return the sum of finite values, float64 [n], in units of 2^-_SHIFT, without rounding.

    The order of values therefore does not matter. For each exponent, the mantissas are summed as
    integers.
    """
    parts, exponents = np.frexp(values)
    mantissas = (parts * 2.0**53).astype(np.int64)
    lowest = int(exponents.min(initial=0))
    total = 0
    # bincount adds float64, which is exact below 2^53: halves of up to 2^26 values each.
    for shift, half in ((0, mantissas & 0x7FFFFFF), (27, mantissas >> 27)):
        sums = np.bincount(exponents - lowest, weights=half)
        for exponent in np.flatnonzero(sums).tolist():
            total += int(sums[exponent]) << lowest + exponent - 53 + _SHIFT + shift
    return total


def bucket_name(text: str) -> str:
    """Return the name under which a hashed column's value is counted: "hash 7"."""
    return _HASH_NAME.format(_hash(text))


def _hash(text: str) -> int:
    return zlib.crc32(text.encode()) % _HASH_BUCKETS


def _cut(values: np.ndarray, buckets: int) -> np.ndarray:
    """Return bounds, float64 [k], between buckets of equal shares of values, [n]; k < buckets.

    Frequent values, such as 0, would take several buckets. They get one each, and the other values
    share the rest.
    """
    if not len(values):
        return values
    distinct, counts = np.unique(values, return_counts=True)
    share = len(values) / buckets
    if counts.max() <= share:
        return np.quantile(values, np.arange(1, buckets) / buckets)
    if len(distinct) <= buckets:
        return distinct[1:]
    while (smaller := np.minimum(counts, share).sum() / buckets) < share * (1 - 1e-9):
        share = smaller
    before = np.cumsum(np.minimum(counts, share)) - np.minimum(counts, share)
    starts = np.diff(np.floor(before / share + 1e-6), prepend=-1) > 0
    return distinct[starts][1:]


class Moments:
    """Count, mean, deviation, minimum and maximum of values, rounded to float32."""

    def __init__(self) -> None:
        self.count = self._sum = self._squares = 0
        self.minimum, self.maximum = np.inf, -np.inf

    def add(self, values: np.ndarray) -> None:
        """Add values, float64 [n], without NaN."""
        if not len(values):
            return
        # A float64 holds the square of a float32 exactly.
        values = values.astype(np.float32).astype(np.float64)
        self.count += len(values)
        self._sum += exact_sum(values)
        self._squares += exact_sum(np.square(values))
        self.minimum = min(self.minimum, float(values.min()))
        self.maximum = max(self.maximum, float(values.max()))

    def merge(self, other: "Moments") -> None:
        self.count += other.count
        self._sum += other._sum
        self._squares += other._squares
        self.minimum = min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)

    @property
    def mean(self) -> float:
        return float(self._mean(self._sum)) if self.count else 0.0

    @property
    def deviation(self) -> float:
        if not self.count:
            return 0.0
        return float(self._mean(self._squares) - self._mean(self._sum) ** 2) ** 0.5

    def _mean(self, total: int) -> fractions.Fraction:
        return fractions.Fraction(total, self.count << _SHIFT)


class Sample:
    """The values with the `SAMPLE` smallest hashes: a random but reproducible sample."""

    def __init__(self, dtype: type = float) -> None:
        self.hashes = np.empty(0, np.uint64)
        self.candidates: np.ndarray = np.empty(0, dtype)

    def add(self, hashes: np.ndarray, values: np.ndarray) -> None:
        """Add hashes, uint64 [n], and values, [n]."""
        self.hashes = np.concatenate([self.hashes, hashes])
        self.candidates = np.concatenate([self.candidates, values])
        if len(self.hashes) > 2 * SAMPLE:
            self._cut()

    def merge(self, other: "Sample") -> None:
        self.add(other.hashes, other.candidates)

    @property
    def values(self) -> np.ndarray:
        """Return the sample, [n], in the order of hashes."""
        self._cut()
        return self.candidates[np.argsort(self.hashes, kind="stable")]

    def _cut(self) -> None:
        if len(self.hashes) > SAMPLE:
            kept = np.argpartition(self.hashes, SAMPLE - 1)[:SAMPLE]
            self.hashes, self.candidates = self.hashes[kept], self.candidates[kept]


class ColumnStatistics:
    """The statistics of one column."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.missing = np.zeros(len(SPLITS), int)
        self.moments, self.scaled = Moments(), Moments()
        self.sample = Sample(object if column.type == "text" else float)
        self.counts: collections.Counter[str] = collections.Counter()

    def add(self, values: Any, splits: np.ndarray, hashes: np.ndarray) -> None:
        """Add a block's values: numbers as float64 [n], NaN where missing; or texts, string [n].

        Args:
            splits: each row's split, as its index in SPLITS, uint8 [n].
            hashes: uint64 [n], uniform.
        """
        column = self.column
        is_text = column.dtype == "string"
        missing = (
            pc.equal(values, "").to_numpy(zero_copy_only=False) if is_text else np.isnan(values)
        )
        self.missing += np.bincount(splits[missing], minlength=len(SPLITS))
        chosen = (splits == 0) & ~missing
        present = values.filter(pa.array(chosen)) if is_text else values[chosen]
        if column.type == "text":
            # What the model does not read takes no memory.
            heads = pc.utf8_slice_codeunits(present, 0, column.characters).cast(pa.binary())
            self.sample.add(hashes[chosen], heads.to_numpy(zero_copy_only=False))
        elif column.is_number:
            numbers = count_days(present.to_pylist()) if column.type == "date" else present
            self.moments.add(numbers)
            self.sample.add(hashes[chosen], numbers)
            if column.log:
                self.scaled.add(np.log1p(np.maximum(numbers, 0.0)))
        else:
            self._count(present if is_text else pa.array(present.astype(int)))

    def _count(self, values: pa.Array) -> None:
        """Count distinct values; in a hashed column, by the names of their buckets."""
        found = pc.value_counts(values)
        names = found.field("values").cast(pa.string()).to_pylist()
        counts = found.field("counts").to_numpy()
        if self.column.type == "hashed":
            buckets = np.array([_hash(name) for name in names], np.int64)
            counts = np.bincount(buckets, counts, _HASH_BUCKETS).astype(int)
            names = map(_HASH_NAME.format, range(_HASH_BUCKETS))
        self.counts.update({name: n for name, n in zip(names, counts.tolist(), strict=True) if n})

    def merge(self, other: "ColumnStatistics") -> None:
        """Add the statistics of another block; raise InputError for too many distinct values."""
        self.missing += other.missing
        self.moments.merge(other.moments)
        self.scaled.merge(other.scaled)
        self.sample.merge(other.sample)
        self.counts.update(other.counts)
        if len(self.counts) > MAX_DISTINCT:
            raise InputError(
                f"columns: {self.column.name!r} has more than {MAX_DISTINCT:,} distinct values, "
                "too many for a vocabulary; make it a hashed column"
            )

    @functools.cached_property
    def _terms(self) -> "Terms":
        """Return what a text column has learned; raise InputError if it contains numbers."""
        from trainer.data.tables.words import learn_terms  # Imports TensorFlow.

        texts = self.sample.values
        if len(texts) and all(is_number(text.decode()) for text in texts):
            raise InputError(
                f"columns: {self.column.name!r} is a text column, but contains only numbers, such "
                f"as {texts[0].decode()}; make it numeric or, if they are names, a vocabulary"
            )
        column = self.column
        # By words that no other text has, such as numbers and names, a model would tell the
        # training rows apart.
        least = max(2, column.minimum_count)
        return learn_terms(texts, terms=column.terms, minimum_count=least, words=column.words)

    def settings(self) -> dict[str, Any]:
        """Return the column's settings, including learned boundaries and values."""
        settings = self.column.settings()
        if self.column.type == "text":
            settings["longest"] = self._terms.longest
            settings["vocabulary"] = self._terms.vocabulary
        if self.column.quantiles:
            cuts = _cut(self.sample.values, self.column.quantiles).tolist()
            settings["boundaries"] = sorted({float(np.float32(cut)) for cut in cuts})
        if self.column.type == "vocabulary" and not self.column.values:
            # By falling count, then by name: the order of rows does not matter.
            ranked = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
            least, size = self.column.minimum_count, self.column.size
            settings["values"] = [value for value, count in ranked[:size] if count >= least]
        return settings

    def summarize(self, rows: dict[str, int]) -> dict[str, Any]:
        """Return the statistics for dataset.json; `rows` is the number of rows by split."""
        figures: dict[str, Any] = {
            "missing": {
                split: missing / rows[split]
                for split, missing in zip(SPLITS, self.missing.tolist(), strict=True)
                if rows[split]
            }
        }
        if self.column.is_number:
            scaled = self.scaled if self.column.log else self.moments
            figures |= {"mean": scaled.mean, "deviation": scaled.deviation}
            figures |= {"minimum": None, "maximum": None, "quantiles": []}
            if self.moments.count:
                figures |= {"minimum": self.moments.minimum, "maximum": self.moments.maximum}
                quantiles = np.quantile(self.sample.values, QUANTILES, method="inverted_cdf")
                figures["quantiles"] = quantiles.tolist()
        if self.column.type == "vocabulary":
            figures["distinct"] = len(self.counts)
            figures["counts"] = {value: self.counts[value] for value in self.settings()["values"]}
        if self.column.type == "text":
            # A word of each text; those of the sample stand for all texts.
            share = (rows["train"] - int(self.missing[0])) / max(1, len(self.sample.values))
            drawn = itertools.islice(self._terms.drawn.items(), MAX_DRAWN)
            figures["counts"] = {word: round(count * share) for word, count in drawn}
        if self.column.type == "identity":
            figures["counts"] = dict(sorted(self.counts.items(), key=lambda item: int(item[0])))
        if self.column.type == "hashed":
            names = map(_HASH_NAME.format, range(_HASH_BUCKETS))
            figures["counts"] = {name: self.counts[name] for name in names}
        return figures
