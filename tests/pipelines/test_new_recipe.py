"""`recipes new`: a recipe for a table that nobody has described."""

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pipelines import new_recipe, recipe
from pipelines.new_recipe import propose_for
from tests.refusals import refused
from tests.tables import write, write_csv
from trainer.data.schema import load_dataset
from trainer.data.tables.columns import AUTO, list_columns

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


HEADER = "order,city,shop,size,amount,rooms,note,day,done,same,empty,kind"


def lines(count=600):
    generator = random.Random(0)
    made = []
    for number in range(count):
        kind = generator.choice(["new", "used"])
        words = " ".join(generator.choice(["old", "fine", "red", "big", "tidy"]) for _ in range(6))
        values = [
            100_000 + number,
            generator.choice(["Bern", "Genf", "NA"]),
            f"shop{generator.randrange(80)}",
            generator.choice(["?", f"{generator.gauss(0, 1):.3f}"]),
            f"{generator.lognormvariate(0, 2):.3f}",
            generator.randrange(1, 6),
            f"{words} {number}",
            f"2024-{generator.randrange(1, 13):02}-10",
            "yes" if kind == "new" else "no",
            "x",
            "",
            kind,
        ]
        made.append(",".join(map(str, values)))
    return made


def test_types_are_found(tmp_path, command):
    table = write_csv(tmp_path / "t.csv", lines(), HEADER)
    code, shown, errors = command("recipes", "new", "orders", f"csv:{table}", "--label", "kind")
    assert (code, errors) == (0, "")
    given = recipe.load("orders").given
    assert given["label"] == {"column": "kind"}
    assert given["columns"] == [
        {"name": "city", "type": "vocabulary", "missing": ["NA"]},
        {"name": "shop", "type": "vocabulary", "minimum_count": 2, "embedding": 8},
        {"name": "size", "type": "numeric", "quantiles": 8, "missing": ["?"]},
        {"name": "amount", "type": "numeric", "log": True, "quantiles": 10},
        {"name": "rooms", "type": "numeric", "quantiles": 10},
        {"name": "note", "type": "text"},
        {"name": "day", "type": "date", "quantiles": 16},
    ]
    reasons = {
        "order": "differs from row to row, like a key",
        "done": "says kind almost alone: an answer in disguise?",
        "same": "is always 'x'",
        "empty": "is almost always missing",
    }
    text = Path("recipes/orders.toml").read_text()
    for name, reason in reasons.items():
        assert f"# Left out: {name} {reason}\n" in text
        assert f"left out  {name} {reason}\n" in shown
    assert "next      python -m pipelines run orders --local\n" in shown
    assert "orders" in command("recipes")[1]


@pytest.mark.slow
def test_proposed_recipe_runs(tmp_path, command):
    table = write_csv(tmp_path / "t.csv", lines(), HEADER)
    command("recipes", "new", "orders", f"csv:{table}", "--label=kind")
    settings = ["--set=epochs=1", "--set=first_champion=any"]
    code, shown, errors = command("run", "orders", "--local", *settings)
    assert (code, errors) == (0, ""), shown
    assert "accepted" in shown


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ([n % 3 for n in range(300)], {}),
        ([n % 40 for n in range(300)], {"type": "numeric"}),
        ([(n % 97) / 10 for n in range(300)], {"type": "numeric"}),
        (np.exp(np.linspace(0, 12, 300)).tolist(), {"type": "numeric"}),
        (["a;b", "b", "", "c;a", "c;b;a"] * 60, {"type": "multilabel"}),
        (["a|b", "b", "c", "c|a", "b|c"] * 60, {"type": "multilabel", "separator": "|"}),
        ([["a", "b"], [], ["c"], ["b", "c"], None] * 60, {"type": "multilabel"}),
        (["true", "false"] * 150, {}),
    ],
)
def test_label_decides_the_task(tmp_path, values, label):
    numbers = np.random.default_rng(0).normal(size=300)
    pa.parquet.write_table(pa.table({"a": numbers, "y": values}), tmp_path / "t.parquet")
    proposal = propose_for(f"parquet:{tmp_path / 't.parquet'}", "y")
    assert proposal.label == {"column": "y", **label}
    assert [column["name"] for column in proposal.columns] == ["a"]


def test_copy_of_a_number_is_an_answer_in_disguise(tmp_path):
    price = np.random.default_rng(0).lognormal(10, 1, 2000)
    rows = [f"{n},{p:.0f},{p * 1.08:.0f}" for n, p in zip(price * 0 + 5, price, strict=True)]
    rows = [f"{index % 7}{row[3:]}" for index, row in enumerate(rows)]
    table = write_csv(tmp_path / "t.csv", rows, "a,price,gross")
    assert "gross" in propose_for(f"csv:{table}", "price").left_out


