"""Columns of fixed width in a temporary file, so that memory holds only the rows in use."""

import itertools
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.data import storage

BLOCK = 1 << 16
"""Rows that are read at a time."""


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
        self._places = dict(zip(dtypes, itertools.accumulate([0, *widths]), strict=False))
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object
        self._end = 0

    def append(self, values: Mapping[Any, npt.ArrayLike]) -> None:
        """Append the same number of values to every column."""
        added = 0
        with storage.writing(tempfile.gettempdir()):
            for name, column in values.items():
                content = np.ascontiguousarray(column, self._dtypes[name])
                self._seek(name, self._end)
                self._file.write(content.data)
                added = len(content)
        self._end += added

    def read(self, name: Any, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return the values of a column from `start` to `stop`; all of them by default."""
        found = np.empty((self.rows if stop is None else stop) - start, self._dtypes[name])
        self._seek(name, start)
        self._file.readinto(found.data)
        return found

    def _seek(self, name: Any, row: int) -> None:
        self._file.seek(self._places[name] + row * self._dtypes[name].itemsize)
