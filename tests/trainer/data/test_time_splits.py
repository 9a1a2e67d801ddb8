"""Tables that are split by time."""

import datetime
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.refusals import refused
from tests.tables import read_rows, write, write_csv
from tests.trainer.data.picture_folders import content, rejected
from trainer.data.tables import statistics
from trainer.data.tables.dates import DateForm
from trainer.data.tables.splits import find_starts, merge_samples, parse_times
from trainer.evaluation import split_drift

DESCRIBED = {
    "columns": [{"name": "a", "type": "numeric"}],
    "crosses": [],
    "label": {"column": "kind"},
    "split_by": {"time": "day"},
}
DAYS = [str(datetime.date(2023, 1, 1) + datetime.timedelta(days=n)) for n in range(400)]


def lines(days, seed=0):
    made = [f"{n},{'xy'[n % 2]},{day}" for n, day in enumerate(days)]
    random.Random(seed).shuffle(made)
    return made


def times_of(dataset, split):
    """Return the days of a split's rows; each is that of its number in column a."""
    return sorted(DAYS[int(row["a"])] for row in read_rows(dataset, split))


def test_newest_rows_are_the_test_split(tmp_path, capsys):
    table = write_csv(tmp_path / "t.csv", lines(DAYS), "a,kind,day")
    dataset = write(table, tmp_path / "out", **DESCRIBED)
    for split, days in (("train", DAYS[:320]), ("validation", DAYS[320:360]), ("test", DAYS[360:])):
        assert times_of(dataset, split) == days
    assert dataset.creation["split_starts"] == {"validation": DAYS[320], "test": DAYS[360]}
    said = f"splits by day: validation from {DAYS[320]}, test from {DAYS[360]}"
    assert said in capsys.readouterr().out
    # Statistics are those of the training split.
    assert dataset.features[0].statistics["quantiles"][-1] < 320
    two = [tmp_path / "parts" / name for name in ("1.csv", "2.csv")]
    two[0].parent.mkdir()
    shuffled = lines(DAYS, seed=1)
    for path, part in zip(two, (shuffled[:50], shuffled[50:]), strict=True):
        write_csv(path, part, "a,kind,day")
    same = write(two[0].parent, tmp_path / "parts-out", **DESCRIBED)
    assert times_of(same, "test") == DAYS[360:]


@pytest.mark.parametrize("given", ["split_by", "column"])
def test_times_are_read_in_their_format(tmp_path, given):
    days = [datetime.date.fromisoformat(day).strftime("%d/%m/%Y") for day in DAYS]
    table = write_csv(tmp_path / "t.csv", lines(days), "a,kind,day")
    format = {"format": "%d/%m/%Y"}
    column = {"name": "day", "type": "date", **format}
    options = {**DESCRIBED, "columns": [*DESCRIBED["columns"], column]}
    if given == "split_by":
        options = {**DESCRIBED, "split_by": {"time": "day", **format}}
    dataset = write(table, tmp_path / "out", **options)
    assert times_of(dataset, "test") == DAYS[360:]


@pytest.mark.parametrize(
    "form",
    [
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("ns", "Europe/Zurich"),
        pa.float64(),
        "%Y-%m-%d %H:%M",
        "%Y-%m-%dT%H:%M:%S+02:00",
    ],
)
def test_times_have_many_forms(tmp_path, form):
    moments = [datetime.datetime.fromisoformat(day) for day in DAYS]
    if isinstance(form, str):
        days = pa.array([moment.strftime(form) for moment in moments])
    elif pa.types.is_floating(form):
        days = pa.array([moment.timestamp() for moment in moments])
    else:
        days = pa.array(moments).cast(pa.timestamp("us")).cast(form)
    table = pa.table({"a": range(400), "kind": ["x", "y"] * 200, "day": days})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    source = {"source": f"parquet:{tmp_path / 't.parquet'}"}
    dataset = write(tmp_path, tmp_path / "out", **DESCRIBED, **source)
    assert times_of(dataset, "test") == DAYS[360:]


