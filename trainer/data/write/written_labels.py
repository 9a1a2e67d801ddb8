"""Labels of examples on their way to records: counted, checked and encoded.

`ClassIndices` are those of images in folders of classes, `TableLabels` those that a column of a
table determines.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.data.schema import SPLITS, Feature
from trainer.data.tables.columns import Label
from trainer.data.tables.labels import count_labels
from trainer.data.tables.number_forms import try_parse
from trainer.data.totals import UNNAMED, Totals, count_classes
from vertex import formats
from vertex.errors import InputError

MAX_CLASSES = 1000
FEW_CLASSES, FEW_ROWS = 20, 10
"""A label with more than FEW_CLASSES different numbers is a quantity rather than a class if any
of them has a fraction, or if a number has fewer than FEW_ROWS rows on average."""
_COMPARE = (
    'predict the number by label={"column": "...", "type": "numeric"}, compare it with a bound, '
    'as by {"column": "...", "above": 1}, give a column of its '
    "quantiles, or list its values as label's classes"
)
_FEATURE = Feature(name="label", kind="label", dtype="int64")


class ClassIndices:
    """Labels that are indices into classes."""

    stored = pa.int32()  # in planned rows
    feature = _FEATURE

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = list(classes)

    @property
    def counted(self) -> Sequence[str]:
        """Return the classes by which examples are counted."""
        return self.classes

    def check(self, keys: Sequence[str], labels: pa.Array) -> None:
        """Raise InputError for a label that is not the index of a class."""
        indices = labels.to_numpy()
        wrong = np.flatnonzero((indices < 0) | (indices >= len(self.classes)))
        if len(wrong):
            raise InputError(
                f"the source gives {keys[wrong[0]]} the label {indices[wrong[0]]}, but its "
                f"{len(self.classes)} classes have the labels 0 to {len(self.classes) - 1}"
            )

    def count(self, labels: pa.Array, splits: np.ndarray, hashes: np.ndarray) -> Totals:
        """Return the totals of labels [n]; splits, uint8 [n], are indices, hashes uint64 [n]."""
        return Totals(counts=count_classes(splits, labels.to_numpy(), self.classes))

    def name(self, label: Any) -> str:
        return self.classes[label]

    def encode(self, labels: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Return labels as in the records, [n, ...], and the index in `counted` of each, [n]."""
        return labels.to_numpy(), labels.to_numpy()

    def check_part(self, totals: Totals) -> None:
        """Raise InputError if the totals of a part have too many classes to go on."""

    def conclude(self, totals: Totals, first: str = "") -> None:
        """Complete the feature and the classes; raise InputError if they can't be learned.

        `first` is appended to messages; it says which is the first example that can't be used.
        """


class TableLabels:
    """Labels of a column: classes, numbers or several names each.

    `feature` and `classes` are complete after `conclude`.
    """

    def __init__(self, label: Label, source: str) -> None:
        self._label = label
        self._place = f"source={source!r}: label column {label.columns[0]!r}"
        self.classes = list(label.classes)
        self.feature = _FEATURE
        self.stored: pa.DataType = pa.string()
        if number := label.number:
            settings = {"column": number.name, "log": number.log, "adaptive": label.adaptive}
            self.feature = dataclasses.replace(_FEATURE, dtype=number.dtype, settings=settings)
            self.stored = pa.float32()
        elif label.is_multilabel:
            self.feature = dataclasses.replace(_FEATURE, shape=[len(self.classes)])
            self.stored = pa.list_(pa.string())

    @property
    def counted(self) -> Sequence[str]:
        return self.classes if self.stored == pa.string() else UNNAMED

    def check(self, keys: Sequence[str], labels: pa.Array) -> None:
        """Do nothing: the reader of the table has rejected what is no label."""

    def count(self, labels: pa.Array, splits: np.ndarray, hashes: np.ndarray) -> Totals:
        return count_labels(self._label, labels, splits, hashes)

    def name(self, label: Any) -> str:
        return ";".join(label) if isinstance(label, list) else str(label)

    def encode(self, labels: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        classes, unnamed = pa.array(self.classes, pa.string()), np.zeros(len(labels), np.int64)
        if self.feature.shape:
            encoded = np.zeros((len(labels), len(classes)), np.int64)
            at = pc.index_in(labels.flatten(), classes).to_numpy()
            encoded[labels.value_parent_indices().to_numpy(), at] = 1
            return encoded, unnamed
        if self.stored == pa.float32():
            return labels.to_numpy(), unnamed
        indices = pc.index_in(labels, classes).to_numpy()
        return indices, indices

    def check_part(self, totals: Totals) -> None:
        if len({name for _, name in (*totals.counts, *totals.labels)}) > MAX_CLASSES:
            raise InputError(
                f"{self._place} has more than {MAX_CLASSES:,} distinct values; {_COMPARE}"
            )

    def conclude(self, totals: Totals, first: str = "") -> None:
        if self._label.number:
            if not totals.examples["train"]:
                raise InputError(f"{self._place} has no value in the training rows{first}")
            statistics = totals.statistics[-1].summarize(totals.examples)
            if statistics["minimum"] == statistics["maximum"]:
                raise InputError(
                    f"{self._place} has only one value in the training rows, "
                    f"{statistics['minimum']:.6g}; there is nothing to predict{first}"
                )
            self.feature = dataclasses.replace(self.feature, statistics=statistics)
            return
        several = self._label.is_multilabel
        found = {name for _, name in (totals.labels if several else totals.counts)}
        self.classes = list(self._label.classes) or sorted(found, key=_natural_key)
        if len(self.classes) < 2:
            only = f"only one value, {self.classes[0]!r}" if self.classes else "no value"
            raise InputError(f"{self._place} has {only}; a classifier needs two or more{first}")
        if several:
            self._count_names(totals)
            return
        rows = totals.counts.total()
        if not self._label.classes and _is_continuous(self.classes, rows):
            raise InputError(
                f"{self._place} contains numbers, not classes: {len(self.classes):,} different "
                f"ones in {formats.number_of(rows, 'rows')}, from {self.classes[0]} to "
                f"{self.classes[-1]}; {_COMPARE}"
            )

    def _count_names(self, totals: Totals) -> None:
        counts = {
            split: {name: totals.labels[split, name] for name in self.classes} for split in SPLITS
        }
        for name in self.classes:
            if not any(split[name] for split in counts.values()):
                raise InputError(
                    f"{self._place}: no usable row has {name!r}; add some or remove the class"
                )
        statistics = {"counts": counts["train"], "by_split": counts}
        shape = [len(self.classes)]
        self.feature = dataclasses.replace(self.feature, shape=shape, statistics=statistics)


def _is_continuous(values: list[str], rows: int) -> bool:
    """Return whether a label's values are measurements or counts rather than class names."""
    try:
        numbers = [number for value in values if not math.isnan(number := float(value))]
    except ValueError:
        return False
    if len(numbers) <= FEW_CLASSES:
        return False
    return rows < FEW_ROWS * len(numbers) or not all(number.is_integer() for number in numbers)


def _natural_key(name: str) -> tuple[bool, float, str]:
    """Return a sort key: numbers by value, before other names."""
    number = try_parse(float, name, math.nan)
    # NaN has no place among numbers.
    return (True, 0.0, name) if math.isnan(number) else (False, number, name)