def test_rows_without_a_label_are_allowed_to_be_rejected(tmp_path):
    rows = [f"{n % 10 / 7},{'' if n % 5 == 0 else n % 3}" for n in range(400)]
    table = write_csv(tmp_path / "t.csv", rows, "a,y")
    new_recipe.write("few", f"csv:{table}", "y")
    assert recipe.load("few").given["max_rejected_fraction"] == 0.24


def test_large_table_is_read_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.data.tables.proposal.SAMPLE_ROWS", 200)
    monkeypatch.setattr("trainer.data.tables.csv_text.BLOCK_BYTES", 1000)
    table = write_csv(tmp_path / "t.csv", [f"{n % 7},{n % 2},{n}" for n in range(5000)], "a,y,n")
    proposal = propose_for(f"csv:{table}", "y")
    assert (proposal.rows, proposal.is_whole) == (200, False)
    small = new_recipe.choose_options(propose_for(f"csv:{table}", "y"))
    assert small["batch_size"] == 256


@pytest.mark.parametrize(
    ("name", "rows", "label", "message"),
    [
        ("digits", ["1,2"], "y", "there is a recipe 'digits' already; choose another name"),
        ("My homes", ["1,2"], "y", "'My homes' can't name a recipe: use lower-case letters"),
        ("new", ["1,2"], "z", "has no column 'z'"),
        ("new", [], "y", "has no rows that can be read"),
        ("new", ["1,2"] * 9, "y", "label column 'y' has only one value, '2'; there is nothing"),
        ("new", [f"1,v{n}" for n in range(99)], "y", "88 different texts in 88 rows, too many"),
        (
            "new",
            [f"5,{n}" for n in (1, 2, 3)] * 99,
            "y",
            "no column to learn 'y' from: a is always '5'",
        ),
    ],
)
def test_recipe_that_can_not_be_written_is_refused(tmp_path, command, name, rows, label, message):
    table = write_csv(tmp_path / "t.csv", rows, "a,y")
    code, _, errors = command("recipes", "new", name, f"csv:{table}", f"--label={label}")
    assert code == 2 and message in errors and errors.count("\n") == 1
    assert not Path("recipes").exists()


def test_names_of_columns_are_quoted(tmp_path):
    header, name = '"say ""hi"", Bob","y"', 'say "hi", Bob'
    table = write_csv(
        tmp_path / "t.csv", [f"{n % 7},{n % 2},{n}" for n in range(300)], f"{header},n"
    )
    new_recipe.write("quoted", f"csv:{table}", "y")
    (column,) = recipe.load("quoted").given["columns"]
    assert json.dumps(column["name"]) == json.dumps(name)


@pytest.mark.slow
def test_columns_of_a_recipe_may_be_proposed_in_the_run(tmp_path, command):
    table = write_csv(tmp_path / "t.csv", lines(), HEADER)
    Path("recipes").mkdir()
    text = f"""source = "csv:{table}"
columns = "auto"
label = {{ column = "kind" }}
split_by = {{ group = "shop" }}
weight_column = "rooms"
model = "wide_and_deep"
epochs = 1
min_accuracy = 0
"""
    Path("recipes", "orders.toml").write_text(text)
    command("run", "orders", "--local")  # Perhaps rejected by the gate.
    records = Path("runs", "latest", "artifacts", "create-tfrecords", "records").resolve()
    dataset = load_dataset(str(records))
    proposed = propose_for(f"csv:{table}", "kind").columns
    # Neither the label nor groups and weights.
    expected = [column for column in proposed if column["name"] not in ("shop", "rooms")]
    assert dataset.creation["options"]["columns"] == expected
    assert [column.name for column in list_columns(dataset)] == [one["name"] for one in expected]
    log = Path("runs", "latest", "logs", "create-tfrecords.log").read_text()
    assert "column order is left out: differs from row to row, like a key" in log


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crosses": [{"columns": ["a", "b"]}]}, "crosses need columns that are listed"),
        ({"label": {"column": "z"}}, "has no column 'z'"),
        ({"label": {"column": "same"}}, "has only one value, 'x'; there is nothing to learn"),
    ],
)
def test_columns_that_can_not_be_proposed_are_refused(tmp_path, options, message):
    table = write_csv(tmp_path / "t.csv", lines(), HEADER)
    given = {"columns": AUTO, "crosses": [], "label": {"column": "kind"}, **options}
    assert message in refused(write, table, tmp_path / "out", **given)
