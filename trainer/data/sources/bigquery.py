"""bigquery:PROJECT.DATASET.TABLE or bigquery:SELECT ...: rows from BigQuery's Storage Read API.

A query runs as a job when the step begins, and its temporary table is read. Rows are read once and
never exported. They have no order: a row's key is `table:number`, or `query:number`, with a number
computed from its content. So neither the order nor the number of streams changes the records.
"""

from __future__ import annotations

import functools
import math
import os
import re
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from trainer.data.source import BilledBytes
from trainer.data.source_options import SourceOptions
from trainer.data.tables.columns import TableSchema
from trainer.data.tables.schema_parser import parse_schema
from trainer.data.tables.table_source import TableKind, check_header
from vertex.errors import InputError, google_errors_as_input
from vertex.formats import size

if TYPE_CHECKING:
    from trainer.data.tables.rows import Block

STREAMS = 32
"""Streams of a session: Dataflow's workers read them in parallel, a single machine in turn."""

_TABLE = re.compile(r"([a-z][a-z0-9.:-]+)\.(\w+)\.([\w$-]+)")
_QUERY = re.compile(r"\s*(SELECT|WITH)\b[^;]+;?\s*", re.IGNORECASE)
"""A single statement that only reads: a script has no temporary table."""
_VIEW_REMEDY = "to read a view, give a query, bigquery:SELECT * FROM ..."
_REMEDY = (
    "check that the BigQuery Storage API is enabled, and that the run's account has "
    "roles/bigquery.dataViewer and roles/bigquery.readSessionUser; "
    f"{_VIEW_REMEDY}"
)
_QUERY_REMEDY = (
    "correct the query, or raise query_gigabytes; the run's account also needs "
    "roles/bigquery.jobUser; write a result of more than 10 GB to a table, and give that as the "
    "source"
)


class BigQueryReader(TableKind):
    """A table of BigQuery, or the result of a query."""

    place = "PROJECT.DATASET.TABLE or bigquery:SELECT ..."
    help = "a table of BigQuery or the result of a single query without ';'"
    location = ""
    own_options = ("query_gigabytes",)
    billed = (
        "BigQuery (what a query scans, or a whole table, in each run: it can't be known whether a "
        "table has changed)"
    )

    def __init__(self, place: str, schema: TableSchema, gigabytes: float = 0.0) -> None:
        import pyarrow as pa

        is_query = bool(_QUERY.fullmatch(place))
        table = _run_query(place, gigabytes) if is_query else place
        owner, dataset, name = table.rsplit(".", 2)
        self.name = "query" if is_query else name
        self.details = {"query" if is_query else "table": place}
        self._place = f"projects/{owner}/datasets/{dataset}/tables/{name}"
        with google_errors_as_input(f"{self._place} can't be read", _REMEDY):
            session = open_client().create_read_session(
                parent=f"projects/{_find_project() or owner}",
                read_session={"table": self._place, "data_format": "ARROW"},
                max_stream_count=STREAMS,
            )
        self._streams = [stream.name for stream in session.streams]
        self.names = [self.name] * len(self._streams)
        self._schema = pa.ipc.read_schema(pa.py_buffer(session.arrow_schema.serialized_schema))
        check_header("the query" if is_query else place, self._schema.names, schema.needed)

    @classmethod
    def takes(cls, place: str) -> bool:
        return bool(_TABLE.fullmatch(place) or _QUERY.fullmatch(place))

    @classmethod
    def open(cls, place: str, options: SourceOptions) -> BigQueryReader:
        return cls(place, parse_schema(options), options.query_gigabytes)

    @classmethod
    def list_needs(cls, place: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        apis: tuple[str, ...] = ("bigquerystorage.googleapis.com",)
        roles: tuple[tuple[str, str], ...] = (
            ("roles/bigquery.readSessionUser", "bigquery.readsessions.create"),
        )
        if _QUERY.fullmatch(place):
            apis += ("bigquery.googleapis.com",)
            roles += (("roles/bigquery.jobUser", "bigquery.jobs.create"),)
        return apis, roles

    @classmethod
    def measure(
        cls, place: str, options: SourceOptions, project: str, call: Callable[..., Any]
    ) -> BilledBytes:
        if _QUERY.fullmatch(place):
            # A result in the cache would count as 0 bytes, for about a day.
            body = {"query": place, "useLegacySql": False, "useQueryCache": False, "dryRun": True}
            path = f"bigquery/v2/projects/{_require(project)}/queries"
            scanned = int(call("bigquery", "POST", path, body)["totalBytesProcessed"])
            if 0 < options.query_gigabytes * 1e9 < scanned:
                raise InputError(
                    f"the query scans {size(scanned)}, more than query_gigabytes="
                    f"{options.query_gigabytes:g}; select fewer columns or partitions, or raise it"
                )
            return BilledBytes(scanned, "bigquery-query")
        owner, dataset, name = place.rsplit(".", 2)
        path = f"bigquery/v2/projects/{owner}/datasets/{dataset}/tables/{name}"
        table = call("bigquery", "GET", path)
        if "VIEW" in table.get("type", ""):
            raise InputError(f"{place} is a view; {_VIEW_REMEDY}")
        passes = 2 if options.split_by.get("time") else 1
        return BilledBytes(passes * int(table["numBytes"]), "bigquery-read")

    @classmethod
    def version(cls, place: str, data_dir: str) -> tuple[str, str]:
        # There is no way to tell whether a table has changed, so its records are always written.
        return secrets.token_hex(16), ""

    def blocks(self, file: int) -> Iterator[Block]:
        import pyarrow as pa

        from trainer.data.tables.batches import ArrowBlock

        with google_errors_as_input(f"{self._place} can't be read", _REMEDY):
            for response in open_client().read_rows(self._streams[file]):
                content = pa.py_buffer(response.arrow_record_batch.serialized_record_batch)
                yield ArrowBlock(file, 0, pa.ipc.read_record_batch(content, self._schema))


def open_client() -> Any:
    """Return a client that uses the account of this process."""
    from google.cloud import bigquery_storage_v1

    return bigquery_storage_v1.BigQueryReadClient()


def open_query_client(project: str) -> Any:
    """Return a client that runs queries in a project, with the account of this process."""
    from google.cloud import bigquery

    return bigquery.Client(project=project)


def _find_project() -> str:
    """Return this process's project from variables that Vertex AI or gcloud sets, or ""."""
    names = ("CLOUD_ML_PROJECT_ID", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
    return next(filter(None, map(os.environ.get, names)), "")


def _require(project: str) -> str:
    if not project:
        raise InputError("source=bigquery:SELECT ... has no project; set GOOGLE_CLOUD_PROJECT")
    return project


@functools.cache
def _run_query(query: str, gigabytes: float) -> str:
    """Run a query once; return its temporary table as PROJECT.DATASET.TABLE.

    A query that would scan more than `gigabytes` fails, unbilled; 0: no limit.
    """
    from google.cloud.bigquery import QueryJobConfig

    project = _require(_find_project())
    with google_errors_as_input("source: the query failed", _QUERY_REMEDY):
        most = math.ceil(gigabytes * 1e9) or None
        job = open_query_client(project).query(query, QueryJobConfig(maximum_bytes_billed=most))
        job.result(max_results=0)
    return f"{job.destination.project}.{job.destination.dataset_id}.{job.destination.table_id}"
