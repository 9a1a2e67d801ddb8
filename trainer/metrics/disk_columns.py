"""Keep a model's answers to a split, and the split's columns, on disk.

Both are stored as columns of fixed width in temporary files, so that only the rows in use are in
memory.
"""

import abc
import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from trainer.data import storage
from trainer.data.schema import Dataset, Feature
from trainer.data.tables.columns import list_columns
from trainer.data.tables.inputs import parse_columns
from trainer.metrics import BLOCK
from trainer.metrics.comparison import Scores

_KEYS = pa.schema([("key", pa.binary())])
_HASHES = 2**61


def spans(rows: int, size: int = BLOCK) -> Iterator[tuple[int, int]]:
    """Yield the starts and ends of blocks of `size` rows."""
    for start in range(0, rows, size):
        yield start, min(start + size, rows)


class DiskColumns:
    """Named columns of `rows` values each, in a file that is removed when the process ends.

    columns = DiskColumns(2, {"label": np.int32})
    columns.append({"label": [1, 0]})
    columns.read("label", 0, 2)   # array([1, 0], dtype=int32)
    """

    def __init__(self, rows: int, dtypes: Mapping[Any, npt.DTypeLike]) -> None:
        self.rows = rows
        self._dtypes = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
        widths = [dtype.itemsize * rows for dtype in self._dtypes.values()]
        self._offsets = dict(zip(dtypes, itertools.accumulate([0, *widths]), strict=False))
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object
        self._end = 0

    def append(self, values: Mapping[Any, npt.ArrayLike]) -> None:
        """Append the same number of values to every column."""
        added = 0
        with storage.catch_write_errors(tempfile.gettempdir()):
            for name, column in values.items():
                content = np.ascontiguousarray(column, self._dtypes[name])
                self._seek(name, self._end)
                self._file.write(content.data)
                added = len(content)
        self._end += added

    def read(self, name: Any, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return the values of a column from row `start` to `stop`; by default, all of them."""
        values = np.empty((self.rows if stop is None else stop) - start, self._dtypes[name])
        self._seek(name, start)
        self._file.readinto(values.data)
        return values

    def _seek(self, name: Any, row: int) -> None:
        self._file.seek(self._offsets[name] + row * self._dtypes[name].itemsize)


class Answers(DiskColumns, abc.ABC):
    """Labels and answers of a split's examples, with their keys; a subclass names the columns."""

    def __init__(self, rows: int, dtypes: Mapping[Any, npt.DTypeLike]) -> None:
        super().__init__(rows, dtypes)
        self._keys = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object
        self._key_writer = pa.ipc.new_stream(self._keys, _KEYS)

    def add(self, columns: Mapping[Any, npt.ArrayLike], keys: list[bytes]) -> None:
        """Add a batch: columns [n] by name, and n keys."""
        self.append(columns)
        with storage.catch_write_errors(tempfile.gettempdir()):
            self._key_writer.write_batch(pa.record_batch([keys], schema=_KEYS))

    def read_labels(self, start: int, stop: int) -> np.ndarray:
        """Return the labels of the examples from `start` to `stop`, as in the records."""
        return self.read("label", start, stop)

    def key_batches(self) -> Iterator[list[bytes]]:
        """Yield the keys in the batches in which they were added."""
        self._key_writer.close()
        self._keys.seek(0)
        for batch in pa.ipc.open_stream(self._keys):
            yield batch["key"].to_pylist()

    @abc.abstractmethod
    def add_batch(self, labels: np.ndarray, outputs: Mapping[str, Any], keys: list[bytes]) -> None:
        """Add a batch of labels [n] and what a SavedModel answers [n, ...], by name."""

    @abc.abstractmethod
    def rate_badness(
        self, labels: np.ndarray, outputs: Mapping[str, Any]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the arguments `badness` and `figures` of `WorstExamples.add` for a batch."""

    @abc.abstractmethod
    def scores(self, start: int, stop: int) -> Scores:
        """Return the scores of the examples from `start` to `stop`."""

    @abc.abstractmethod
    def titles(self) -> list[str]:
        """Return the titles of the columns of predictions.csv after the key."""

    @abc.abstractmethod
    def format_rows(self, start: int, stop: int) -> list[Sequence[Any]]:
        """Return these columns of the examples from `start` to `stop`."""


class ColumnValues(DiskColumns):
    """The columns of a split: numbers as they are, and an 8-byte hash in place of each text."""

    def __init__(self, dataset: Dataset, split: str) -> None:
        self.columns = list_columns(dataset)  # empty for images
        dtypes = {
            column.name: "f4" if column.dtype == "float32" else "i8" for column in self.columns
        }
        super().__init__(dataset.splits[split].examples, dtypes)
        self._dataset = dataset

    def add(self, batch: tf.Tensor) -> None:
        """Add a batch of serialized examples, string [n]."""
        if not self.columns:
            return
        values = parse_columns(batch, self._dataset)
        for name, column in values.items():
            if column.dtype == tf.string:
                values[name] = tf.strings.to_hash_bucket_fast(column, _HASHES)
        self.append({name: column.numpy() for name, column in values.items()})


def encode_texts(column: Feature, texts: Sequence[str]) -> np.ndarray:
    """Return how `ColumnValues` stores values that dataset.json has as text, int64 [n]."""
    if column.dtype == "int64":
        return np.array([int(text or -1) for text in texts], np.int64)
    return tf.strings.to_hash_bucket_fast(list(texts), _HASHES).numpy()
