"""Drift is found in records and requests that have changed, not in another sample of the same."""

import dataclasses
import re

import numpy as np
import pytest

from pipelines import request_drift
from tests import tables
from tests.refusals import refused
from trainer.data.schema import Dataset, Feature, Split
from trainer.evaluation import drift
from trainer.serving import request_log

POINTS = (np.arange(100) + 0.5) / 100


def sample(generator, rows):
    """Draw what dataset.json would have of a table of four columns."""
    fares = generator.lognormal(size=rows)
    quantiles = np.quantile(fares, POINTS, method="inverted_cdf").tolist()

    def count(shares):
        counts = generator.multinomial(rows, shares).tolist()
        return {"counts": {str(value): count for value, count in enumerate(counts) if count}}

    columns = [
        ("fare", "numeric", {"quantiles": quantiles}),
        ("payment", "vocabulary", count([0.5, 0.3, 0.2])),
        ("hour", "identity", count([1 / 24] * 24)),
        ("company", "vocabulary", count([1 / 500] * 500)),
    ]
    features = [
        Feature(name=name, kind=kind, dtype="", statistics={**values, "missing": {"train": 0.0}})
        for name, kind, values in columns
    ]
    split = Split(shards=[], class_counts=generator.multinomial(rows, [0.7, 0.3]).tolist())
    common = {"uri": "", "name": "sample", "rejected": {}, "creation": {}}
    return Dataset(**common, features=features, classes=["no", "yes"], splits={"train": split})


@pytest.mark.parametrize(
    ("before", "now"),
    [
        *((1_000, now) for now in (5, 20, 100, 1_000)),
        *(pytest.param(100_000, now, marks=pytest.mark.slow) for now in (5, 1_000)),
    ],
)
def test_another_sample_has_not_drifted(before, now):
    generator = np.random.default_rng([before, now])
    alarms = 0
    for _ in range(60):
        measured = drift.measure(sample(generator, before), sample(generator, now)).columns
        alarms += bool(drift.format_drifts(measured, 0))
    # Of 1% per comparison, 5 of 60 are one in 4,000.
    assert alarms < 5


def test_few_rows_of_many_categories_have_not_drifted():
    generator = np.random.default_rng(0)
    before, now = sample(generator, 10_000), sample(generator, 3)
    rare = {str(number): 20 for number in range(49)}
    before.features[1].statistics["counts"] = {"common": 9020, **rare}
    now.features[1].statistics["counts"] = {"common": 3}
    assert not drift.format_drifts(drift.measure(before, now).columns)


@pytest.mark.parametrize("order", [1, -1], ids=["gone", "new"])
def test_numbers_that_are_all_missing_on_one_side_have_drifted(order):
    generator = np.random.default_rng(0)
    before, now = (sample(generator, 3000) for _ in range(2))
    now.features[0].statistics.update(quantiles=[], missing={"train": 1.0})
    first, *_ = drift.measure(*(before, now)[::order]).columns
    assert first.name == "fare" and first.is_drift
    assert first.missing == (0, 1)[::order]


@pytest.mark.parametrize("share", [0.004, 0.005, 0.3])
def test_another_sample_of_mostly_zeros_has_not_drifted(share):
    generator = np.random.default_rng(0)

    def draw(rows):
        values = generator.lognormal(size=rows) * (generator.random(rows) < share)
        quantiles = np.quantile(values, POINTS, method="inverted_cdf").tolist()
        return [
            Feature(name="tolls", kind="numeric", dtype="", statistics={"quantiles": quantiles})
        ]

    for _ in range(50):
        before = sample(generator, 12_000)
        before.features[:] = draw(12_000)
        (measured,) = drift.measure_columns(before, draw(1000), 1000).columns
        assert not measured.is_drift
        assert 0 <= measured.distance < 0.1


def test_dates_as_numbers_drift():
    generator = np.random.default_rng(0)
    before, now = sample(generator, 1000), sample(generator, 1000)
    before.features[0].statistics["quantiles"] = np.floor(20240101 + 30 * POINTS).tolist()
    now.features[0].statistics["quantiles"] = np.floor(20240111 + 20 * POINTS).tolist()
    (dates,) = (column for column in drift.measure(before, now).columns if column.is_drift)
    assert "to 20240104" in dates.bins


def test_index_and_distance_follow_their_formulas():
    generator = np.random.default_rng(0)
    before, now = sample(generator, 1000), sample(generator, 1000)
    before.features[1].statistics["counts"] = {"a": 500, "b": 300, "c": 200}
    now.features[1].statistics["counts"] = {"a": 300, "b": 300, "c": 400}
    payment = {column.name: column for column in drift.measure(before, now).columns}["payment"]
    assert payment.index == pytest.approx(-0.2 * np.log(0.6) + 0.2 * np.log(2))
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.3, 0.4])
    divergence = sum((share * np.log2(share / ((p + q) / 2))).sum() / 2 for share in (p, q))
    assert payment.distance == pytest.approx(np.sqrt(divergence))


