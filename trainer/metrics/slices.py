"""Cut a split into slices, such as by payment type, hour or company.

A column with few values is sliced by value. Of a column with many values, such as companies, each
of the worst values is a slice, and the others are one.
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

MAX_COMPARED = 1000
"""Largest number of values of a column among which the worst are found: the most frequent ones."""

WORST = 10
"""Number of values that are slices, of a column with many."""

MISSING = "missing"
UNSEEN = "not in the vocabulary"

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
    compared: int  # number of values, of which these may be the worst


@dataclasses.dataclass(frozen=True)
class Cut:
    """Cut a split into groups of rows by the values of a column."""

    column: str
    by: str
    group_of: Callable[[np.ndarray], np.ndarray]  # maps values to indices of groups
    names: list[str]  # of the groups: values, then other values, unseen and missing ones
    count: int  # of the column's values

    def keep_worst(self, sizes: np.ndarray, quality: np.ndarray) -> "Cut":
        """Return a cut whose groups are the worst values, the other ones, unseen and missing ones.

        The worst values are the most standard errors below the mean of all rows.

        Args:
            sizes: numbers of rows, int [groups].
            quality: a figure that is higher if a group is better, float [groups]; NaN if undefined.
        """
        known = np.nan_to_num(quality)
        gaps = (np.average(known, weights=sizes) - known) * np.sqrt(sizes)
        worst = np.argsort(-gaps[:-3], kind="stable")[:WORST].tolist()
        target = np.full(len(self.names), len(worst))
        target[worst] = np.arange(len(worst))
        target[-2:] = len(worst) + 1, len(worst) + 2
        others = f"{self.count - len(worst):,} other values"
        return dataclasses.replace(
            self,
            by=f"worst of {self.count:,} values",
            group_of=lambda codes: target[self.group_of(codes)],
            names=[*(self.names[at] for at in worst), others, *self.names[-2:]],
        )

    def slices(self, sizes: np.ndarray, figures: Mapping[str, np.ndarray], compared: int) -> Slices:
        """Return the slices that have rows.

        Args:
            sizes: numbers of rows, int [groups].
            figures: metrics by name, float [groups] each; NaN if undefined.
            compared: number of values with rows, of which the groups may be the worst.
        """
        columns = [_to_optional(values) for values in figures.values()]
        rows = zip(self.names, sizes.tolist(), *columns, strict=True)
        slices = [
            Slice(name=name, examples=size, figures=dict(zip(figures, values, strict=True)))
            for name, size, *values in rows
            if size
        ]
        return Slices(column=self.column, by=self.by, slices=slices, compared=compared)

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
        for name, values in figures.items():
            sums[name] = sums.get(name, 0.0) + np.bincount(group, weights * values, groups)
    with np.errstate(invalid="ignore"):
        return sizes, {name: total / totals for name, total in sums.items()}


def measure_slices(
    values: ColumnValues,
    measure: Callable[[Cut], tuple[np.ndarray, dict[str, np.ndarray]]],
    figure: str,
    *,
    rises: bool = True,
) -> list[Slices]:
    """Measure the slices of each vocabulary and identity column of a table.

    Args:
        measure: returns the numbers of rows of a cut, int [groups], and its figures by name, float
            [groups] each; NaN if undefined.
        figure: the figure by which values are the worst.
        rises: whether it is better if it is higher.
    """
    found = []
    for column in values.columns:
        if column.kind in ("vocabulary", "identity"):
            cut = _cut_by_value(column)
            sizes, figures = measure(cut)
            compared = int(np.count_nonzero(sizes))
            if cut.count > MAX_VALUES:
                cut = cut.keep_worst(sizes, figures[figure] * (1 if rises else -1))
                sizes, figures = measure(cut)
            found.append(cut.slices(sizes, figures, compared))
    return found


def _cut_by_value(column: Feature) -> Cut:
    buckets = column.settings.get("buckets", 0)
    counts: dict[str, int] = column.statistics.get("counts", {})
    if column.dtype == "int64" and buckets <= MAX_VALUES:
        counts = {str(value): 0 for value in range(buckets)}
    if len(counts) > MAX_VALUES:
        counts = dict(sorted(counts.items(), key=lambda item: -item[1]))
    names = [*itertools.islice(counts, MAX_COMPARED), "other values", UNSEEN, MISSING]
    unseen, missing = len(names) - 2, len(names) - 1
    known = encode_texts(column, [*counts, ""])
    groups = np.append(np.minimum(np.arange(len(counts)), unseen - 1), missing)
    ranked = np.argsort(known)
    known, groups = known[ranked], groups[ranked]

    def group_of(codes: np.ndarray) -> np.ndarray:
        if column.dtype == "int64":
            codes = np.where((codes < 0) | (codes >= buckets), -1, codes)
        at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        return np.where(known[at] == codes, groups[at], unseen)

    return Cut(column.name, "by value", group_of, names, len(counts))


def _to_optional(values: np.ndarray) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]
