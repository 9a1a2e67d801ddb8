"""Rows with unusual texts and numbers are answered as they are evaluated."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pipelines import request_drift
from tests import tables
from tests.trainer.serving.serving_processes import predicted
from trainer.data.schema import Dataset
from trainer.evaluation.scoring import evaluate
from trainer.models import check_model
from trainer.serving.instances import BadInstancesError
from trainer.training.export import export

POSITIVE = ["1.5", "", " 2 ", "+3", "1e2", "nan", "1e-40", "3.4e38", ".5", "7."]
NUMBERS = [*POSITIVE, "-0.0", "-1e9"]
HOURS = ["0", "23", "", "3.0", " 4", "nan"]
NAMES = ["Cash", " Cash", "Cash\t", "Cash\u00a0", "\u3000Cash", "\u2028Cash\x1f", "\u00a0", ""]
NAMES += ["8", "8.0", "8.50", "-3.000", "08", "1.0.0", "1e3", "caf\u00e9", "cafe\u0301", "\u65e5"]
COLUMNS = {
    "plain": (NUMBERS, {"type": "numeric"}),
    "log": (POSITIVE, {"type": "numeric", "log": True, "quantiles": 3}),
    "place": (NUMBERS, {"type": "bucketized", "boundaries": [0, 2, 50]}),
    "hour": (HOURS, {"type": "identity", "buckets": 24, "embedding": 2}),
    "learned": (NAMES, {"type": "vocabulary"}),
    "listed": (NAMES, {"type": "vocabulary", "values": ["8.0", "Cash ", "caf\u00e9"]}),
    "hash": (NAMES, {"type": "hashed", "buckets": 50, "embedding": 3}),
}
CROSSES = [{"columns": ["hour", "learned"]}, {"columns": ["place", "hash"], "buckets": 20}]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    generator = np.random.default_rng(0)
    drawn = {name: generator.choice(values, 600) for name, (values, _) in COLUMNS.items()}
    drawn["kind"] = generator.choice(["a", "b"], 600)
    return [dict(zip(drawn, row, strict=True)) for row in zip(*drawn.values(), strict=True)]


@pytest.fixture(scope="module")
def dataset(rows, tmp_path_factory) -> Dataset:
    folder = tmp_path_factory.mktemp("unusual")
    with (folder / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    columns = [{"name": name, **options} for name, (_, options) in COLUMNS.items()]
    options = {"columns": columns, "crosses": CROSSES, "label": {"column": "kind"}}
    return tables.write(folder / "t.csv", folder / "out", split_fractions=[0.4, 0, 0.6], **options)


@pytest.fixture(scope="module")
def model(dataset, tmp_path_factory) -> str:
    """URI of a model in which every input counts."""
    network = check_model("wide_and_deep", dataset, {"hidden_units": [16]}).build(dataset)
    generator = np.random.default_rng(1)
    for variable in network.trainable_variables:
        variable.assign(generator.normal(0, 0.5, variable.shape))
    folder = str(tmp_path_factory.mktemp("unusual-model"))
    export(network, dataset, folder)
    return folder


@pytest.fixture(scope="module")
def evaluated(rows, dataset, model) -> tuple[list[dict[str, str]], np.ndarray]:
    """The test rows as in the file, and their probabilities."""
    answers = evaluate(model, dataset.uri).answers
    ((_, probabilities),) = answers.blocks()
    lines = [int(key.rpartition(b":")[2]) for batch in answers.key_batches() for key in batch]
    tested = [{name: rows[line - 2][name] for name in COLUMNS} for line in lines]
    assert len(tested) > 300
    return tested, probabilities


def as_json(row: dict[str, str]) -> dict:
    """Return a row as a program sends it, with numbers as such where they are names, too."""
    typed: dict = {}
    for name, text in row.items():
        is_name = COLUMNS[name][0] is NAMES
        try:
            number = float(text) if not is_name or text in ("8", "8.0", "-3.000") else text
        except ValueError:  # The empty text.
            number = None
        typed[name] = None if number != number else number
    return typed


@pytest.mark.parametrize("form", [dict, as_json, lambda row: [*row.values()]])
def test_rows_of_the_file_are_answered_as_evaluated(evaluated, model, form):
    tested, expected = evaluated
    answers = predicted(model, [form(row) for row in tested])
    assert np.abs(answers - expected).max() < 1e-5
    assert expected.std() > 0.1


def test_number_is_the_same_name_with_and_without_zeros(dataset):
    learned, listed = (
        next(feature for feature in dataset.features if feature.name == name).settings["values"]
        for name in ("learned", "listed")
    )
    assert learned[0] == "Cash" and listed == ["8", "Cash", "caf\u00e9"]
    names = {"8", "8.50", "-3", "08", "1.0.0", "1e3", "caf\u00e9", "cafe\u0301", "\u65e5"}
    assert {*learned} == {"Cash", *names}


def test_unusual_texts_of_the_training_rows_are_no_drift(rows, dataset):
    requests = [{name: row[name] for name in COLUMNS} for row in rows]
    (drifts, _), _ = request_drift.measure(dataset, requests)
    assert [drift.name for drift in drifts if drift.is_drift] == []


def test_booleans_of_a_vocabulary_may_be_sent_as_such(tmp_path):
    generator = np.random.default_rng(2)
    flags, numbers = generator.random(300) < 0.5, generator.random(300)
    table = pa.table(
        {"member": flags, "note": ["x"] * 300, "kind": numbers > 0.5, "number": numbers}
    )
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    columns = [{"name": name, "type": "vocabulary"} for name in ("member", "note")]
    options = {"columns": columns, "crosses": [], "label": {"column": "kind"}}
    written = tables.write("", tmp_path / "out", source=f"parquet:{tmp_path}/t.parquet", **options)
    network = check_model("wide_and_deep", written, {"hidden_units": [4]}).build(written)
    export(network, written, str(tmp_path / "model"))
    members = [{"member": member, "note": "x"} for member in (True, "true", False, "false")]
    first, second, third, fourth = predicted(str(tmp_path / "model"), members).tolist()
    assert first == second != third == fourth
    with pytest.raises(BadInstancesError, match="note is not text: True"):
        predicted(str(tmp_path / "model"), [{"member": True, "note": True}])
