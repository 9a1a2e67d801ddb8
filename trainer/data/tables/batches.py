"""Convert Arrow's record batches, of Parquet files and BigQuery tables, to rows.

A row's digest covers all its columns as text, sorted by name, except columns of lists, structures
and intervals. So a row stays in its split if other columns are chosen, or their order changes.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.data.records import pack_values
from trainer.data.source import digest
from trainer.data.tables.cells import is_list
from trainer.data.tables.rows import Rows
from vertex.errors import InputError

BATCH_ROWS = 1 << 14
"""Number of rows that are passed to a process at once."""


class ArrowBlock(NamedTuple):
    """Rows of a file: its index, the first row's number, and the rows.

    The first number is 0 if the rows have no order: then their numbers are computed from digests.
    """

    file: int
    first: int
    rows: pa.RecordBatch

    @property
    def names(self) -> Sequence[str]:
        """Return the names of all columns."""
        return list(self.rows.schema.names)

    def read(self, wanted: Sequence[str], lists: Sequence[str] = ()) -> Rows:
        """Return the rows with the columns that are `wanted`; those in `lists` may contain lists.

        Raise InputError if any other wanted column contains neither numbers nor text.
        """
        names = self.rows.schema.names
        # Columns that are not wanted may have the same name: keep them in their order.
        columns = [
            column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            for _, column in sorted(zip(names, self.rows.columns, strict=True), key=itemgetter(0))
        ]
        by_name = dict(zip(sorted(names), columns, strict=True))
        chosen = {
            name: by_name[name]
            if name in lists and is_list(by_name[name])
            else _to_numbers_or_text(name, by_name[name])
            for name in wanted
        }
        texts = [
            _to_bytes(column)
            for column in columns
            if not (pa.types.is_nested(column.type) or pa.types.is_interval(column.type))
        ]
        digests = b"".join(map(digest, pack_values(texts).to_pylist()))
        if self.first:
            numbers = np.arange(self.first, self.first + len(self.rows))
        else:
            halves = np.frombuffer(digests, ">u8")[::2]
            numbers = (halves >> np.uint64(1)).astype(np.int64)
        return Rows(numbers, digests, chosen, [])


def _to_numbers_or_text(name: str, column: pa.Array) -> pa.Array:
    """Return a column of numbers as it is, and any other as text."""
    kind = column.type
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    if any(is_of(kind) for is_of in numbers):
        return column
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        raise InputError(
            f"the table's column {name!r} has the type {column.type}, which is neither numbers nor "
            "text; use another column, or convert this one"
        ) from None


def _to_bytes(column: pa.Array) -> pa.Array:
    if "binary" not in str(column.type):  # Binary values need not be text; Arrow has four types.
        column = column.cast(pa.string())
    return pc.fill_null(column.cast(pa.binary()), b"")
