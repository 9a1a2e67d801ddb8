"""Parquet files and tables of BigQuery become the records that a CSV file becomes."""

import decimal
import re

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from tests import tables
from tests.refusals import refused
from tests.tables import read_rows, values
from tests.trainer.data.bigquery_service import running_queries, serving
from tests.trainer.data.picture_folders import content, rejected
from trainer.data.schema import Dataset
from trainer.data.tables import rows as table_rows
from trainer.data.tables.columns import AUTO

ROWS = 600
TRIPS = "bigquery:my-project.taxi.trips"
PLACE = "projects/my-project/datasets/taxi/tables/trips"


def write(source: str, output, **changes) -> Dataset:
    return tables.write("", output, source=source, **changes)


def write_parquet(path, table: pa.Table) -> str:
    """Write a file; return it as a source."""
    path.parent.mkdir(exist_ok=True)
    pa.parquet.write_table(table, path, row_group_size=250)
    return f"parquet:{path}"


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> pa.Table:
    """The trips as Arrow infers them: numbers, text and nulls."""
    path = tables.write_csv(tmp_path_factory.mktemp("typed") / "t.csv", tables.lines(ROWS))
    return pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(strings_can_be_null=True))


@pytest.fixture(scope="module")
def typed(plain) -> pa.Table:
    """The same with text as a dictionary, which BigQuery does not have."""
    place = plain.schema.get_field_index("payment")
    return plain.set_column(place, "payment", plain["payment"].dictionary_encode())


def test_parquet_holds_the_rows_of_a_csv(typed, tmp_path):
    table = tables.write_csv(tmp_path / "t.csv", tables.lines(ROWS))
    written = write(write_parquet(tmp_path / "t.parquet", typed), tmp_path / "out")
    from_csv = tables.write(table, tmp_path / "csv")
    assert values(written) == values(from_csv)
    assert written.classes == from_csv.classes
    keys = {row["key"] for row in read_rows(written)}
    assert keys == {b"t.parquet:%d" % row for row in range(1, ROWS + 1)}


def test_parquet_rows_are_rejected_by_file_and_row(typed, tmp_path, monkeypatch):
    monkeypatch.setattr(table_rows, "BATCH_ROWS", 100)
    broken = typed.to_pylist()
    broken[150]["hour"], broken[151]["tips"], broken[152]["miles"] = 24, None, -1.5
    table = pa.Table.from_pylist(broken, typed.schema)
    write_parquet(tmp_path / "in/a.parquet", table.slice(0, 140))
    write_parquet(tmp_path / "in/b.parquet", table.slice(140))
    written = write(f"parquet:{tmp_path / 'in'}", tmp_path / "out")
    assert rejected(written.uri) == {
        "b.parquet:11": "hour is not a whole number from 0 to 23: '24'",
        "b.parquet:12": "no label, tips is missing",
        "b.parquet:13": "miles is below 0, but has log: '-1.5'",
    }


def test_choice_and_order_of_columns_move_no_row(typed, tmp_path):
    source = write_parquet(tmp_path / "t.parquet", typed)
    backwards = typed.select(typed.schema.names[::-1])
    written = write(source, tmp_path / "out")
    chosen = {"columns": tables.COLUMNS[:2], "crosses": []}
    other = write_parquet(tmp_path / "other/t.parquet", backwards)
    changed = write(other, tmp_path / "few", **chosen)
    for split in written.splits:
        keys = [row["key"] for row in read_rows(written, split)]
        assert keys == [row["key"] for row in read_rows(changed, split)]


def test_columns_of_other_types_may_not_be_used(typed, tmp_path):
    others = {
        "list": pa.array([[1]] * ROWS),
        "hash": pa.array([b"\xff" * 4] * ROWS, pa.binary(4)),
        "large": pa.array([b"\xff"] * ROWS, pa.large_binary()),
    }
    table = typed
    for name, column in others.items():
        table = table.append_column(name, column)
    source = write_parquet(tmp_path / "t.parquet", table)
    assert write(source, tmp_path / "out").creation["accepted"] == ROWS
    for name in others:
        columns = [{"name": name, "type": "vocabulary"}]
        for used in ({"columns": columns, "crosses": []}, {"label": {"column": name}}):
            message = refused(write, source, tmp_path / "none", **used)
            words = f"the table's column '{name}' has the type .*, which is neither numbers nor"
            assert re.search(words, message)


def test_unused_columns_may_have_the_same_name(typed, tmp_path):
    table = typed.append_column("note", [["a"] * ROWS]).append_column("note", [range(ROWS)])
    source = write_parquet(tmp_path / "t.parquet", table)
    assert write(source, tmp_path / "out").creation["accepted"] == ROWS
    label = {"column": "note"}
    assert "column 'note' appears twice in the header; rename one" in refused(
        write, source, tmp_path / "no", label=label
    )


