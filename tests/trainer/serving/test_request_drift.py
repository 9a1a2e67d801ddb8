"""Test request logs, and their drift from the records of the served model."""

import re

import pytest

from pipelines import request_drift
from tests import tables
from tests.refusals import refused
from trainer.evaluation import drift
from trainer.serving import request_log

HEADER = tables.HEADER.split(",")
NAMES = [column["name"] for column in tables.COLUMNS]


def asked(count, seed, **changes):
    """Return rows as clients send them: values by column, None where missing."""
    rows = [dict(zip(HEADER, line.split(","), strict=True)) for line in tables.lines(count, seed)]
    return [{name: changes.get(name, str)(row[name]) or None for name in NAMES} for row in rows]


def doubled(text):
    return text and str(2 * float(text))


def without_vouchers(text):
    return "cash" if text == "voucher" else text


def test_requests_like_the_training_data_show_no_drift(row_records):
    alarms = 0
    for seed in range(1, 101):
        drifts, rows = request_drift.measure(row_records, asked(300, seed))
        assert rows == 300
        assert {column.name for column in drifts} == {"miles", "hour", "payment", "company"}
        alarms += bool(drift.format_drifts(drifts))
    assert alarms <= 5


def rounded(text):
    return text and f"{float(text):.1f}"


def test_rounded_numbers_show_no_drift(tmp_path):
    parts = [line.partition(",") for line in tables.lines(2000, seed=1)]
    table = [f"{rounded(miles)},{rest}" for miles, _, rest in parts]
    written = tables.write(tables.write_csv(tmp_path / "trips.csv", table), tmp_path / "records")
    drifts, _ = request_drift.measure(written, asked(2000, 1, miles=rounded))
    assert drift.format_drifts(drifts) == ""


@pytest.mark.parametrize(("column", "change"), [("miles", doubled), ("payment", without_vouchers)])
def test_doubled_numbers_and_a_lost_category_are_drift(row_records, column, change):
    drifts, _ = request_drift.measure(row_records, asked(1000, 1, **{column: change}))
    assert [column.name for column in drifts if column.is_drift] == [column]
    missing = 0.1 if column == "miles" else 0
    assert drifts[0].missing == pytest.approx((missing, missing), abs=0.03)


def test_index_equals_that_of_records_of_the_same_rows(row_records, tmp_path):
    parts = [line.partition(",") for line in tables.lines(4000, seed=3)]
    table = [f"{doubled(miles)},{rest}" for miles, _, rest in parts]
    written = tables.write(tables.write_csv(tmp_path / "trips.csv", table), tmp_path / "records")
    expected = {column.name: column.index for column in drift.measure(row_records, written)}
    measured, _ = request_drift.measure(row_records, asked(4000, 3, miles=doubled))
    assert measured[0].name == "miles" and measured[0].index > 0.2
    for column in measured:
        # A tenth of the records is in the other splits.
        assert column.index == pytest.approx(expected[column.name], rel=0.1, abs=0.01)


def test_unusable_log_is_one_line(row_records, tmp_path):
    assert "the log has no rows yet" in refused(request_drift.measure, row_records, [])
    error = refused(request_drift.measure, row_records, [{"pixels": 1}])
    assert "requests to another model: 1 of 1 instances can't be" in error
    (tmp_path / "log").write_text('{"time": 1}\n')
    for name, words in (("none", "No such file"), ("log", "log:1 is not a line of a request log")):
        assert re.search(words, refused(list, request_log.read(str(tmp_path / name))))


def test_log_is_bounded_and_private(tmp_path, monkeypatch):
    monkeypatch.setattr(request_log, "_BYTES", 10_000)
    path = tmp_path / "requests.jsonl"
    append = request_log.open_log(str(path))
    for number in range(2000):
        append([{"number": number, "none": None}])
    files = sorted(tmp_path.iterdir())
    assert [file.name.removeprefix("requests.jsonl") for file in files] == ["", ".1", ".2", ".3"]
    assert all(file.stat().st_size <= 10_000 for file in files)
    assert path.stat().st_mode & 0o077 == 0
    append([{"number": 2000}, {"number": 2001}])
    numbers = [row["number"] for row in request_log.read(str(path))]
    assert numbers == list(range(numbers[0], 2002)) and len(numbers) > 300
    with path.open("a") as half:
        half.write('{"time": "20')
    assert len(list(request_log.read(str(path)))) == len(numbers)
