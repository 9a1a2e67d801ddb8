"""Rows with unusual texts and numbers are answered as they are evaluated."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import tensorflow as tf

from pipelines import request_drift
from tests import tables
from tests.trainer.serving.serving_processes import predicted
from trainer.data.schema import Dataset
from trainer.evaluation import drift
from trainer.evaluation.scoring import evaluate
from trainer.exported.export import export
from trainer.models import open_model_for
from trainer.serving.instances import BadInstancesError
from trainer.serving.row_instances import RowInstances

POSITIVE = ["1.5", "", " 2 ", "+3", "1e2", "nan", "1e-40", "3.4e38", ".5", "7."]
NUMBERS = [*POSITIVE, "-0.0", "-1e9"]
HOURS = ["0", "23", "", "3.0", " 4", "nan"]
NAMES = ["Cash", " Cash", "Cash\t", "Cash\u00a0", "\u3000Cash", "\u2028Cash\x1f", "\u00a0", ""]
NAMES += ["8", "8.0", "8.50", "-3.000", "08", "1.0.0", "1e3", "caf\u00e9", "cafe\u0301", "\u65e5"]
TEXTS = ["Good\0 day!", "I don\u2019t\tGO", "\u65e5\u672c\u8a9e \u2764\ufe0f", "a" * 99, "\u0301"]
TEXTS += [
    "one two " * 9,
    "\u00c9T\u00c9 <b>&amp;",
    '"quoted", "twice"',
    "\u0130 \u03a3\u0391\u03a3",
]
COLUMNS = {
    "plain": (
        [*NUMBERS, "?", " ?", "NULL", "-999", "-999.0"],
        {"type": "numeric", "missing": ["?", "NULL", "-999"]},
    ),
    "log": (POSITIVE, {"type": "numeric", "log": True, "quantiles": 3}),
    "place": (NUMBERS, {"type": "bucketized", "boundaries": [0, 2, 50]}),
    "hour": (
        [*HOURS, "99"],
        {"type": "identity", "buckets": 24, "embedding": 2, "missing": ["99"]},
    ),
    "learned": ([*NAMES, "NULL", "NULL "], {"type": "vocabulary", "missing": ["NULL"]}),
    "listed": (NAMES, {"type": "vocabulary", "values": ["8.0", "Cash ", "caf\u00e9"]}),
    "hash": (NAMES, {"type": "hashed", "buckets": 50, "embedding": 3}),
    "comment": (
        [*NAMES, *TEXTS, "n/a"],
        {"type": "text", "embedding": 2, "terms": 40, "words": 9, "missing": ["n/a"]},
    ),
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
    network = open_model_for("wide_and_deep", dataset, {"hidden_units": [16]}).build(dataset)
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
    ((_, probabilities, _),) = answers.blocks()
    lines = [int(key.rpartition(b":")[2]) for batch in answers.key_batches() for key in batch]
    tested = [{name: rows[line - 2][name] for name in COLUMNS} for line in lines]
    assert len(tested) > 300
    return tested, probabilities


def as_json(row: dict[str, str]) -> dict:
    """Return a row as a program sends it, with numbers as such where they are names, too."""
    typed: dict = {}
    for name, text in row.items():
        is_name = name in ("learned", "listed", "hash", "comment")
        try:
            number = float(text) if not is_name or text in ("8", "8.0", "-3.000") else text
        except ValueError:  # The empty text, or a marker.
            number = text or None
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
    names = {"8", "8.50", "-3", "08", "1.0.0", "1e3", "caf\u00e9", "\u65e5"}
    assert {*learned} == {"Cash", *names}


def test_unusual_texts_of_the_training_rows_are_no_drift(rows, dataset):
    requests = [{name: row[name] for name in COLUMNS} for row in rows]
    (drifts, _), _ = request_drift.measure(dataset, requests)
    assert [drift.name for drift in drifts if drift.is_drift] == []


ODD = [
    *("7", "+7", "-7", "7.", ".7", "7e0", "7E+1", "007", " 7", "7\t", "\u00a07", "\u0667", "-0"),
    *("nan", "NaN", "-nan", "1e-400", "3.4e38", "true", "True", "FALSE", "", " "),
    *("1_000", "1,5", "1 000", "0x10", "0b1", "7d0", "1e", "e1", ".", "+", "--7", "7\0", "None"),
    *("inf", "-Infinity", "1e39", "nan(7)", "t", "yes", "\u00bd", "\u2212" + "7", "1e400"),
]
"""Texts that may or may not be numbers."""


def test_texts_are_the_same_numbers_to_records_and_requests(tmp_path):
    lines = [f'"{text}",{number % 2}' for number, text in enumerate(ODD)]
    table = tables.write_csv(tmp_path / "t.csv", lines + [f"{n},{n % 2}" for n in range(99)], "a,b")
    options = {**tables.one_number("a", column="b"), "max_rejected_fraction": 0.5}
    written = tables.write(table, tmp_path / "out", **options)
    rows = {row["key"]: row.get("a") for row in tables.read_rows(written)}
    in_records = [rows.get(b"t.csv:%d" % line, "refused") for line in range(2, len(ODD) + 2)]
    parser = RowInstances({"a": "float32"}, written.features[:1])

    def read(value):
        try:
            (number,) = parser.parse([{"a": value}]).parts[0].inputs["a"].tolist()
        except BadInstancesError:
            return "refused"
        return None if number != number else number

    assert [read(text) for text in ODD] == in_records
    assert in_records.count("refused") == 22 and in_records.count(None) == 5
    assert [read(value) for value in (True, False, 7, 7.5, None)] == [1, 0, 7, 7.5, None]


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """Rows with booleans in Parquet and in CSV, and a model of the Parquet's records."""
    folder = tmp_path_factory.mktemp("flags")
    generator = np.random.default_rng(2)
    drawn = {name: generator.random(900) < 0.5 for name in ("member", "number", "whole", "kind")}
    table = pa.table({**drawn, "weight": generator.random(900)})
    pa.parquet.write_table(table, folder / "t.parquet")
    as_text = {name: [str(int(value)) for value in drawn[name]] for name in drawn}
    coded = {**as_text, "kind": ["true" if value else "false" for value in drawn["kind"]]}
    pa.csv.write_csv(pa.table({**coded, "weight": table["weight"]}), folder / "t.csv")
    options = {
        "columns": [
            {"name": "member", "type": "vocabulary"},
            {"name": "number", "type": "numeric"},
            {"name": "whole", "type": "identity", "buckets": 2},
            {"name": "weight", "type": "numeric"},
        ],
        "crosses": [{"columns": ["member", "whole"]}],
        "label": {"column": "kind"},
        "split_fractions": [0.5, 0, 0.5],
    }
    parquet, csv_records = (
        tables.write("", folder / kind, source=f"{kind}:{folder}/t.{kind}", **options)
        for kind in ("parquet", "csv")
    )
    network = open_model_for("wide_and_deep", parquet, {"hidden_units": [8]}).build(parquet)
    for variable in network.trainable_variables:
        variable.assign(generator.normal(0, 0.5, variable.shape))
    export(network, parquet, str(folder / "model"))
    return parquet, csv_records, str(folder / "model")


