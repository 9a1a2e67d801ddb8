"""The raw values of a table's columns in a split, on disk."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from trainer.data.schema import Dataset, Feature
from trainer.data.tables.columns import list_columns
from trainer.data.tables.inputs import parse_columns
from trainer.evaluation.disk_columns import DiskColumns

_CODES = 2**61


class ColumnValues(DiskColumns):
    """Numbers of a split's columns as they are, and a code of 8 bytes in place of each text.

    Attributes:
        columns: the columns; empty for images.
    """

    def __init__(self, dataset: Dataset, split: str) -> None:
        self.columns = list_columns(dataset)
        kinds = {one.name: "f4" if one.dtype == "float32" else "i8" for one in self.columns}
        super().__init__(dataset.splits[split].examples, kinds)
        self._dataset = dataset

    def add(self, batch: tf.Tensor) -> None:
        """Add a batch of serialized examples, string [n]."""
        if not self.columns:
            return
        values = parse_columns(batch, self._dataset)
        for name, column in values.items():
            if column.dtype == tf.string:
                values[name] = tf.strings.to_hash_bucket_fast(column, _CODES)
        self.append({name: column.numpy() for name, column in values.items()})


def encode_texts(column: Feature, texts: Sequence[str]) -> np.ndarray:
    """Return the stored values, int64 [n], of a column's values as dataset.json has them."""
    if column.dtype == "int64":
        return np.array([int(text or -1) for text in texts], np.int64)
    return tf.strings.to_hash_bucket_fast(list(texts), _CODES).numpy()
