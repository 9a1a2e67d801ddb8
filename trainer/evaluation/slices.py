"""Evaluate a model on slices of a split, such as by payment type, hour or company.

A column of few values is sliced by value. A column of many values, such as companies, is sliced
by their frequency in the training split. Numbers are sliced at the column's boundaries, or into
quartiles.
"""

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from trainer.data.schema import Dataset, Feature
from trainer.data.tables.columns import columns_in
from trainer.data.tables.inputs import parse_columns
from trainer.errors import InputError
from trainer.evaluation.prediction import stored_batches
from trainer.fields import nearest

FEW_VALUES = 31
"""Most values of a column that is sliced by value: the days of a month."""

MISSING = "missing"
UNSEEN = "not in the vocabulary"
_BATCH_SIZE = 8192
_BANDS = (10, 100, 1000, 10_000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slice:
    """The metrics of a slice."""

    name: str  # value, range or frequency that its rows have in common
    examples: int  # number of rows
    accuracy: float
    positive_rate: float | None  # share of the second class; None for more than two classes
    roc_auc: float | None  # None for more than two classes, or if one of the two has no example


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slices:
    """The slices of a split by one column; `by` describes the cut to a reader."""

    column: str
    by: str
    slices: list[Slice]


class Values(NamedTuple):
    """A column of a split: its distinct values, and each example's index into them."""

    distinct: np.ndarray
    places: np.ndarray


def slices(
    dataset: Dataset,
    values: Mapping[str, Values],
    labels: np.ndarray,
    probabilities: np.ndarray,
    names: Sequence[str],
) -> list[Slices]:
    """Slice a split of a table by each column of `names`; images have no slices.

    Args:
        values: the split's columns, from `read_columns`.
        labels: int64 [n], in stored order.
        names: column names; empty: all vocabulary and identity columns.
    """
    columns = {column.name: column for column in columns_in(dataset)}
    for name in names:
        if name not in columns:
            hint = nearest(name, columns) if columns else "; images have no columns"
            raise InputError(f"slice_columns: {name!r} is not a column of {dataset.uri}{hint}")
    chosen = [columns[name] for name in names] or [
        column for column in columns.values() if column.kind in ("vocabulary", "identity")
    ]
    return [_cut(column, values[column.name], labels, probabilities) for column in chosen]


def read_columns(dataset: Dataset, split: str) -> dict[str, Values]:
    """Return the raw values of all columns, in stored order; empty for images."""
    dtypes = {one.name: object if one.dtype == "string" else None for one in columns_in(dataset)}
    if not dtypes:
        return {}
    known: dict[str, dict[Any, int]] = {name: {} for name in dtypes}
    places: dict[str, list[np.ndarray]] = {name: [] for name in dtypes}
    for batch in stored_batches(dataset, split, _BATCH_SIZE):
        columns = parse_columns(batch, dataset)
        for name, ids in known.items():
            # Find distinct values in TensorFlow, before converting them to Python objects.
            distinct, at = tf.unique(columns[name])
            ids_here = [ids.setdefault(value, len(ids)) for value in distinct.numpy().tolist()]
            places[name].append(np.array(ids_here, np.int32)[at.numpy()])
    return {
        name: Values(np.array(list(ids), dtypes[name]), np.concatenate(places[name]))
        for name, ids in known.items()
    }


def _cut(column: Feature, values: Values, labels: np.ndarray, probabilities: np.ndarray) -> Slices:
    by, groups, order = _groups(column, values)
    groups = groups[values.places]
    correct = probabilities.argmax(axis=1) == labels
    binary = probabilities.shape[1] == 2
    found = []
    for number in np.unique(groups):
        inside = groups == number
        positive = labels[inside] == 1
        both = binary and 0 < positive.sum() < len(positive)
        found.append(
            Slice(
                name=order[number],
                examples=len(positive),
                accuracy=float(correct[inside].mean()),
                positive_rate=float(positive.mean()) if binary else None,
                roc_auc=roc_auc_score(positive, probabilities[inside, 1]) if both else None,
            )
        )
    return Slices(column=column.name, by=by, slices=found)


def _groups(column: Feature, values: Values) -> tuple[str, np.ndarray, list[str]]:
    """Return how the column is cut, each distinct value's group, and the groups' names."""
    if column.dtype == "float32":
        return _by_range(column, values)
    if column.dtype == "int64":
        order = [str(value) for value in range(column.settings["buckets"])] + [MISSING]
        known = values.distinct
        inside = (known >= 0) & (known < column.settings["buckets"])
        if len(order) <= FEW_VALUES + 1:
            return "by value", np.where(inside, known, len(order) - 1), order
        texts = [str(value) if is_in else "" for value, is_in in zip(known, inside, strict=True)]
    else:
        texts = [text.decode(errors="replace").strip() for text in values.distinct]
    counts: dict[str, int] = column.statistics.get("counts", {})
    if len(counts) > FEW_VALUES:
        return _by_frequency(texts, counts)
    shown, rest = list(counts), UNSEEN
    if not counts:  # Hashed: the training split's values are unknown.
        times: collections.Counter[str] = collections.Counter()
        for text, count in zip(texts, np.bincount(values.places).tolist(), strict=True):
            times[text] += count
        ranked = sorted({*texts} - {""}, key=lambda text: (-times[text], text))
        shown, rest = ranked[: FEW_VALUES - 1], "others"
    order = [*shown, rest, MISSING]
    places = {value: place for place, value in enumerate(shown)} | {"": len(order) - 1}
    return "by value", np.array([places.get(text, len(shown)) for text in texts]), order


def _by_frequency(texts: list[str], counts: dict[str, int]) -> tuple[str, np.ndarray, list[str]]:
    order = [f"{low:,} to {high - 1:,}" for low, high in itertools.pairwise(_BANDS)]
    order = [UNSEEN, f"under {_BANDS[0]}", *order, f"{_BANDS[-1]:,} and more", MISSING]
    rows = [counts.get(text, -1) for text in texts]
    bands = np.searchsorted([0, *_BANDS], rows, side="right")
    missing = np.array(texts) == ""
    by = "by rows of the same value in training"
    return by, np.where(missing, len(order) - 1, bands), order


def _by_range(column: Feature, values: Values) -> tuple[str, np.ndarray, list[str]]:
    bounds = column.settings["boundaries"]
    all_values = values.distinct[values.places]
    present = all_values[~np.isnan(all_values)]
    if not bounds and len(present):
        bounds = sorted(set(np.quantile(present, [0.25, 0.5, 0.75]).tolist()))
    texts = [f"{bound:.6g}" for bound in bounds]
    order = [f"{low} to {high}" for low, high in itertools.pairwise(texts)]
    order = [f"below {texts[0]}", *order, f"{texts[-1]} and above"] if texts else ["all"]
    groups = np.searchsorted(bounds, values.distinct, side="right")
    return "by range", np.where(np.isnan(values.distinct), len(order), groups), [*order, MISSING]
