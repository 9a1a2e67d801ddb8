"""Drift of a server's requests from the training data of its model."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from trainer.data.schema import Dataset
from trainer.data.tables.columns import argument_names, list_columns
from trainer.evaluation import drift
from trainer.evaluation.column_statistics import describe
from trainer.evaluation.drift import Drifts
from trainer.process_pool import cut
from trainer.serving.instances import DEFAULT, BadInstancesError
from trainer.serving.row_instances import RowInstances
from vertex.errors import InputError

_CHUNK = 1024


def measure(before: Dataset, instances: Iterable[Any]) -> tuple[Drifts, int]:
    """Compare requests with the training split of a table.

    Serialized tf.Examples among the instances are ignored. Returns the drift of all columns but the
    label, and the number of rows.
    """
    columns = list_columns(before)
    arguments = argument_names(column.name for column in columns)
    parser = RowInstances({arguments[column.name]: column.dtype for column in columns}, columns)
    parts = list(_parse_instances(parser, instances))
    if not parts:
        raise InputError("the log has no rows yet; send the server requests, then compare again")
    now = [
        describe(column, np.concatenate([part[arguments[column.name]] for part in parts]))
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
