"""Columns of dates: their forms, the parts that a model gets, requests and drift."""

import datetime
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from pipelines import request_drift
from tests import tables
from tests.refusals import refused
from tests.trainer.data.picture_folders import rejected
from trainer.data.read.input_share import InputShare
from trainer.data.read.reader import read_evaluation_batches
from trainer.data.tables.dates import clean_date
from trainer.data.tables.inputs import Encoder, clean_columns, list_categories, number_count
from trainer.evaluation import drift
from trainer.serving.instances import BadInstancesError
from trainer.serving.row_instances import RowInstances

DESCRIBED = {
    "columns": [{"name": "sold", "type": "date", "missing": ["never"]}],
    "crosses": [],
    "label": {"column": "kind"},
}
FORMS = {
    "2024-02-29": "2024-02-29",
    "2024-02-29T08:30": "2024-02-29T08:30:00",
    "2024-02-29 08:30:59": "2024-02-29T08:30:59",
    "2024-02-29 08:30:59.123456789": "2024-02-29T08:30:59",
    "2024-02-29T23:30:59Z": "2024-02-29T23:30:59",
    "2024-02-29T23:30:59.5+05:30": "2024-02-29T23:30:59",
    "2024-02-29 23:30:59 UTC": "2024-02-29T23:30:59",
    "2024-02-29 23:30:59-08": "2024-02-29T23:30:59",
}
NO_DATES = ("2024-13-01", "2023-02-29", "2024-2-9", "20240229", "2024-02-29T25:00", "7", "May")


def write(folder, days, **changes):
    rows = [f"{day},{'ab'[number % 2]},{number}" for number, day in enumerate(days)]
    table = tables.write_csv(folder / "t.csv", rows, "sold,kind,n")
    return tables.write(table, folder / "out", **{**DESCRIBED, **changes})


def draw_days(count, seed=0, first="1890-01-01"):
    generator, begin = random.Random(seed), datetime.datetime.fromisoformat(first)
    minutes = (generator.randrange(80_000_000) for _ in range(count))
    return [(begin + datetime.timedelta(minutes=one)).isoformat() for one in minutes]


def encode(dataset, texts):
    """Return what a model gets for texts of requests."""
    raw = clean_columns({"sold": tf.constant(texts)}, dataset)
    return {name: value.numpy() for name, value in Encoder(dataset)(raw).items()}


def test_model_gets_the_day_month_weekday_and_hour(tmp_path):
    days = draw_days(1000)
    dataset = write(tmp_path, days)
    assert [one.name for one in list_categories(dataset)] == [
        "sold month", "sold weekday", "sold hour",
    ]  # fmt: skip
    assert number_count(dataset) == 2
    moments = [datetime.datetime.fromisoformat(day) for day in days]
    given = encode(dataset, days)
    expected = [[one.month, one.weekday() + 1, one.hour + 1] for one in moments]
    np.testing.assert_array_equal(given["ids"], expected)
    since = np.array([(one - datetime.datetime(1970, 1, 1)).total_seconds() for one in moments])
    figures = dataset.features[0].statistics
    normalized = (since / 86_400 - figures["mean"]) / figures["deviation"]
    np.testing.assert_allclose(given["numbers"][:, 0], normalized, atol=1e-5)
    missing = encode(dataset, ["", "never", *NO_DATES[:1]])
    np.testing.assert_array_equal(missing["ids"][:2], np.zeros((2, 3)))
    np.testing.assert_array_equal(missing["numbers"][:2], [[0, 1], [0, 1]])
    # Training reads the same from the records.
    batches = read_evaluation_batches(dataset, "test", InputShare(batch_size=64))
    read = np.concatenate([inputs["ids"][weights > 0] for inputs, _, weights in batches])
    stored = [row["sold"].decode() for row in tables.read_rows(dataset, "test")]
    assert sorted(read.tolist()) == sorted(encode(dataset, stored)["ids"].tolist())


