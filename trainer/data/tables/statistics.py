"""Statistics of a table's columns, gathered block by block and merged, in bounded memory.

They are taken from the training split alone, but for the rates of missing values, which are
counted in every split. Merging in the order of the blocks always gives the same figures,
however many processes took part.
"""

import collections
import dataclasses
from typing import Any

import numpy as np

from trainer.data.record_options import SPLITS
from trainer.data.tables.columns import Column
from trainer.errors import InputError

SAMPLE = 1 << 16
"""Values that quantiles are taken from: those of the rows with the smallest hashes."""

_QUANTILES = (np.arange(100) + 0.5) / 100

MAX_DISTINCT = 10**6
"""Different values that learning a vocabulary holds in memory: some 100 MB."""


class Moments:
    """Count, mean, sum of squared deviations and extremes.

    Merged as Chan, Golub and LeVeque (1979), "Updating formulae and a pairwise algorithm for
    computing sample variances", equation 2.1.
    """

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0
        self.least, self.most = np.inf, -np.inf

    def add(self, values: np.ndarray) -> None:
        """Takes float64 [n], none of them NaN."""
        if not len(values):
            return
        other = Moments()
        other.count, other.mean = len(values), float(values.mean())
        other.squares = float(np.square(values - other.mean).sum())
        other.least, other.most = float(values.min()), float(values.max())
        self.merge(other)

    def merge(self, other: "Moments") -> None:
        if not other.count:
            return
        total, apart = self.count + other.count, other.mean - self.mean
        self.squares += other.squares + apart**2 * self.count * other.count / total
        self.mean += apart * other.count / total
        self.count = total
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)

    @property
    def deviation(self) -> float:
        return float(np.sqrt(self.squares / self.count)) if self.count else 0.0


@dataclasses.dataclass
class Sample:
    """The values of the `SAMPLE` smallest hashes: a random sample that is always the same."""

    hashes: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.uint64))
    values: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.float64))

    def add(self, hashes: np.ndarray, values: np.ndarray) -> None:
        """Takes uint64 [n] and float64 [n]."""
        hashes = np.concatenate([self.hashes, hashes])
        values = np.concatenate([self.values, values])
        if len(hashes) > SAMPLE:
            kept = np.sort(np.argpartition(hashes, SAMPLE)[:SAMPLE])
            hashes, values = hashes[kept], values[kept]
        self.hashes, self.values = hashes, values


class ColumnStatistics:
    """What is gathered of one column."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.missing = dict.fromkeys(SPLITS, 0)
        self.moments, self.scaled, self.sample = Moments(), Moments(), Sample()
        self.counts: collections.Counter[str] = collections.Counter()

    def add(self, values: Any, ranks: np.ndarray, hashes: np.ndarray) -> None:
        """Takes a block's values.

        Args:
            values: numbers as float64 [n] with NaN for missing ones, else a list of n texts.
            ranks: each row's split, its place in SPLITS, uint8 [n].
            hashes: uint64 [n], uniform.
        """
        train = ranks == 0
        if self.column.dtype == "string":
            texts = np.array(values, object)
            missing = texts == ""
            if self.column.type == "vocabulary":
                self.counts.update(texts[train & ~missing].tolist())
        else:
            missing = np.isnan(values)
            present = train & ~missing
            self.moments.add(values[present])
            if self.column.log:
                self.scaled.add(np.log1p(np.maximum(values[present], 0.0)))
            if self.column.is_number:
                self.sample.add(hashes[present], values[present])
            if self.column.type == "identity":
                self.counts.update(values[present].astype(int).astype(str).tolist())
        for place, split in enumerate(SPLITS):
            self.missing[split] += int((missing & (ranks == place)).sum())

    def merge(self, other: "ColumnStatistics") -> None:
        """Adds what a later block gathered; raises InputError where that is too much."""
        for split, count in other.missing.items():
            self.missing[split] += count
        self.moments.merge(other.moments)
        self.scaled.merge(other.scaled)
        self.sample.add(other.sample.hashes, other.sample.values)
        self.counts.update(other.counts)
        if len(self.counts) > MAX_DISTINCT:
            raise InputError(
                f"columns: {self.column.name!r} has more than {MAX_DISTINCT:,} different values, "
                "too many for a vocabulary; make it a hashed column"
            )

    def settings(self) -> dict[str, Any]:
        """The column's settings, with what was to be learned."""
        settings = self.column.settings()
        if self.column.quantiles:
            shares = np.arange(1, self.column.quantiles) / self.column.quantiles
            cuts = np.quantile(self.sample.values, shares) if len(self.sample.values) else []
            settings["boundaries"] = sorted({float(np.float32(cut)) for cut in cuts})
        if self.column.type == "vocabulary" and not self.column.values:
            settings["values"] = [
                value
                for value, count in self._ranked()[: self.column.size]
                if count >= self.column.minimum_count
            ]
        return settings

    def figures(self, rows: dict[str, int]) -> dict[str, Any]:
        """Statistics for dataset.json; `rows` is how many each split has."""
        figures: dict[str, Any] = {
            "missing": {
                split: self.missing[split] / count for split, count in rows.items() if count
            }
        }
        if self.column.is_number:
            scaled = self.scaled if self.column.log else self.moments
            figures |= {
                "mean": scaled.mean,
                "deviation": scaled.deviation,
                "minimum": self.moments.least if self.moments.count else None,
                "maximum": self.moments.most if self.moments.count else None,
                "quantiles": np.quantile(
                    self.sample.values, _QUANTILES, method="inverted_cdf"
                ).tolist()
                if self.moments.count
                else [],
            }
        if self.column.type == "vocabulary":
            figures["distinct"] = len(self.counts)
            figures["counts"] = {value: self.counts[value] for value in self.settings()["values"]}
        if self.column.type == "identity":
            figures["counts"] = dict(sorted(self.counts.items(), key=lambda one: int(one[0])))
        return figures

    def _ranked(self) -> list[tuple[str, int]]:
        """Values by falling count, equal ones by name: the same however they came."""
        return sorted(self.counts.items(), key=lambda one: (-one[1], one[0]))
