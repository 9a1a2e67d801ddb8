"""BigQuery on 127.0.0.1: its Storage Read API over gRPC, and jobs that run queries over REST."""

import contextlib
import json
from collections.abc import Iterator
from concurrent import futures
from typing import Any
from unittest import mock

import grpc
import pyarrow as pa
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery as google_bigquery
from google.cloud import bigquery_storage_v1
from google.cloud.bigquery_storage_v1 import types
from google.cloud.bigquery_storage_v1.services.big_query_read.transports import (
    BigQueryReadGrpcTransport,
)

from tests.json_server import JsonServer
from trainer.data.sources import bigquery

_SERVICE = "google.cloud.bigquery.storage.v1.BigQueryRead"


class _Service:
    def __init__(
        self, tables: dict[str, pa.Table], batch_rows: int, breaks: bool, streams: int
    ) -> None:
        self._tables, self._batch_rows = tables, batch_rows
        self._breaks, self._streams = breaks, streams

    def create(self, request: types.CreateReadSessionRequest, context: grpc.ServicerContext):
        name = request.read_session.table
        if name not in self._tables:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Not found: Table {name}")
        assert request.read_session.data_format == types.DataFormat.ARROW
        assert request.parent == "projects/my-project"
        schema = self._tables[name].schema.serialize().to_pybytes()
        names = [f"{name}/{number}/{self._streams}" for number in range(self._streams)]
        return types.ReadSession(
            name="session",
            table=name,
            data_format=types.DataFormat.ARROW,
            arrow_schema=types.ArrowSchema(serialized_schema=schema),
            streams=[types.ReadStream(name=name) for name in names[: request.max_stream_count]],
        )

    def read(self, request: types.ReadRowsRequest, context: grpc.ServicerContext):
        name, number, count = request.read_stream.rsplit("/", 2)
        table = self._tables[name]
        rows = table.take(list(range(int(number), len(table), int(count)))).slice(request.offset)
        for batch in rows.combine_chunks().to_batches(self._batch_rows):
            serialized = batch.serialize().to_pybytes()
            yield types.ReadRowsResponse(
                arrow_record_batch=types.ArrowRecordBatch(serialized_record_batch=serialized),
                row_count=len(batch),
            )
            if self._breaks:
                self._breaks = False
                context.abort(grpc.StatusCode.UNAVAILABLE, "the connection is lost")


@contextlib.contextmanager
def serving(
    tables: dict[str, pa.Table], *, batch_rows: int = 100, breaks: bool = False, streams: int = 1
) -> Iterator[None]:
    """Make sources read from a service with `tables`, by projects/…/datasets/…/tables/….

    Args:
        breaks: whether the first stream ends with an error after its first batch.
        streams: of every table, each with every n-th row.
    """
    service = _Service(tables, batch_rows, breaks, streams)
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
            client = bigquery_storage_v1.BigQueryReadClient(transport=transport)
            with mock.patch.object(bigquery, "open_client", lambda: client):
                yield
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def running_queries(results: dict[str, str], *, scanned: int = 0) -> Iterator[dict[str, dict]]:
    """Make sources send queries to a service that runs those of `results`: query -> table id.

    By jobs.insert, jobs.getQueryResults and jobs.get; any other query has a syntax error. Each
    query scans a number of bytes. Yields the jobs by ID.
    """
    jobs: dict[str, dict] = {}

    def insert(path: str, job: dict) -> tuple[int, Any]:
        query = job["configuration"]["query"]
        assert not query["useLegacySql"] and "projects/my-project/jobs" in path
        if query["query"] not in results:
            message = "Syntax error: Unexpected identifier at [1:1]"
            errors = [{"reason": "invalidQuery", "message": message}]
            return 400, {"error": {"code": 400, "message": message, "errors": errors}}
        if int(query.get("maximumBytesBilled", scanned)) < scanned:
            return 400, {"error": {"code": 400, "message": "Query exceeded limit for bytes billed"}}
        table = {"projectId": "my-project", "datasetId": "taxi", "tableId": results[query["query"]]}
        query |= {"destinationTable": table, "statementType": "SELECT"}
        job |= {"id": "my-project:US.job", "status": {"state": "RUNNING"}, "statistics": {}}
        jobs[job["jobReference"]["jobId"]] = job
        return 200, job

    def answer(method: str, path: str, _: Any, body: bytes) -> tuple[int, Any]:
        if method == "POST":
            return insert(path, json.loads(body))
        path = path.partition("?")[0]
        job = jobs[path.rpartition("/")[2]]
        if "/queries/" not in path:
            return 200, job
        job["status"]["state"] = "DONE"
        done = {"jobReference": job["jobReference"], "jobComplete": True, "totalRows": "600"}
        return 200, {**done, "schema": {"fields": []}}

    with JsonServer(answer) as server:
        client = google_bigquery.Client(
            project="my-project",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": f"http://127.0.0.1:{server.server_port}"},
        )
        with mock.patch.object(bigquery, "open_query_client", lambda project: client):
            yield jobs