def test_records_of_a_table_hold_what_drift_is_measured_by(tmp_path):
    def write(name, rows):
        return tables.write(tables.write_csv(tmp_path / f"{name}.csv", rows), tmp_path / name)

    rows = tables.lines(3000, seed=2)
    before = write("before", tables.lines(3000, seed=1))
    drifts, not_compared = drift.measure(before, write("same", rows))
    assert {column.name for column in drifts} == {"label", *NAMES} and not not_compared
    assert not drift.format_drifts(drifts)
    parts = [line.partition(",") for line in rows]
    longer = write("longer", [f"{float(miles or 0) + 5},{rest}" for miles, _, rest in parts])
    first, *_ = drifts = drift.measure(before, longer).columns
    assert first.name == "miles" and drift.format_drifts(drifts).startswith("miles ")
    # Every missing value has become a number.
    assert first.missing == (pytest.approx(0.1, abs=0.02), 0)


def test_columns_that_cant_be_compared_are_named_with_the_reason():
    generator = np.random.default_rng(0)
    before, now = (sample(generator, 1000) for _ in range(2))
    fare, payment, hour, company = before.features
    image = Feature(name="image", kind="image", dtype="uint8")
    zone = Feature(name="zone", kind="hashed", dtype="string", statistics={"missing": {}})
    others = [dataclasses.replace(hour, kind="hashed"), dataclasses.replace(company, name="firm")]
    now.features[:] = [fare, payment, *others, image, zone]
    before.features[:] = [fare, payment, hour, company, image, zone]
    drifts = drift.measure(before, now)
    assert {column.name for column in drifts.columns} == {"label", "fare", "payment"}
    assert drifts.format_not_compared() == (
        "not compared: hour (was identity, is hashed), company (only in the earlier data), image "
        "(pixels have no statistics), zone (the records have no counts of a hashed "
        "column), firm (only in the later data)"
    )


def test_value_beyond_the_size_of_a_vocabulary_is_not_counted_as_gone():
    generator = np.random.default_rng(0)
    before, now = (sample(generator, 1000) for _ in range(2))
    before.features[1].statistics["counts"] = {"a": 500, "b": 300, "c": 101}
    now.features[1].statistics["counts"] = {"a": 500, "b": 300, "d": 101}
    payment = {column.name: column for column in drift.measure(before, now).columns}["payment"]
    assert payment.index == 0
    assert list(payment.bins) == ["a", "b", drift.OTHER]


@pytest.mark.parametrize("threshold", [0.05, 0.2])
def test_number_of_needed_rows_is_that_from_which_chance_is_below_the_threshold(threshold):
    generator = np.random.default_rng(1)
    before = sample(generator, 100_000)
    few = {column.name: column for column in drift.measure(before, sample(generator, 20)).columns}
    for name in ("label", "fare", "hour"):
        needed = few[name].count_needed_rows(threshold)
        again = drift.measure(before, sample(generator, needed)).columns
        noise = next(column.noise for column in again if column.name == name)
        assert noise == pytest.approx(threshold, rel=0.2)


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


def without_seven(text):
    return "8" if text == "7" else text


def test_requests_like_the_training_data_show_no_drift(row_records):
    alarms = 0
    for seed in range(1, 61):
        (drifts, not_compared), rows = request_drift.measure(row_records, asked(300, seed))
        assert rows == 300
        assert {column.name for column in drifts} == {*NAMES} and not not_compared
        alarms += bool(drift.format_drifts(drifts, 0))
    assert alarms < 5


def rounded(text):
    return text and f"{float(text):.1f}"


def test_rounded_numbers_show_no_drift(tmp_path):
    parts = [line.partition(",") for line in tables.lines(2000, seed=1)]
    table = [f"{rounded(miles)},{rest}" for miles, _, rest in parts]
    written = tables.write(tables.write_csv(tmp_path / "trips.csv", table), tmp_path / "records")
    drifts, _ = request_drift.measure(written, asked(2000, 1, miles=rounded))
    assert drift.format_drifts(drifts.columns) == ""


@pytest.mark.parametrize(
    ("column", "change"),
    [("miles", doubled), ("payment", without_vouchers), ("Zone Id", without_seven)],
)
def test_doubled_numbers_and_a_lost_category_are_drift(row_records, column, change):
    (drifts, _), _ = request_drift.measure(row_records, asked(1000, 1, **{column: change}))
    assert [column.name for column in drifts if column.is_drift] == [column]
    missing = 0.1 if column == "miles" else 0
    assert drifts[0].missing == pytest.approx((missing, missing), abs=0.03)


def test_index_equals_that_of_records_of_the_same_rows(row_records, tmp_path):
    parts = [line.partition(",") for line in tables.lines(4000, seed=3)]
    table = [f"{doubled(miles)},{rest}" for miles, _, rest in parts]
    written = tables.write(tables.write_csv(tmp_path / "trips.csv", table), tmp_path / "records")
    compared, _ = drift.measure(row_records, written)
    expected = {column.name: column.index for column in compared}
    (measured, _), _ = request_drift.measure(row_records, asked(4000, 3, miles=doubled))
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
