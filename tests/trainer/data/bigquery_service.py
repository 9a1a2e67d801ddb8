"""BigQuery on 127.0.0.1: its Storage Read API over gRPC, and jobs that run queries over REST."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc
import pyarrow as pa
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery, bigquery_storage_v1
from google.cloud.bigquery_storage_v1 import types
from google.cloud.bigquery_storage_v1.services.big_query_read.transports import (
    BigQueryReadGrpcTransport,
)

_SERVICE = "google.cloud.bigquery.storage.v1.BigQueryRead"


class _Service:
    def __init__(
        self, tables: dict[str, pa.Table], batch_rows: int, breaks_at: int, streams: int
    ) -> None:
        self._tables, self._batch_rows, self._breaks_at = tables, batch_rows, breaks_at
        self._streams = streams

    def create(self, request: types.CreateReadSessionRequest, context: grpc.ServicerContext):
        name = request.read_session.table
        if name not in self._tables:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Not found: Table {name}")
        assert request.read_session.data_format == types.DataFormat.ARROW
        assert request.parent == "projects/my-project"
        schema = self._tables[name].schema.serialize().to_pybytes()
        streams = [
            types.ReadStream(name=f"{name}/{one}/{self._streams}") for one in range(self._streams)
        ]
        return types.ReadSession(
            name="session",
            table=name,
            data_format=types.DataFormat.ARROW,
            arrow_schema=types.ArrowSchema(serialized_schema=schema),
            streams=streams[: request.max_stream_count],
        )

    def read(self, request: types.ReadRowsRequest, context: grpc.ServicerContext):
        name, number, count = request.read_stream.rsplit("/", 2)
        table = self._tables[name]
        rows = table.take(list(range(int(number), len(table), int(count)))).slice(request.offset)
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
    tables: dict[str, pa.Table], *, batch_rows: int = 100, breaks_at: int = 0, streams: int = 1
) -> Iterator[bigquery_storage_v1.BigQueryReadClient]:
    """A client of a service with `tables`, by projects/…/datasets/…/tables/….

    Args:
        breaks_at: 1: the first stream ends with an error after its first batch.
        streams: of every table, each with every n-th row.
    """
    service = _Service(tables, batch_rows, breaks_at, streams)
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


@contextlib.contextmanager
def running_queries(results: dict[str, str]) -> Iterator[bigquery.Client]:
    """A client of a service that runs the queries of `results`, whose values are table ids.

    By jobs.insert, jobs.getQueryResults and jobs.get; any other query has a syntax error.
    """
    jobs: dict[str, dict] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            query = job["configuration"]["query"]
            assert not query["useLegacySql"] and "projects/my-project/jobs" in self.path
            if query["query"] not in results:
                message = "Syntax error: Unexpected identifier at [1:1]"
                errors = [{"reason": "invalidQuery", "message": message}]
                self._answer(400, {"error": {"code": 400, "message": message, "errors": errors}})
                return
            place = ("my-project", "taxi", results[query["query"]])
            names = ("projectId", "datasetId", "tableId")
            query["destinationTable"] = dict(zip(names, place, strict=True))
            query["statementType"] = "SELECT"
            job |= {"id": "my-project:US.job", "status": {"state": "RUNNING"}, "statistics": {}}
            jobs[job["jobReference"]["jobId"]] = job
            self._answer(200, job)

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            job = jobs[path.rpartition("/")[2]]
            if "/queries/" not in path:
                self._answer(200, job)
                return
            job["status"]["state"] = "DONE"
            done = {"jobReference": job["jobReference"], "jobComplete": True, "totalRows": "600"}
            self._answer(200, {**done, "schema": {"fields": []}})

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, status: int, content: dict) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield bigquery.Client(
            project="my-project",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": f"http://127.0.0.1:{server.server_port}"},
        )
    finally:
        server.shutdown()
        server.server_close()
