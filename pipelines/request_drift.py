"""Drift of a server's requests from the training data of its model."""

import collections
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from trainer.data.schema import Dataset, Feature
from trainer.data.tables.columns import argument_name, clean_text, list_columns
from trainer.data.tables.dates import count_days
from trainer.data.tables.inputs import MISSING
from trainer.data.tables.statistics import QUANTILES, bucket_name
from trainer.data.tables.words import draw_words
from trainer.errors import InputError
from trainer.evaluation import drift
from trainer.evaluation.drift import Drifts
from trainer.process_pool import cut
from trainer.serving.instances import DEFAULT, BadInstancesError
from trainer.serving.row_instances import RowInstances

_CHUNK = 1024


def measure(before: Dataset, instances: Iterable[Any]) -> tuple[Drifts, int]:
    """Compare requests with the training split of a table.

    Serialized tf.Examples among the instances are ignored. Returns the drift of all columns but the
    label, and the number of rows.
    """
    columns = list_columns(before)
    names = {argument_name(column.name): column.dtype for column in columns}
    parser = RowInstances(names, columns)
    parts = list(_parse_instances(parser, instances))
    if not parts:
        raise InputError("the log has no rows yet; send the server requests, then compare again")
    now = [
        _build_feature(column, np.concatenate([part[argument_name(column.name)] for part in parts]))
        for column in columns
    ]
    rows = sum(len(next(iter(part.values()))) for part in parts)
    return drift.measure_columns(before, now, rows), rows


def _parse_instances(
    parser: RowInstances, instances: Iterable[Any]
) -> Iterator[dict[str, np.ndarray]]:
    for chunk in cut(instances, _CHUNK):
        try:
            request = parser.parse(chunk)
        except BadInstancesError as error:
            raise InputError(f"the log has requests to another model: {error}") from None
        yield from (part.inputs for part in request.parts if part.signature == DEFAULT)


def _build_feature(column: Feature, values: np.ndarray) -> Feature:
    """Return a column with the statistics of the requests' values."""
    if column.dtype == "string":  # As in the records, with which the model compares them.
        values = np.array([clean_text(value.decode()) for value in values.tolist()], object)
    missing = np.isnan(values) if column.dtype == "float32" else values == MISSING[column.dtype]
    figures: dict[str, Any] = {"missing": {"train": float(missing.mean())}}
    present = values[~missing]
    if column.kind == "text":
        texts = np.array([text.encode() for text in present.tolist()], object)
        present = np.array(draw_words(texts, column.settings["words"]), object)
    if column.kind == "date":
        present = count_days(present.tolist())
    if "quantiles" in column.statistics:
        quantiles = np.quantile(present, QUANTILES, method="inverted_cdf") if len(present) else []
        figures["quantiles"] = list(map(float, quantiles))
    elif counts := column.statistics.get("counts"):
        count_as = bucket_name if column.kind == "hashed" else str
        requested = collections.Counter(map(count_as, present.tolist()))
        # Count only the values that the training records count.
        figures["counts"] = {name: requested[clean_text(name)] for name in counts}
    return dataclasses.replace(column, statistics=figures)