def test_damaged_parquet_file_is_refused(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    message = refused(write, f"parquet:{tmp_path / 't.parquet'}", tmp_path / "out")
    assert "t.parquet can't be read as Parquet (" in message


def test_bigquery_gives_the_same_records_in_any_row_order(typed, plain, tmp_path):
    expected = write(write_parquet(tmp_path / "t.parquet", typed), tmp_path / "parquet")
    with serving({PLACE: plain}):
        written = write(TRIPS, tmp_path / "out")
    assert values(written) == values(expected)
    for split in written.splits:
        assert written.splits[split].examples == expected.splits[split].examples
    assert all(row["key"].startswith(b"trips:") for row in read_rows(written))
    shuffled = plain.take([7 * row % ROWS for row in range(ROWS)])
    ways = [(shuffled, {"batch_rows": 37}), (plain, {"breaks": True})]
    ways += [(plain, {"streams": streams}) for streams in (2, 7)]
    for table, how in ways:
        with serving({PLACE: table}, **how):
            write(TRIPS, tmp_path / "other")
        assert content(tmp_path / "other") == content(tmp_path / "out"), how


def test_missing_table_or_column_of_bigquery_is_refused(plain, tmp_path):
    with serving({PLACE: plain}):
        message = refused(write, "bigquery:my-project.taxi.trip", tmp_path / "out")
        words = r"tables/trip can't be read: 404 Not found: Table .*; check that the BigQuery"
        assert re.search(words, message)
        absent = tables.one_number("mile", column="tips")
        message = refused(write, TRIPS, tmp_path / "out", **absent)
        assert "has no column 'mile'; did you mean 'miles'" in message


@pytest.mark.parametrize(
    "place", ["trips", "DELETE FROM taxi.trips", "SELECT 1; DROP TABLE trips", "SELECT ';'"]
)
def test_anything_but_a_table_or_one_query_is_refused(tmp_path, place):
    words = r"is malformed; use bigquery:PROJECT\.DATASET\.TABLE or .* a single query without ';'"
    assert re.search(words, refused(write, f"bigquery:{place}", tmp_path / "out"))


def test_decimals_of_bigquery_are_the_numbers_that_requests_have(plain, tmp_path):
    decimals = {
        "zone": ([3, 8, None, 0], pa.decimal128(38, 9)),
        "rate": ([decimal.Decimal("2.50"), decimal.Decimal(100), None, 0], pa.decimal256(76, 38)),
        "class": ([0, 1, 1, 0], pa.decimal128(38, 9)),
    }
    table = plain
    for name, (numbers, kind) in decimals.items():
        column = [None if number is None else decimal.Decimal(number) for number in numbers]
        table = table.append_column(name, pa.array(column * (ROWS // 4), kind))
    columns = [
        {"name": "zone", "type": "vocabulary", "values": ["0", "3", "8"]},
        {"name": "rate", "type": "vocabulary"},
    ]
    with serving({PLACE: table}, streams=3):
        written = write(
            TRIPS, tmp_path / "out", columns=columns, crosses=[], label={"column": "class"}
        )
    assert written.classes == ["0", "1"]
    seen = {(row.get("zone"), row.get("rate"), row["label"]) for row in read_rows(written)}
    assert seen == {(b"3", b"2.5", 0), (b"8", b"100", 1), (None, None, 1), (b"0", b"0", 0)}


def test_query_gives_the_rows_of_its_result(plain, tmp_path, monkeypatch):
    query = "with t as (SELECT * FROM `public.taxi.trips`)\nselect * from t where fare > 1"
    broken = plain.to_pylist()
    broken[5]["tips"] = None
    unused = pa.array([(1, 2, 3)] * ROWS, pa.month_day_nano_interval())
    result = pa.Table.from_pylist(broken, plain.schema).append_column("interval", unused)
    monkeypatch.setenv("CLOUD_ML_PROJECT_ID", "my-project")
    with (
        serving({PLACE.replace("trips", "anon1"): result, PLACE: result}, streams=3),
        running_queries({query: "anon1"}),
    ):
        made = write(f"bigquery:{query}", tmp_path / "out")
        message = refused(write, "bigquery:SELECT FROM", tmp_path / "none")
        table = write(TRIPS, tmp_path / "table")
    assert re.search("the query failed: 400 Syntax error: .*; correct", message)
    assert values(made) == values(table)
    assert made.creation["accepted"] == ROWS - 1
    ((key, reason),) = rejected(made.uri).items()
    assert (key.partition(":")[0], reason) == ("query", "no label, tips is missing")
    assert rejected(table.uri) == {key.replace("query", "trips"): reason}


def test_query_is_billed_once_and_up_to_a_limit(plain, tmp_path, monkeypatch):
    query, scanned = "SELECT * FROM taxi.limited", 1_000_000_000_001
    monkeypatch.setenv("CLOUD_ML_PROJECT_ID", "my-project")
    with serving({PLACE: plain}), running_queries({query: "trips"}, scanned=scanned) as jobs:
        message = refused(write, f"bigquery:{query}", tmp_path / "none")
        assert jobs == {}
        # Columns that are chosen by the data need a look at it before it is read.
        written = write(
            f"bigquery:{query}",
            tmp_path / "out",
            columns=AUTO,
            crosses=[],
            query_gigabytes=1000.1,
        )
    assert "exceeded limit for bytes billed; correct the query, or raise query_gigabytes" in message
    assert written.creation["accepted"] == ROWS
    assert len(jobs) == 1


def test_query_without_a_project_is_refused(tmp_path, monkeypatch):
    for name in ("CLOUD_ML_PROJECT_ID", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    message = refused(write, "bigquery:SELECT 1", tmp_path / "out")
    assert "has no project; set GOOGLE_CLOUD_PROJECT" in message
