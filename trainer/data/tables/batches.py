"""Convert Arrow's record batches, of Parquet files and BigQuery tables, to rows.

A row's digest covers all its columns as text, sorted by name, except those of lists and
structures. Another choice or order of columns moves no row to another split.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.data.sources import digest
from trainer.data.tables.parsing import Rows
from trainer.data.tables.row_records import packed

BATCH_ROWS = 1 << 14
"""Rows that are passed to a process at once."""


class Batch(NamedTuple):
    """Rows of a file: its index, the first row's number, and the rows.

    The first number is 0 if the rows have no order: their digests then number them.
    """

    file: int
    first: int
    rows: pa.RecordBatch


def read_batch(batch: Batch, wanted: Sequence[str]) -> Rows:
    """Return the rows of a batch with the columns that are `wanted`."""
    columns = {name: _flat(batch.rows.column(name)) for name in sorted(batch.rows.schema.names)}
    texts = [_text(one) for one in columns.values() if not pa.types.is_nested(one.type)]
    digests = b"".join(map(digest, packed(texts).to_pylist()))
    if batch.first:
        numbers = np.arange(batch.first, batch.first + len(batch.rows))
    else:
        halves = np.frombuffer(digests, ">u8")[::2]
        numbers = (halves >> np.uint64(1)).astype(np.int64)
    return Rows(numbers, digests, {name: columns[name] for name in wanted}, [])


def _flat(column: pa.Array) -> pa.Array:
    """Return a column without dictionary encoding, and large_string as string."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string()) if pa.types.is_large_string(column.type) else column


def _text(column: pa.Array) -> pa.Array:
    if not pa.types.is_binary(column.type):
        column = pc.cast(column, pa.string())
    return pc.fill_null(column.cast(pa.binary()), b"")
