"""Cut a split into slices, such as by payment type, hour or company.

A column with few values is sliced by value. A column with many values, such as companies, is sliced
by the frequency of the values in the training split.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trainer.data.schema import Feature
from trainer.metrics.disk_columns import ColumnValues, encode_texts

MAX_VALUES = 31
"""Largest number of values of a column that is sliced by value: the days of a month."""

MISSING = "missing"
UNSEEN = "not in the vocabulary"
_BANDS = (10, 100, 1000, 10_000)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cut:
    """Cut a split into groups of rows by the values of a column."""

    column: str
    by: str
    group_of: Callable[[np.ndarray], np.ndarray]  # maps values to indices of groups
    names: list[str]  # of the groups

    def slices(self, sizes: Sequence[int], figures: Sequence[dict[str, Any]]) -> Slices:
        """Return the slices that have rows, from the number of rows and the metrics of each."""
        slices = [
            Slice(name=name, examples=size, figures=of)
            for name, size, of in zip(self.names, sizes, figures, strict=True)
            if size
        ]
        return Slices(column=self.column, by=self.by, slices=slices)


def list_cuts(values: ColumnValues) -> list[Cut]:
    """Return the cut of each vocabulary and identity column of a table."""
    kinds = ("vocabulary", "identity")
    columns = [column for column in values.columns if column.kind in kinds]
    return [Cut(column=column.name, **_choose_cut(column)) for column in columns]


def _choose_cut(column: Feature) -> dict[str, Any]:
    buckets = column.settings.get("buckets", 0)
    if column.dtype == "int64" and buckets <= MAX_VALUES:
        order = [str(value) for value in range(buckets)] + [MISSING]
        return {
            "by": "by value",
            "group_of": lambda codes: np.where(_is_outside(codes, buckets), buckets, codes),
            "names": order,
        }
    counts: dict[str, int] = column.statistics.get("counts", {})
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
            codes = np.where(_is_outside(codes, buckets), -1, codes)
        at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        return np.where(known[at] == codes, groups[at], rest)

    return {"by": by, "group_of": group_of, "names": order}


def _is_outside(codes: np.ndarray, buckets: int) -> np.ndarray:
    return (codes < 0) | (codes >= buckets)
