"""Columns may have any names, from the file to the report."""

import csv
import random

import numpy as np
import pytest

from pipelines import request_drift
from tests import tables
from tests.refusals import refused
from tests.trainer.report.report_page import HISTORY, TRAINING, Page
from tests.trainer.serving.serving_processes import loaded, predicted
from tests.trainer.training_runs import train_and_evaluate
from trainer.data.tables.columns import argument_names
from trainer.evaluation import drift
from trainer.report.document import write_report
from trainer.serving.instances import BadInstancesError

NUMBERS = [
    *("가격", "무게", "prix (€)", "prix ($)", "prix____", "change +", "change -", "Ab", "ab", "aB"),
    *("label", "key", "sample_weight", "weight", "image", "b64", "self", "examples", "numbers"),
    *("caf\u00e9", "cafe\u0301", "line\nbreak", 'a "quoted", name', "{x} {{y}}", "path/to", "😀"),
    *("1st", "column_1st", "n" * 300, "sold month", "<script>alert(1)</script>", "class", "-"),
]
COLUMNS = [
    *({"name": name, "type": "numeric"} for name in NUMBERS),
    {"name": "sold", "type": "date"},
    {"name": "sold weekday", "type": "vocabulary"},
    {"name": "도시", "type": "vocabulary", "embedding": 2},
    {"name": "이름", "type": "text"},
]
CROSSES = [{"columns": ["sold weekday", "도시"], "buckets": 10}]
OPTIONS = {"model": "wide_and_deep", "model_options": {"hidden_units": [8]}, "batch_size": 64}


def rows(count: int) -> list[dict[str, str]]:
    generator, made = random.Random(0), []
    for number in range(count):
        row = {name: f"{generator.gauss(place, 1):.3f}" for place, name in enumerate(NUMBERS)}
        row |= {
            "sold": f"2024-{1 + number % 12:02}-03",
            "sold weekday": generator.choice(["x", "y"]),
            "도시": generator.choice(["서울", "부산"]),
            "이름": generator.choice(["red car", "blue car"]),
            "판매": generator.choice(["예", "아니오"]),
            "무게 (kg)": generator.choice(["1", "2"]),
        }
        made.append(row)
    return made


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("names") / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows(1)[0])
        writer.writeheader()
        writer.writerows(rows(240))
    return path


@pytest.fixture(scope="module")
def dataset(table):
    return tables.write(
        table,
        table.parent / "records",
        columns=COLUMNS,
        crosses=CROSSES,
        label={"column": "판매"},
        weight_column="무게 (kg)",
        split_fractions=[0.5, 0.1, 0.4],
    )


@pytest.fixture(scope="module")
def evaluation(dataset, tmp_path_factory):
    return train_and_evaluate(dataset, tmp_path_factory.mktemp("run"), **OPTIONS, epochs=1)


def test_rows_are_answered_as_evaluated_by_either_name(evaluation):
    ((_, expected, _),) = evaluation.answers.blocks()
    keys = [key for batch in evaluation.answers.key_batches() for key in batch]
    # The header is in two lines.
    tested = [rows(240)[int(key.rpartition(b":")[2]) - 3] for key in keys]
    assert len(tested) > 50
    names = [column["name"] for column in COLUMNS]
    own = [{name: row[name] for name in names} for row in tested]
    arguments = argument_names(names)
    by_argument = [{arguments[name]: value for name, value in row.items()} for row in own]
    for instances in (own, by_argument, [[*row.values()] for row in own]):
        assert np.abs(predicted(evaluation.model, instances) - expected).max() < 1e-5
    # The model has a column `key`.
    assert loaded(evaluation.model).preprocess({"instances": own[:1]}).keys == [None]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"무게": "x", "ab": 1}, "instances[0] 무게 is not a number: 'x'"),
        ({"chagne +": 1}, "has a column 'chagne +' that the model lacks; did you mean 'change +'?"),
        ({"column___": 1}, "has a column 'column___' that the model lacks"),
        ({"change +": 1, "change__": 2}, "has a column 'change__' that the model lacks"),
        (
            {"무게": 1, argument_names(NUMBERS)["무게"]: 2},
            "has the same column twice, as '무게' and as 'column____",
        ),
        (7, "a row is an object with columns by name, or a list of 가격, 무게, prix (€), "),
    ],
)
def test_mistakes_in_requests_are_described_by_the_users_names(evaluation, row, message):
    with pytest.raises(BadInstancesError) as raised:
        predicted(evaluation.model, [row])
    assert message in str(raised.value)


def test_drift_is_measured_of_labels_weights_and_columns_of_their_names(dataset):
    measured = drift.measure(dataset, dataset)
    assert not measured.not_compared
    names = [one.name for one in measured.columns if not one.of_labels]
    assert sorted(names) == sorted([*(column["name"] for column in COLUMNS), "무게 (kg)"])
    columns = [column["name"] for column in COLUMNS]
    requests = [{name: row[name] for name in columns} for row in rows(240)]
    (drifts, _), count = request_drift.measure(dataset, requests)
    assert count == 240 and {one.name for one in drifts} == set(columns)


def test_report_shows_names_as_text(dataset, evaluation, tmp_path):
    path = tmp_path / "report.html"
    same = drift.measure(dataset, dataset)
    options = {"title": "names", "details": {}, "defaults": {}}
    options |= {"training": TRAINING, "history": HISTORY, "in_time": same}
    write_report(str(path), evaluation=evaluation, dataset=dataset, **options)
    page = Page(path)
    assert "script" not in {tag for tag, _ in page.tags}
    text = " ".join(page.text.split())
    for name in NUMBERS:
        assert " ".join(name.split()) in text.replace("_ ", "_"), name


def test_argument_stays_as_it_was_unless_it_collides():
    assert argument_names(["Zone Id", "1st", "trip_miles", "가격"]) == {
        "Zone Id": "Zone_Id",
        "1st": "column_1st",
        "trip_miles": "trip_miles",
        "가격": "column___",
    }
    both = argument_names(["가격", "무게"])
    assert both == {"가격": "column____38c1b407", "무게": "column____35f53854"}
    assert argument_names(["x", "무게", "가격"]) == {"x": "x", **both}
    # A column that has such a name keeps it.
    taken = argument_names(["가격", "무게", both["무게"].upper()])
    assert taken[both["무게"].upper()] == both["무게"].upper()
    assert len({argument.lower() for argument in taken.values()}) == 3


def test_name_is_one_line_in_a_log():
    drifts = drift.Drifts([], {"line\nbreak": "was numeric, is text"})
    assert drifts.format_not_compared() == "not compared: line\\nbreak (was numeric, is text)"


def test_cross_with_the_name_of_a_column_is_refused():
    columns = [{"name": name, "type": "vocabulary"} for name in ("a", "b", "a_x_b")]
    message = refused(tables.options, "t.csv", columns=columns, crosses=[{"columns": ["a", "b"]}])
    assert "columns and crosses: 'a_x_b' is listed twice" in message
