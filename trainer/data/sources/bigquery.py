"""bigquery:PROJECT.DATASET.TABLE: a table of BigQuery, read by its Storage Read API.

The table is read once, as it is when the step begins, and never exported. Its rows have no order:
a row's key is `table:number`, with a number computed from its content.
"""

import re
import secrets
from collections.abc import Iterator
from typing import Any

from trainer.data.tables.columns import TableSchema
from trainer.data.tables.file_reader import TableKind, check_header
from trainer.errors import google_errors_as_input

_TABLE = re.compile(r"([a-z][a-z0-9.:-]+)\.(\w+)\.([\w$-]+)")
_REMEDY = (
    "is the BigQuery Storage API enabled, and has the run's account roles/bigquery.dataViewer and "
    "roles/bigquery.readSessionUser?"
)


class BigQueryReader(TableKind):
    """A table of BigQuery."""

    place = "PROJECT.DATASET.TABLE"
    help = "a table of BigQuery"
    location = ""

    def __init__(self, place: str, schema: TableSchema) -> None:
        import pyarrow as pa

        project, dataset, self.name = place.rsplit(".", 2)
        self.names, self.details = [self.name], {"table": place}
        self._wanted = schema.needed
        self._place = f"projects/{project}/datasets/{dataset}/tables/{self.name}"
        with google_errors_as_input(f"{self._place} can't be read", _REMEDY):
            session = open_client().create_read_session(
                parent=f"projects/{project}",
                read_session={"table": self._place, "data_format": "ARROW"},
                max_stream_count=1,
            )
        self._stream = session.streams[0].name if session.streams else ""
        self._schema = pa.ipc.read_schema(pa.py_buffer(session.arrow_schema.serialized_schema))
        check_header(place, self._schema.names, schema)

    @classmethod
    def takes(cls, place: str) -> bool:
        return bool(_TABLE.fullmatch(place))

    @classmethod
    def version(cls, place: str, data_dir: str) -> tuple[str, str]:
        # There is no way to see that a table has changed: its records are written every time.
        return secrets.token_hex(16), ""

    def blocks(self, _: int) -> Iterator[Any]:
        import pyarrow as pa

        from trainer.data.tables.batches import Batch

        if not self._stream:
            return
        with google_errors_as_input(f"{self._place} can't be read", _REMEDY):
            for response in open_client().read_rows(self._stream):
                content = pa.py_buffer(response.arrow_record_batch.serialized_record_batch)
                yield Batch(0, 0, pa.ipc.read_record_batch(content, self._schema))


def open_client() -> Any:
    """Return a client with the account that the process runs as."""
    from google.cloud import bigquery_storage_v1

    return bigquery_storage_v1.BigQueryReadClient()
