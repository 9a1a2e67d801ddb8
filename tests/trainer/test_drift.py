"""Drift is told of data that has changed, and not of another sample of the same data."""

import numpy as np
import pytest

from tests import tables
from trainer.data.schema import Dataset, Feature, Split
from trainer.data.write.writer import create_tfrecords
from trainer.evaluation import drift

POINTS = (np.arange(100) + 0.5) / 100


@pytest.fixture
def written(tmp_path):
    def write(name, rows):
        table = tables.write_csv(tmp_path / f"{name}.csv", rows)
        return create_tfrecords(
            tables.options(table), str(tmp_path / name), progress=lambda _: None
        )

    return write


def made(generator, rows, *, scale=1.0, kinds=(0.5, 0.3, 0.2)):
    """Return what dataset.json would have of a table of two columns."""
    fares = generator.lognormal(size=rows) * scale
    quantiles = np.quantile(fares, POINTS, method="inverted_cdf").tolist()
    counts = dict(zip("abc", generator.multinomial(rows, kinds).tolist(), strict=True))
    missing = {"missing": {"train": 0.0}}
    features = [
        Feature(name="fare", kind="numeric", dtype="", statistics={"quantiles": quantiles}),
        Feature(name="payment", kind="vocabulary", dtype="", statistics={"counts": counts}),
    ]
    for feature in features:
        feature.statistics.update(missing)
    classes = generator.multinomial(rows, [0.7, 0.3]).tolist()
    return Dataset(
        uri="",
        name="made",
        features=features,
        classes=["no", "yes"],
        splits={"train": Split(shards=[], class_counts=classes)},
        rejected={},
        creation={},
    )


@pytest.mark.parametrize("rows", [200, 5_000, 50_000])
def test_another_sample_of_the_same_data_has_not_drifted(rows):
    generator = np.random.default_rng(rows)
    alarms = sum(
        any(one.is_drift for one in drift.measure(made(generator, rows), made(generator, rows)))
        for _ in range(100)
    )
    assert alarms <= 5


@pytest.mark.parametrize(
    ("change", "name"),
    [({"scale": 2.0}, "fare"), ({"kinds": (0.7, 0.3, 0.0)}, "payment")],
)
def test_doubled_fares_and_a_payment_type_that_is_gone_are_told(change, name):
    generator = np.random.default_rng(0)
    found = drift.measure(made(generator, 3000), made(generator, 3000, **change))
    assert [one.name for one in found if one.is_drift] == [name]
    assert found[0].index > 0.2 and 0 < found[0].distance < 1


def test_index_and_distance_are_those_of_their_formulas():
    generator = np.random.default_rng(0)
    before, now = made(generator, 1000), made(generator, 1000)
    before.features[1].statistics["counts"] = {"a": 500, "b": 300, "c": 200}
    now.features[1].statistics["counts"] = {"a": 300, "b": 300, "c": 400}
    found = {one.name: one for one in drift.measure(before, now)}["payment"]
    assert found.index == pytest.approx(-0.2 * np.log(0.6) + 0.2 * np.log(2))
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.3, 0.4])
    divergence = sum((one * np.log2(one / ((p + q) / 2))).sum() / 2 for one in (p, q))
    assert found.distance == pytest.approx(np.sqrt(divergence))


def test_a_tables_records_hold_what_drift_is_measured_by(written):
    same = written("same", tables.lines(3000, seed=2))
    before = written("before", tables.lines(3000, seed=1))
    found = drift.measure(before, same)
    assert {one.name for one in found} == {"label", "miles", "hour", "payment", "company"}
    assert not drift.line(found)
    parts = [line.partition(",") for line in tables.lines(3000, seed=2)]
    longer = [f"{float(miles or 0) + 5},{rest}" for miles, _, rest in parts]
    other = drift.measure(before, written("other", longer))
    assert other[0].name == "miles" and drift.line(other).startswith("miles ")
    # Every missing value has become a number.
    assert other[0].missing[0] == pytest.approx(0.1, abs=0.02) and other[0].missing[1] == 0
