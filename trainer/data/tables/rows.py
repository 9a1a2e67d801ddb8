"""The contract of a table's reader: it yields blocks, which are parsed to rows on all cores.

    for block in source.blocks(0):
        rows = block.read(["area", "price"])
        rows.columns["area"]  # pyarrow.Array, one value a row

A block is pickled and read in another process, so it should hold raw bytes or Arrow's data, and
`read` should do the work.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa


class Rows(NamedTuple):
    """The rows of a block."""

    numbers: np.ndarray  # the end of each row's key, such as its line; int64 [n]
    digests: bytes  # digests of the rows' content, `DIGEST_BYTES` each, concatenated
    columns: dict[str, pa.Array]  # columns that were wanted, by name: numbers, text or lists
    rejections: list[tuple[int, str]]  # (number, reason) of rows without usable fields
    late: frozenset[str] = frozenset()  # columns that some rows have, but not the file's header

    @property
    def halves(self) -> np.ndarray:
        """Return the digests as uint64 [n, 2]."""
        return np.frombuffer(self.digests, ">u8").reshape(-1, 2).astype(np.uint64)


class Block(Protocol):
    """Some rows of a file."""

    @property
    def file(self) -> int:
        """Return the file's index; `TableKind.names` has its name."""

    @property
    def names(self) -> Sequence[str]:
        """Return the names of all columns; a name may be empty, or repeated."""

    def read(self, wanted: Sequence[str], lists: Sequence[str] = ()) -> Rows:
        """Return the rows with the columns that are `wanted`, and with digests of all columns.

        Columns of `lists` may contain lists, all others contain numbers or text. A missing value is
        null or "". Raise InputError for a column of anything else.
        """