def test_booleans_are_the_same_in_every_file_and_request(flags):
    parquet, csv_records, model = flags
    forms = [
        *(True, 1, 1.0, "true", "True", "TRUE", "1", "1.0", " t ", "T"),
        *(False, 0, 0.0, "false", "False", "FALSE", "0", "0.0", "f", "F"),
    ]
    rows = [{"member": form, "number": True, "whole": 1, "weight": 0.5} for form in forms]
    yes, no = np.split(predicted(model, rows), 2)
    assert np.ptp(yes, axis=0).max() == np.ptp(no, axis=0).max() == 0
    assert np.abs(yes - no).max() > 0.01
    rows = [{**rows[0], "number": form, "whole": form} for form in (True, 1, "1", "True", "TRUE")]
    assert np.ptp(predicted(model, rows), axis=0).max() == 0
    error = "member is not true or false: 'yes'"
    with pytest.raises(BadInstancesError, match=error):
        predicted(model, [{"member": "yes"}])
    # The same rows are in other splits, because their digests differ.
    by_weight = {}
    for records in (parquet, csv_records):
        answers = evaluate(model, records.uri).answers
        ((_, probabilities, _),) = answers.blocks()
        keys = [int(key.rpartition(b":")[2]) for batch in answers.key_batches() for key in batch]
        header = 1 if records is csv_records else 0
        for key, row in zip(keys, probabilities, strict=True):
            by_weight.setdefault(key - header, []).append(row)
    both = np.array([rows for rows in by_weight.values() if len(rows) == 2])
    assert len(both) > 100
    assert np.abs(both[:, 0] - both[:, 1]).max() < 1e-6


def test_booleans_of_another_form_are_no_drift(flags):
    parquet, csv_records, _ = flags
    measured = drift.measure(parquet, csv_records)
    assert not drift.format_drifts(measured.columns)
    generator = np.random.default_rng(3)
    requests = [
        {"member": str(int(generator.random() < 0.5)), "number": 1, "whole": 0, "weight": 0.5}
        for _ in range(500)
    ]
    (drifts, _), _ = request_drift.measure(parquet, requests)
    assert {column.name for column in drifts if column.is_drift} == {"number", "whole", "weight"}


def test_boolean_is_no_text_of_other_columns(model):
    with pytest.raises(BadInstancesError, match="learned is not text: True"):
        predicted(model, [{"learned": True}])


def test_model_answers_other_forms_of_its_columns(flags, model):
    """TensorFlow Serving and Google's prebuilt container read requests without this project."""
    serve = tf.saved_model.load(flags[2]).signatures["serving_default"]
    numbers = {"number": [1.0] * 3, "weight": [0.5] * 3}
    inputs = {name: tf.constant(values, tf.float32) for name, values in numbers.items()}
    inputs["whole"] = tf.constant([1] * 3, tf.int64)
    answers = serve(member=tf.constant(["true", " TRUE", "1"]), **inputs)["probabilities"].numpy()
    assert np.ptp(answers, axis=0).max() == 0
    serve = tf.saved_model.load(model).signatures["serving_default"]
    row = {
        "plain": [-999.0, np.nan],
        "log": [1.0, 1.0],
        "place": [1.0, 1.0],
        "hour": [99, -1],
        "learned": ["NULL", ""],
        "listed": ["Cash", "Cash"],
        "hash": ["a", "a"],
        "comment": ["n/a", " "],
    }
    inputs = {
        name: tf.constant(values, tf.as_dtype(serve.structured_input_signature[1][name].dtype))
        for name, values in row.items()
    }
    answers = serve(**inputs)["probabilities"].numpy()
    assert np.ptp(answers, axis=0).max() == 0