def test_rows_of_one_time_are_in_one_split(tmp_path):
    years = [2019] * 230 + [2020] * 100 + [2021] * 30 + [2022] * 40
    table = write_csv(tmp_path / "t.csv", lines(years), "a,kind,day")
    dataset = write(table, tmp_path / "out", **DESCRIBED)
    assert dataset.creation["split_starts"] == {"validation": "2021", "test": "2022"}
    assert [split.examples for split in dataset.splits.values()] == [330, 30, 40]
    fractions = {"split_fractions": [0.8, 0, 0.2]}
    dataset = write(table, tmp_path / "two", **DESCRIBED, **fractions)
    assert dataset.creation["split_starts"] == {"validation": "2021", "test": "2021"}
    assert [split.examples for split in dataset.splits.values()] == [330, 0, 70]


def test_rows_without_a_time_are_rejected(tmp_path):
    made = [*lines(DAYS), "1,x,", "2,x,soon", "3,y,2023-02-30"]
    table = write_csv(tmp_path / "t.csv", made, "a,kind,day")
    dataset = write(table, tmp_path / "out", **DESCRIBED)
    assert rejected(Path(dataset.uri)) == {
        "t.csv:402": "no time, day is missing",
        "t.csv:403": "day is not a time: 'soon'",
        "t.csv:404": "day is not a time: '2023-02-30'",
    }


def test_sample_of_a_large_table_is_the_same_in_any_order(monkeypatch):
    monkeypatch.setattr(statistics, "SAMPLE", 2000)
    generator = np.random.default_rng(0)
    hashes = generator.integers(0, 2**63, 50_000).astype(np.uint64)
    texts = np.array([str(n) for n in range(50_000)], object)
    found = set()
    for parts in (1, 7):
        samples = []
        for part in np.array_split(generator.permutation(50_000), parts):
            samples.append(statistics.Sample(object))
            samples[-1].add(hashes[part], texts[part])
        found.add(find_starts(merge_samples(samples), "day", [0.8, 0.1, 0.1], DateForm()))
    ((validation, test),) = found
    assert abs(int(validation) - 40_000) < 1500 and abs(int(test) - 45_000) < 1500


@pytest.mark.parametrize(
    ("days", "message"),
    [
        (["soon"] * 100, "no row has a time in 'day'; use a column of dates, such as 2024-03-01"),
        (["2023-01-01"] * 100, "'day' has only 1 different times, fewer than there are splits"),
        (["2022", "2023"] * 50, "'day' has only 2 different times, fewer than there are splits"),
    ],
)
def test_table_that_time_can_not_split_is_refused(tmp_path, days, message):
    table = write_csv(tmp_path / "t.csv", lines(days), "a,kind,day")
    assert message in refused(write, table, tmp_path / "out", **DESCRIBED)
    assert content(tmp_path / "out") == {}


@pytest.mark.parametrize(
    ("split_by", "message"),
    [
        ({"time": "dya"}, "has no column 'dya'; did you mean 'day'?"),
        ({"time": "day", "group": "a"}, "must name a column of groups"),
        ({"time": "kind"}, "names a column of the label"),
    ],
)
def test_wrong_column_of_times_is_refused(tmp_path, split_by, message):
    table = write_csv(tmp_path / "t.csv", lines(DAYS), "a,kind,day")
    assert message in refused(write, table, tmp_path / "out", **{**DESCRIBED, "split_by": split_by})


def test_offset_counts():
    times = parse_times(
        ["2024-03-01T00:30:00+01:00", "2024-02-29T23:30:00Z", "2024-02-29 23:30"], DateForm()
    )
    assert len(set(times.tolist())) == 1


def test_drift_from_the_training_split_to_the_test_split_is_measured(tmp_path):
    generator = random.Random(0)

    def make(day, late):
        shop = generator.choice("AB" if late else "AC")
        size = generator.gauss(5 if late else 0, 1)
        return f"{size:.3f},{generator.gauss(0, 1):.3f},{shop},{'xy'[late]},{DAYS[day]}"

    made = [make(n // 5, n >= 1700) for n in range(2000)]
    table = write_csv(tmp_path / "t.csv", made, "size,same,shop,kind,day")
    columns = [{"name": name, "type": "numeric"} for name in ("size", "same")]
    columns += [{"name": "shop", "type": "vocabulary"}, {"name": "day", "type": "date"}]
    dataset = write(table, tmp_path / "out", **{**DESCRIBED, "columns": columns})
    drifts = split_drift.measure(dataset)
    moved = {one.name for one in drifts.columns if one.is_drift}
    assert moved == {"size", "shop", "day", "label"} and not drifts.not_compared
    plain = {**DESCRIBED, "columns": columns, "split_by": {}}
    assert split_drift.measure(write(table, tmp_path / "random", **plain)) is None
