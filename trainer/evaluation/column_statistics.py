"""The statistics of a column's values as dataset.json has them, of requests or of a split."""

import collections
import dataclasses
from typing import Any

import numpy as np

from trainer.data.schema import Feature
from trainer.data.tables.columns import clean_text
from trainer.data.tables.dates import count_days
from trainer.data.tables.inputs import MISSING
from trainer.data.tables.statistics import QUANTILES, bucket_name
from trainer.data.tables.words import draw_words


def describe(column: Feature, values: np.ndarray) -> Feature:
    """Return a column with the statistics of these values, [n], instead of the training split's.

    Texts are bytes; missing values are as in `tables.inputs.MISSING`.
    """
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
        counted = collections.Counter(map(count_as, present.tolist()))
        # Count only the values that the training records count.
        figures["counts"] = {name: counted[clean_text(name)] for name in counts}
    return dataclasses.replace(column, statistics=figures)
