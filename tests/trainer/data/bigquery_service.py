"""BigQuery's Storage Read API over gRPC on 127.0.0.1, by its official messages."""

import contextlib
from collections.abc import Iterator
from concurrent import futures

import grpc
import pyarrow as pa
from google.cloud import bigquery_storage_v1
from google.cloud.bigquery_storage_v1 import types
from google.cloud.bigquery_storage_v1.services.big_query_read.transports import (
    BigQueryReadGrpcTransport,
)

_SERVICE = "google.cloud.bigquery.storage.v1.BigQueryRead"


class _Service:
    def __init__(self, tables: dict[str, pa.Table], batch_rows: int, breaks_at: int) -> None:
        self._tables, self._batch_rows, self._breaks_at = tables, batch_rows, breaks_at

    def create(self, request: types.CreateReadSessionRequest, context: grpc.ServicerContext):
        name = request.read_session.table
        if name not in self._tables:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Not found: Table {name}")
        assert request.read_session.data_format == types.DataFormat.ARROW
        schema = self._tables[name].schema.serialize().to_pybytes()
        return types.ReadSession(
            name="session",
            table=name,
            data_format=types.DataFormat.ARROW,
            arrow_schema=types.ArrowSchema(serialized_schema=schema),
            streams=[types.ReadStream(name=name)],
        )

    def read(self, request: types.ReadRowsRequest, context: grpc.ServicerContext):
        rows = self._tables[request.read_stream].slice(request.offset)
        for batch in rows.combine_chunks().to_batches(self._batch_rows):
            yield types.ReadRowsResponse(
                arrow_record_batch=types.ArrowRecordBatch(
                    serialized_record_batch=batch.serialize().to_pybytes()
                ),
                row_count=len(batch),
            )
            if self._breaks_at:
                self._breaks_at = 0
                context.abort(grpc.StatusCode.UNAVAILABLE, "the connection is lost")


@contextlib.contextmanager
def serving(
    tables: dict[str, pa.Table], *, batch_rows: int = 100, breaks_at: int = 0
) -> Iterator[bigquery_storage_v1.BigQueryReadClient]:
    """A client of a service with `tables`, by projects/…/datasets/…/tables/….

    Args:
        breaks_at: 1: the first stream ends with an error after its first batch.
    """
    service = _Service(tables, batch_rows, breaks_at)
    handlers = {
        "CreateReadSession": grpc.unary_unary_rpc_method_handler(
            service.create,
            types.CreateReadSessionRequest.deserialize,
            types.ReadSession.serialize,
        ),
        "ReadRows": grpc.unary_stream_rpc_method_handler(
            service.read, types.ReadRowsRequest.deserialize, types.ReadRowsResponse.serialize
        ),
    }
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            transport = BigQueryReadGrpcTransport(channel=channel)
            yield bigquery_storage_v1.BigQueryReadClient(transport=transport)
    finally:
        server.stop(None).wait()
