"""Parquet files and tables of BigQuery become the records that a CSV file becomes."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from tests import tables
from tests.trainer.data import test_tables
from tests.trainer.data.bigquery_service import running_queries, serving
from tests.trainer.data.folders import content, rejected
from tests.trainer.data.test_tables import examples
from trainer.data.schema import Dataset
from trainer.data.sources import bigquery
from trainer.data.tables import batches
from trainer.errors import InputError

ROWS = 600
PLACE = "projects/my-project/datasets/taxi/tables/trips"


def write(source: str, output: Path, **changes) -> Dataset:
    return test_tables.write("", output, source=source, **changes)


@pytest.fixture(scope="module")
def typed(tmp_path_factory) -> pa.Table:
    """The trips as Arrow infers them: numbers, text as a dictionary, and nulls."""
    path = tables.write_csv(tmp_path_factory.mktemp("typed") / "t.csv", tables.lines(ROWS))
    options = pa.csv.ConvertOptions(strings_can_be_null=True)
    table = pa.csv.read_csv(path, convert_options=options)
    place = table.schema.get_field_index("payment")
    return table.set_column(place, "payment", table["payment"].dictionary_encode())


def values(dataset: Dataset) -> list[list]:
    """All rows but their keys, in an order of their own."""
    found = [one for split in dataset.splits for one in examples(dataset, split)]
    return sorted(sorted((name, one[name]) for name in one if name != "key") for one in found)


def test_parquet_holds_the_rows_of_a_csv(typed, tmp_path):
    pa.parquet.write_table(typed, tmp_path / "t.parquet", row_group_size=250)
    table = tables.write_csv(tmp_path / "t.csv", tables.lines(ROWS))
    written = write(f"parquet:{tmp_path / 't.parquet'}", tmp_path / "out")
    from_csv = write(f"csv:{table}", tmp_path / "csv")
    assert values(written) == values(from_csv)
    assert written.classes == from_csv.classes
    keys = [one["key"] for split in written.splits for one in examples(written, split)]
    assert sorted(keys) == sorted(b"t.parquet:%d" % row for row in range(1, ROWS + 1))


def test_rows_of_parquet_are_rejected_by_file_and_row(typed, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BATCH_ROWS", 100)
    broken = typed.to_pylist()
    broken[150]["hour"], broken[151]["tips"], broken[152]["miles"] = 24, None, -1.5
    (tmp_path / "in").mkdir()
    table = pa.Table.from_pylist(broken, typed.schema)
    pa.parquet.write_table(table.slice(0, 140), tmp_path / "in/a.parquet")
    pa.parquet.write_table(table.slice(140), tmp_path / "in/b.parquet")
    written = write(f"parquet:{tmp_path / 'in'}", tmp_path / "out")
    assert rejected(written.uri) == {
        "b.parquet:11": "hour is not a whole number from 0 to 23: '24'",
        "b.parquet:12": "no label, tips is missing",
        "b.parquet:13": "miles is below 0, and has log: '-1.5'",
    }


def test_neither_choice_nor_order_of_columns_moves_a_row(typed, tmp_path):
    pa.parquet.write_table(typed, tmp_path / "t.parquet")
    backwards = typed.select(typed.schema.names[::-1])
    (tmp_path / "other").mkdir()
    pa.parquet.write_table(backwards, tmp_path / "other/t.parquet")
    written = write(f"parquet:{tmp_path / 't.parquet'}", tmp_path / "out")
    chosen = {"columns": tables.COLUMNS[:2], "crosses": []}
    other = write(f"parquet:{tmp_path / 'other/t.parquet'}", tmp_path / "fewer", **chosen)
    for split in written.splits:
        keys = [one["key"] for one in examples(written, split)]
        assert keys == [one["key"] for one in examples(other, split)]


def test_columns_that_are_neither_numbers_nor_text_may_not_be_used(typed, tmp_path):
    others = {
        "list": pa.array([[1]] * ROWS),
        "hash": pa.array([b"\xff" * 4] * ROWS, pa.binary(4)),
        "large": pa.array([b"\xff"] * ROWS, pa.large_binary()),
    }
    table = typed
    for name, column in others.items():
        table = table.append_column(name, column)
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    source = f"parquet:{tmp_path / 't.parquet'}"
    assert write(source, tmp_path / "out").creation["accepted"] == ROWS
    for name in others:
        columns = [{"name": name, "type": "vocabulary"}]
        for used in ({"columns": columns, "crosses": []}, {"label": {"column": name}}):
            words = f"the table's column '{name}' holds .*, which is neither numbers nor text"
            with pytest.raises(InputError, match=words):
                write(source, tmp_path / "none", **used)


def test_an_interval_of_bigquery_that_is_not_used_does_no_harm(typed, tmp_path, monkeypatch):
    interval = pa.array([(1, 2, 3)] * ROWS, pa.month_day_nano_interval())
    with serving({PLACE: decoded(typed).append_column("interval", interval)}) as client:
        monkeypatch.setattr(bigquery, "open_client", lambda: client)
        written = write("bigquery:my-project.taxi.trips", tmp_path / "out")
    assert written.creation["accepted"] == ROWS


def test_what_is_no_parquet_file_is_one_line(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"t.parquet can't be read as Parquet \("):
        write(f"parquet:{tmp_path / 't.parquet'}", tmp_path / "out")


def decoded(table: pa.Table) -> pa.Table:
    """The trips as BigQuery has them, without dictionaries."""
    place = table.schema.get_field_index("payment")
    return table.set_column(place, "payment", table["payment"].cast(pa.string()))


def test_bigquery_holds_the_same_rows_in_whatever_order(typed, tmp_path, monkeypatch):
    pa.parquet.write_table(typed, tmp_path / "t.parquet")
    expected = write(f"parquet:{tmp_path / 't.parquet'}", tmp_path / "parquet")
    plain = decoded(typed)
    shuffled = plain.take([7 * row % ROWS for row in range(ROWS)])
    ways = [(plain, {}), (shuffled, {"batch_rows": 37}), (plain, {"breaks_at": 1})]
    ways += [(plain, {"streams": streams}) for streams in (2, 7)]
    for number, (table, how) in enumerate(ways):
        with serving({PLACE: table}, **how) as client:
            monkeypatch.setattr(bigquery, "open_client", lambda client=client: client)
            written = write("bigquery:my-project.taxi.trips", tmp_path / f"out{number}")
        if not number:
            assert values(written) == values(expected)
            for split in written.splits:
                assert written.splits[split].examples == expected.splits[split].examples
                assert all(one["key"].startswith(b"trips:") for one in examples(written, split))
        assert content(tmp_path / f"out{number}") == content(tmp_path / "out0")


def test_a_table_of_bigquery_that_is_not_there_is_one_line(typed, tmp_path, monkeypatch):
    with serving({PLACE: typed}) as client:
        monkeypatch.setattr(bigquery, "open_client", lambda: client)
        words = r"tables/trip can't be read: 404 Not found: Table .*; is the BigQuery Storage API"
        with pytest.raises(InputError, match=words):
            write("bigquery:my-project.taxi.trip", tmp_path / "out")
        with pytest.raises(InputError, match="has no column 'mile'; did you mean 'miles'"):
            columns = [{"name": "mile", "type": "numeric"}]
            source = "bigquery:my-project.taxi.trips"
            write(source, tmp_path / "out", columns=columns, crosses=[])
    words = r"does not fit; use bigquery:PROJECT\.DATASET\.TABLE or .* one query without ';'"
    for place in ("trips", "DELETE FROM taxi.trips", "SELECT 1; DROP TABLE trips", "SELECT ';'"):
        with pytest.raises(InputError, match=words):
            write(f"bigquery:{place}", tmp_path / "out")


def test_a_query_gives_the_rows_of_its_temporary_table(typed, tmp_path, monkeypatch):
    query = "with t as (SELECT * FROM `public.taxi.trips`)\nselect * from t where fare > 1"
    broken = typed.to_pylist()
    broken[5]["tips"] = None
    result = decoded(pa.Table.from_pylist(broken, typed.schema))
    monkeypatch.setenv("CLOUD_ML_PROJECT_ID", "my-project")
    with serving({PLACE.replace("trips", "anon1"): result, PLACE: result}, streams=3) as client:
        monkeypatch.setattr(bigquery, "open_client", lambda: client)
        with running_queries({query: "anon1"}) as queries:
            monkeypatch.setattr(bigquery, "open_query_client", lambda project: queries)
            made = write(f"bigquery:{query}", tmp_path / "out")
            with pytest.raises(
                InputError, match=r"the query failed: 400 Syntax error: .*; correct"
            ):
                write("bigquery:SELECT FROM", tmp_path / "none")
        table = write("bigquery:my-project.taxi.trips", tmp_path / "table")
    assert values(made) == values(table)
    ((key, reason),) = rejected(made.uri).items()
    assert (key.partition(":")[0], reason) == ("query", "no label, tips is missing")
    assert rejected(table.uri) == {key.replace("query", "trips"): reason}


def test_a_query_without_a_project_is_one_line(tmp_path, monkeypatch):
    for name in ("CLOUD_ML_PROJECT_ID", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="has no project; set GOOGLE_CLOUD_PROJECT"):
        write("bigquery:SELECT 1", tmp_path / "out")
