"""How good a model is on parts of a split: by payment type, by hour, by size of company.

A column of few values is cut by value. Of one with many, such as companies, single values say
little: they are cut by how often the training split has them. Numbers are cut at their
boundaries, or into quarters.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from sklearn.metrics import roc_auc_score

from trainer.dataset.schema import Dataset, Feature
from trainer.dataset.tabular.inputs import columns_of, parse_columns
from trainer.errors import InputError
from trainer.fields import nearest
from trainer.prediction import stored_batches

FEW_VALUES = 31
"""A month's days: up to so many values a column is cut by value."""

MISSING = "missing"
UNSEEN = "not in the vocabulary"
_BATCH_SIZE = 1024
_BANDS = (10, 100, 1000, 10_000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slice:
    """A part of a split.

    Attributes:
        name: what its rows have in common.
        examples: how many they are.
        positive_rate: share of the second class; None for more than two classes.
        roc_auc: None for more than two classes, or where one of the two has no example.
    """

    name: str
    examples: int
    accuracy: float
    positive_rate: float | None
    roc_auc: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slices:
    """A split cut by one column; `by` says how, for a reader."""

    column: str
    by: str
    slices: list[Slice]


def slices(
    dataset: Dataset,
    split: str,
    labels: np.ndarray,
    probabilities: np.ndarray,
    names: Sequence[str],
) -> list[Slices]:
    """Cuts a split of a table by each column of `names`, or by those of few or ranked values.

    Args:
        labels: int64 [n], in the order of the split's records.
        probabilities: float32 [n, classes].
        names: of columns; empty: vocabulary and identity columns. Images have no slices.

    Raises:
        InputError: a name is not that of a column.
    """
    columns = {column.name: column for column in columns_of(dataset)} if dataset.is_table else {}
    for name in names:
        if name not in columns:
            hint = nearest(name, columns) if columns else "; images have no columns"
            raise InputError(f"slice_columns: {name!r} is not a column of {dataset.uri}{hint}")
    chosen = [columns[name] for name in names] or [
        column for column in columns.values() if column.kind in ("vocabulary", "identity")
    ]
    if not chosen:
        return []
    values = _read(dataset, split, chosen)
    return [_cut(column, values[column.name], labels, probabilities) for column in chosen]


def _read(dataset: Dataset, split: str, chosen: list[Feature]) -> dict[str, np.ndarray]:
    """The raw values of columns, [n] each, in the order of the split's records."""
    parts: dict[str, list[np.ndarray]] = {column.name: [] for column in chosen}
    for batch in stored_batches(dataset, split, _BATCH_SIZE):
        columns = parse_columns(batch, dataset)
        for name, found in parts.items():
            found.append(columns[name].numpy())
    return {name: np.concatenate(found) for name, found in parts.items()}


def _cut(
    column: Feature, values: np.ndarray, labels: np.ndarray, probabilities: np.ndarray
) -> Slices:
    by, groups, order = _groups(column, values)
    correct = probabilities.argmax(axis=1) == labels
    binary = probabilities.shape[1] == 2
    found = []
    for number, name in enumerate(order):
        inside = groups == number
        if not inside.any():
            continue
        positive = labels[inside] == 1
        both = binary and 0 < positive.sum() < len(positive)
        area = roc_auc_score(positive, probabilities[inside, 1]) if both else None
        found.append(
            Slice(
                name=name,
                examples=int(inside.sum()),
                accuracy=float(correct[inside].mean()),
                positive_rate=float(positive.mean()) if binary else None,
                roc_auc=None if area is None else float(area),
            )
        )
    return Slices(column=column.name, by=by, slices=found)


def _groups(column: Feature, values: np.ndarray) -> tuple[str, np.ndarray, list[str]]:
    """How it is cut, each example's group as its place in `order`, and the groups' names."""
    if column.dtype == "float32":
        return _by_range(column, values)
    if column.dtype == "int64":
        order = [str(value) for value in range(column.settings["buckets"])] + [MISSING]
        inside = (values >= 0) & (values < column.settings["buckets"])
        if len(order) <= FEW_VALUES + 1:
            return "by value", np.where(inside, values, len(order) - 1), order
        values = np.where(inside, values, -1).astype(str).astype(object)
        values[values == "-1"] = ""
    else:
        values = np.array([text.decode(errors="replace").strip() for text in values], object)
    counts: dict[str, int] = column.statistics.get("counts", {})
    if not counts:  # Hashed: what the training split had is not known.
        found, times = np.unique(values[values != ""].astype(str), return_counts=True)
        shown = found[np.argsort(-times, kind="stable")[: FEW_VALUES - 1]].tolist()
        return _by_value("by value", values, shown, "others")
    if len(counts) <= FEW_VALUES:
        return _by_value("by value", values, list(counts), UNSEEN)
    return _by_frequency(values, counts)


def _by_value(
    by: str, values: np.ndarray, shown: list[str], rest: str
) -> tuple[str, np.ndarray, list[str]]:
    order = [*shown, rest, MISSING]
    places = {value: place for place, value in enumerate(shown)} | {"": len(order) - 1}
    return by, np.array([places.get(value, len(shown)) for value in values]), order


def _by_frequency(values: np.ndarray, counts: dict[str, int]) -> tuple[str, np.ndarray, list[str]]:
    bounds = [0, *_BANDS]
    order = [f"{low:,} to {high - 1:,}" for low, high in itertools.pairwise(_BANDS)]
    order = [UNSEEN, f"under {_BANDS[0]}", *order, f"{_BANDS[-1]:,} and more", MISSING]

    def place(value: str) -> int:
        if value == "":
            return len(order) - 1
        if value not in counts:
            return 0
        return int(np.searchsorted(bounds, counts[value], side="right"))

    return "by rows of the same value in training", np.array([place(v) for v in values]), order


def _by_range(column: Feature, values: np.ndarray) -> tuple[str, np.ndarray, list[str]]:
    bounds = column.settings["boundaries"]
    present = values[~np.isnan(values)]
    if not bounds and len(present):
        bounds = sorted(set(np.quantile(present, [0.25, 0.5, 0.75]).tolist()))
    texts = [f"{bound:.6g}" for bound in bounds]
    order = [f"{low} to {high}" for low, high in itertools.pairwise(texts)]
    order = [f"below {texts[0]}", *order, f"{texts[-1]} and above"] if texts else ["all"]
    groups = np.searchsorted(bounds, values, side="right")
    return "by range", np.where(np.isnan(values), len(order), groups), [*order, MISSING]
