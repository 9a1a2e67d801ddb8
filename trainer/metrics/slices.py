"""Cut a split into slices, such as by payment type, hour or company.

A column with few values is sliced by value. A column with many values, such as companies, is sliced
by the frequency of the values in the training split.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from trainer.data.schema import Feature
from trainer.metrics.disk_columns import ColumnValues, encode_texts

MAX_VALUES = 31
"""Largest number of values of a column that is sliced by value: the days of a month."""

MISSING = "missing"
UNSEEN = "not in the vocabulary"
_BANDS = (10, 100, 1000, 10_000)

Figures = tuple[Mapping[str, np.ndarray], np.ndarray]
"""Figures of m examples by name, [m] each, and the examples' weights, float64 [m]."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slice:
    """The metrics of a slice; a metric that is undefined is None."""

    name: str  # value, range or frequency that its rows have in common
    examples: int  # number of rows
    figures: dict[str, float | None]  # as the task measures them, by name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slices:
    """The slices of a split by a column; `by` describes the cut to a reader."""

    column: str
    by: str
    slices: list[Slice]


@dataclasses.dataclass(frozen=True)
class Cut:
    """Cut a split into groups of rows by the values of a column."""

    column: str
    by: str
    group_of: Callable[[np.ndarray], np.ndarray]  # maps values to indices of groups
    names: list[str]  # of the groups

    def slices(self, sizes: np.ndarray, figures: Mapping[str, np.ndarray]) -> Slices:
        """Return the slices that have rows.

        Args:
            sizes: numbers of rows, int [groups].
            figures: metrics by name, float [groups] each; NaN if undefined.
        """
        columns = [_to_optional(of) for of in figures.values()]
        rows = zip(self.names, sizes.tolist(), *columns, strict=True)
        slices = [
            Slice(name=name, examples=size, figures=dict(zip(figures, of, strict=True)))
            for name, size, *of in rows
            if size
        ]
        return Slices(column=self.column, by=self.by, slices=slices)

    def average(
        self, values: ColumnValues, blocks: Iterable[Figures]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Average figures of all examples, in stored order; see `average_groups`."""

        def list_groups() -> Iterator[tuple[np.ndarray, Figures]]:
            start = 0
            for block in blocks:
                stop = start + len(block[1])
                yield self.group_of(values.read(self.column, start, stop)), block
                start = stop

        return average_groups(list_groups(), len(self.names))


def average_groups(
    blocks: Iterable[tuple[np.ndarray, Figures]], groups: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return numbers of examples, int [groups], and means of figures, float64 [groups] each.

    A mean is NaN if it is undefined. Blocks have the group of each example, int [m], and figures.
    """
    sizes, totals = np.zeros(groups, int), np.zeros(groups)
    sums: dict[str, np.ndarray] = {}
    for group, (figures, weights) in blocks:
        sizes += np.bincount(group, minlength=groups)
        totals += np.bincount(group, weights, groups)
        for name, of in figures.items():
            sums[name] = sums.get(name, 0.0) + np.bincount(group, weights * of, groups)
    with np.errstate(invalid="ignore"):
        return sizes, {name: of / totals for name, of in sums.items()}


def list_cuts(values: ColumnValues) -> list[Cut]:
    """Return the cut of each vocabulary and identity column of a table."""
    kinds = ("vocabulary", "identity")
    return [_choose_cut(column) for column in values.columns if column.kind in kinds]


def _choose_cut(column: Feature) -> Cut:
    buckets = column.settings.get("buckets", 0)
    counts: dict[str, int] = column.statistics.get("counts", {})
    if column.dtype == "int64" and buckets <= MAX_VALUES:
        counts = {str(value): 0 for value in range(buckets)}
    if len(counts) > MAX_VALUES:
        by, rest = "by rows of the same value in training", 0
        groups = np.searchsorted([0, *_BANDS], list(counts.values()), side="right")
        order = [f"{low:,} to {high - 1:,}" for low, high in itertools.pairwise(_BANDS)]
        order = [UNSEEN, f"under {_BANDS[0]}", *order, f"{_BANDS[-1]:,} and more", MISSING]
    else:
        by, groups, rest = "by value", np.arange(len(counts)), len(counts)
        order = [*counts, UNSEEN, MISSING]
    known = encode_texts(column, [*counts, ""])
    ranked = np.argsort(known)
    known, groups = known[ranked], np.append(groups, len(order) - 1)[ranked]

    def group_of(codes: np.ndarray) -> np.ndarray:
        if column.dtype == "int64":
            codes = np.where((codes < 0) | (codes >= buckets), -1, codes)
        at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        return np.where(known[at] == codes, groups[at], rest)

    return Cut(column.name, by, group_of, order)


def _to_optional(values: np.ndarray) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]
