"""Labels of rows: those of a table, or of the file that has the labels of images."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.data.tables import cells
from trainer.data.tables.columns import COMPARISONS, LISTS, Label, fold_text
from trainer.data.tables.statistics import ColumnStatistics
from trainer.data.tables.values import parse_list
from trainer.data.totals import UNNAMED, Totals, count_classes


def parse_labels(label: Label, columns: Mapping[str, pa.Array], bad: dict[int, str]) -> pa.Array:
    """Return the label of each row; add rows without one to `bad`, by index.

    Classes are texts in a dictionary, numbers float64, several labels lists of texts.
    """
    if label.is_multilabel:
        return _parse_label_sets(label, columns, bad)
    if label.number:
        numbers = cells.parse_values(label.number, columns[label.column], bad)
        cells.reject(bad, np.isnan(numbers), f"no label, {label.column} is missing")
        return pa.array(numbers)
    names, codes = _parse_classes(label, columns, bad)
    # A row without a class is in `bad`, whatever its label here.
    codes = pa.array(np.maximum(codes, 0), pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string()))


def count_labels(label: Label, labels: pa.Array, splits: np.ndarray, hashes: np.ndarray) -> Totals:
    """Return the totals of labels: rows by split and class, several labels by split, or numbers.

    Args:
        labels: from `parse_labels`, or as `store_labels` returns them.
        splits: the index of each row's split in SPLITS, uint8 [n].
        hashes: uint64 [n], uniform.
    """
    one = np.zeros(len(labels), np.int64)
    if label.is_multilabel:
        names = labels.flatten().dictionary_encode()
        of_labels = splits[labels.value_parent_indices().to_numpy()]
        counted = count_classes(of_labels, names.indices.to_numpy(), names.dictionary.to_pylist())
        return Totals(counts=count_classes(splits, one, UNNAMED), labels=counted)
    if label.number:
        statistics = ColumnStatistics(label.number)
        statistics.add(labels.to_numpy(), splits, hashes)
        return Totals(counts=count_classes(splits, one, UNNAMED), statistics=[statistics])
    coded = labels.dictionary_encode()
    names = coded.dictionary.to_pylist()
    return Totals(counts=count_classes(splits, coded.indices.to_numpy(), names))


def store_labels(labels: pa.Array) -> pa.Array:
    """Return parsed labels as in planned rows: texts, float32 or lists of texts."""
    if pa.types.is_dictionary(labels.type):
        return labels.cast(pa.string())
    return labels.cast(pa.float32()) if pa.types.is_floating(labels.type) else labels


def _parse_classes(
    label: Label, columns: Mapping[str, pa.Array], bad: dict[int, str]
) -> tuple[Sequence[str], np.ndarray]:
    """Return classes and each row's index into them, int64 [n]; add rows without one to `bad`."""
    if not label.comparisons:
        texts = _to_names(label, _mark_missing(label, columns[label.column]))
        if label.classes:
            encoded = pc.fill_null(pc.index_in(texts, pa.array(label.classes, pa.string())), -1)
            names, codes = label.classes, encoded.to_numpy(zero_copy_only=False)
        else:
            encoded = texts.dictionary_encode()
            names = encoded.dictionary.to_pylist()
            codes = encoded.indices.to_numpy(zero_copy_only=False)
        missing = pc.equal(texts, "").to_numpy(zero_copy_only=False)
        cells.reject(bad, missing, f"no label, {label.column} is missing")
        cells.reject(bad, codes < 0, f"label {label.column} is not in classes", texts)
        return names, codes
    sides = {label.column: cells.parse_values(label.compared, columns[label.column], bad)}
    if other := label.times_column:
        sides[other] = cells.parse_numbers(other, columns[other], bad)
    for name, side in sides.items():
        cells.reject(bad, np.isnan(side), f"no label, {name} is missing")
    ((name, number),) = label.comparisons.items()
    bound = number * sides.get(label.times_column, 1.0)
    is_true = COMPARISONS[name](sides[label.column], bound)
    return label.classes, is_true.astype(np.int64)


def _mark_missing(label: Label, raw: pa.Array) -> pa.Array:
    """Return values with null in place of the texts that mean that a row has no label."""
    if not (label.missing and label.ignore_case):
        return cells.mark_missing(raw, label.missing)
    markers = pa.array(list(map(fold_text, label.missing)), pa.string())
    return pc.if_else(pc.is_in(_to_names(label, raw), markers), pa.scalar(None, raw.type), raw)


def _to_names(label: Label, raw: pa.Array) -> pa.Array:
    """Return names of classes or labels as text, "" where missing."""
    texts = cells.clean_texts(raw)
    if not label.ignore_case:
        return texts
    coded = texts.dictionary_encode()
    folded = list(map(fold_text, coded.dictionary.to_pylist()))
    return pa.array(folded, pa.string()).take(coded.indices)


def _parse_label_sets(
    label: Label, columns: Mapping[str, pa.Array], bad: dict[int, str]
) -> pa.Array:
    """Return the labels of each row, lists of text [n], sorted; add bad rows to `bad`.

    A row without a value has no label.
    """
    if label.indicators:
        rows, names = _read_indicators(label, columns, bad)
        n = len(columns[label.indicators[0]])
    else:
        raw = columns[label.column]
        n = len(raw)
        if not cells.is_list(raw):
            raw = _mark_missing(label, raw)
        if label.format == LISTS and not cells.is_list(raw):
            raw = cells.parse_distinct(
                cells.to_texts(raw), parse_list, f"{label.column} is not a list", bad
            )
            raw = raw.cast(pa.list_(pa.string()))
        elif not cells.is_list(raw):
            raw = pc.split_pattern(cells.to_texts(raw), label.separator)
        rows, names = raw.value_parent_indices().to_numpy(), _to_names(label, raw.flatten())
    given = pc.not_equal(names, "").to_numpy(zero_copy_only=False)
    rows, names = rows[given], names.filter(pa.array(given))
    if label.classes:
        unknown = pc.invert(pc.is_in(names, pa.array(label.classes))).to_numpy(zero_copy_only=False)
        for index, name in zip(rows[unknown].tolist(), names.filter(unknown), strict=True):
            text = name.as_py()[: cells.SHOWN]
            bad.setdefault(index, f"label {label.column} is not in classes: {text!r}")
    # Each label once, in a fixed order.
    table = pa.table({"row": rows, "name": names}).group_by(["row", "name"]).aggregate([])
    table = table.sort_by([("row", "ascending"), ("name", "ascending")])
    sizes = np.bincount(table["row"].to_numpy(), minlength=n)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), table["name"].combine_chunks())


def _read_indicators(
    label: Label, columns: Mapping[str, pa.Array], bad: dict[int, str]
) -> tuple[np.ndarray, pa.Array]:
    """Return a row and a label's name for each 1."""
    rows, names = [], []
    for name in label.indicators:
        numbers = cells.parse_numbers(name, columns[name], bad)
        for index in np.flatnonzero(~np.isnan(numbers) & (numbers != 0) & (numbers != 1)).tolist():
            bad.setdefault(index, f"label {name} is neither 0 nor 1: {numbers[index]:g}")
        rows.append(np.flatnonzero(numbers == 1))
        names += [name] * len(rows[-1])
    return np.concatenate(rows), pa.array(names, pa.string())
