"""Drift within a dataset that is split by time: from the training split to the test split."""

from typing import Any

import numpy as np

from trainer.data.schema import Dataset
from trainer.data.tables.columns import list_columns
from trainer.data.tables.inputs import parse_columns
from trainer.data.tables.statistics import SAMPLE
from trainer.evaluation.column_statistics import describe
from trainer.evaluation.drift import Drifts, count_classes, measure_columns
from trainer.evaluation.prediction import read_stored_batches

_BATCH = 4096


def measure(dataset: Dataset) -> Drifts | None:
    """Compare the test split with the statistics of the training split; None if not by time.

    Of a large test split, a random sample of `SAMPLE` rows is read.
    """
    if not dataset.creation.get("split_starts"):
        return None
    columns = list_columns(dataset)
    parts: list[dict[str, Any]] = []
    for batch in read_stored_batches(dataset, "test", _BATCH).take(SAMPLE // _BATCH):
        parts.append(
            {name: values.numpy() for name, values in parse_columns(batch, dataset).items()}
        )
    now = [
        describe(column, np.concatenate([part[column.name] for part in parts]))
        for column in columns
    ]
    rows = min(SAMPLE, dataset.splits["test"].examples)
    share = rows / sum(dataset.splits["test"].class_counts)
    classes = {name: count * share for name, count in count_classes(dataset, "test").items()}
    return measure_columns(dataset, now, rows, classes)