def test_files_and_requests_have_the_same_forms(tmp_path):
    given = [*FORMS, *NO_DATES, "", "never"] * 40
    dataset = write(tmp_path, given, max_rejected_fraction=0.9)
    stored = {row.get("sold", b"").decode() for row in tables.read_rows(dataset)}
    assert stored == {*FORMS.values(), ""}
    reasons = rejected(tmp_path / "out")
    assert len(reasons) == 40 * len(NO_DATES)
    assert reasons["t.csv:10"] == "sold is not a date: '2024-13-01'"
    for text, cleaned in FORMS.items():
        assert clean_date(text) == cleaned
        in_graph = clean_columns({"sold": tf.constant([f" {text} "])}, dataset)["sold"].numpy()
        assert in_graph[0].decode() == cleaned
    parser = RowInstances({"sold": "string"}, dataset.features[:1])
    (part,) = parser.parse([{"sold": text} for text in [*FORMS, None, "never", ""]]).parts
    assert [one.decode() for one in part.inputs["sold"]] == [*FORMS.values(), "", "", ""]
    for text in NO_DATES:
        with pytest.raises(BadInstancesError, match="sold is not a date, such as 2024-03-01: "):
            parser.parse([{"sold": text}])


@pytest.mark.parametrize(
    "form", [pa.date32(), pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.string()]
)
def test_dates_of_parquet_are_read(tmp_path, form):
    days = [datetime.datetime(2024, 1 + n % 12, 1 + n % 28) for n in range(200)]
    values = [str(day.date()) for day in days] if form == pa.string() else days
    kinds = ["ab"[n % 2] for n in range(200)]
    table = pa.table({"sold": pa.array(values, form), "kind": kinds, "n": range(200)})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    options = {"source": f"parquet:{tmp_path / 't.parquet'}", **DESCRIBED}
    dataset = tables.write(tmp_path, tmp_path / "out", **options)
    stored = {row["sold"].decode()[:10] for row in tables.read_rows(dataset)}
    assert stored == {str(day.date()) for day in days}


def test_drift_of_dates_names_days(tmp_path):
    earlier = write(tmp_path / "a", draw_days(2000, first="2000-01-01"))
    later = write(tmp_path / "b", draw_days(2000, first="2100-01-01"))
    (found,) = [one for one in drift.measure(earlier, later).columns if one.name == "sold"]
    assert found.exceeds(0.25)
    assert next(iter(found.bins)).startswith("to 20")
    rows = [{"sold": day} for day in draw_days(2000, seed=1, first="2000-01-01")]
    same, count = request_drift.measure(earlier, rows)
    assert count == 2000 and not same.columns[0].exceeds(0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": [{"name": "sold", "type": "date", "log": True}]}, "takes no 'log'"),
        ({"crosses": [{"columns": ["sold", "n"]}]}, "'sold' is a date, which has no categories"),
    ],
)
def test_unusable_dates_are_refused(tmp_path, changes, message):
    columns = [*DESCRIBED["columns"], {"name": "n", "type": "hashed", "buckets": 10}]
    options = {"columns": columns, **changes}
    assert message in refused(write, tmp_path, draw_days(10), **options)


@pytest.mark.slow
def test_time_of_day_is_learned(tmp_path):
    """The kind depends on the hour and the month alone, which the day as a number hides."""
    from tests.trainer.training_runs import train_and_evaluate

    days = draw_days(3000)
    moments = [datetime.datetime.fromisoformat(day) for day in days]
    kinds = ["ab"[9 <= one.hour < 17 and one.month < 7] for one in moments]
    rows = [f"{day},{kind}" for day, kind in zip(days, kinds, strict=True)]
    table = tables.write_csv(tmp_path / "t.csv", rows, "sold,kind")
    dataset = tables.write(table, tmp_path / "records", **DESCRIBED)
    options = {"model": "wide_and_deep", "batch_size": 32, "learning_rate": 0.01, "epochs": 8}
    assert train_and_evaluate(dataset, tmp_path, **options).headline[1] > 0.95
