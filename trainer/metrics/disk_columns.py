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
from trainer.metrics.classifier import Ranking, pack_scores, rank
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
    """Labels and answers of a split's examples, with their keys; a subclass names the columns.

    Examples may have weights, which `add_weights` adds.
    """

    def __init__(self, rows: int, dtypes: Mapping[Any, npt.DTypeLike]) -> None:
        super().__init__(rows, dtypes)
        self._keys = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object
        self._key_writer = pa.ipc.new_stream(self._keys, _KEYS)
        self._weights: DiskColumns | None = None
        self.weight_sum = self._largest_weight = 0.0

    def add(self, columns: Mapping[Any, npt.ArrayLike], keys: list[bytes]) -> None:
        """Add a batch: columns [n] by name, and n keys."""
        self.append(columns)
        with storage.catch_write_errors(tempfile.gettempdir()):
            self._key_writer.write_batch(pa.record_batch([keys], schema=_KEYS))

    def add_weights(self, weights: np.ndarray) -> None:
        """Add the weights of a batch, float32 [n]."""
        if self._weights is None:
            self._weights = DiskColumns(self.rows, {"weight": np.float32})
        self._weights.append({"weight": weights})
        self.weight_sum += float(weights.sum(dtype=np.float64))
        self._largest_weight = max(self._largest_weight, float(weights.max()))

    @property
    def is_weighted(self) -> bool:
        return self._weights is not None

    def read_weights(self, start: int, stop: int) -> np.ndarray:
        """Return the weights of the examples from `start` to `stop`, float32, as in the records."""
        if self._weights is None:
            return np.ones(stop - start, np.float32)
        return self._weights.read("weight", start, stop)

    def weigh(self, start: int, stop: int) -> np.ndarray:
        """Return these weights as multiples of their mean over the split, float64."""
        return self.read_weights(start, stop) / np.float64(self._mean_weight)

    @property
    def largest_weight(self) -> float:
        """Return the largest weight, as a multiple of the mean."""
        return self._largest_weight / self._mean_weight if self.is_weighted else 1.0

    @property
    def _mean_weight(self) -> float:
        return self.weight_sum / self.rows if self.is_weighted else 1.0

    def pack_scores(self, positive: np.ndarray, name: Any, start: int, stop: int) -> np.ndarray:
        """Pack the column `name` of these examples, and whether each is positive, for `rank`."""
        weights = self.weigh(start, stop).astype(np.float32) if self.is_weighted else None
        return pack_scores(positive, self.read(name, start, stop), weights)

    def rank(self, number: int) -> Ranking | None:
        """Rank the examples by the probability of a class, which is the column `number`."""
        order = np.empty(self.rows, np.uint64 if self.is_weighted else np.uint32)
        for start, stop in spans(self.rows):
            positive = self.read_is_positive(number, start, stop)
            order[start:stop] = self.pack_scores(positive, number, start, stop)
        return rank(order)

    def read_is_positive(self, number: int, start: int, stop: int) -> np.ndarray:
        """Return whether the examples from `start` to `stop` are of a class, bool."""
        raise NotImplementedError  # Only `rank` needs it.

    def read_labels(self, start: int, stop: int) -> np.ndarray:
        """Return the labels of the examples from `start` to `stop`, as in the records."""
        return self.read("label", start, stop)

    def format_column(self, name: Any, start: int, stop: int) -> list[str | None]:
        """Return a float32 column as text, each with as many digits as it has; None for NaN."""
        values = pa.array(self.read(name, start, stop), from_pandas=True)
        return values.cast(pa.string()).to_pylist()

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
