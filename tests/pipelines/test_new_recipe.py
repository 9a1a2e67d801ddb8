"""`recipes new`: a recipe for a table that nobody has described."""

import csv
import datetime
import hashlib
import json
import random
import re
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
from vertex.errors import InputError

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
        "done": "predicts kind almost alone: is it known when predicting?",
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


def column_of(
    tmp_path, texts: list[str], delimiter: str = ",", **more: list[str]
) -> tuple[dict, str, list[str]]:
    """Return what is proposed for a column of these texts: its entry, or why it is left out."""
    generator = random.Random(0)
    others = {
        "y": [generator.choice("ab") for _ in texts],
        "n": [f"{n % 7}" for n in range(len(texts))],
    }
    columns = {"x": texts, **others, **more}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    proposal = propose_for(f"csv:{tmp_path / 't.csv'}", "y")
    (one,) = (one for one in proposal.described if one.name == "x")
    entry = {key: value for key, value in one.column.items() if key not in ("name", "quantiles")}
    return {key: value for key, value in entry.items() if key != "log"}, one.reason, one.notes


NUMBERS = [1250, 40, 310_000, 4_250_000, 999, 17, 86_400, 700, 5, *range(20_011, 29_000, 23)]


@pytest.mark.parametrize(
    ("write", "entry"),
    [
        (lambda n: f"{n:,}", {"format": "1,234.56"}),
        (lambda n: f"{n:,}".replace(",", ".") + ",50", {"format": "1.234,56"}),
        (lambda n: f"{n / 8}".replace(".", ","), {"format": "1234,56"}),
        (lambda n: f"{n:,} €".replace(",", "\u202f"), {"format": "1 234,56", "units": {"€": 1}}),
        (lambda n: f"${n}" if n > 40 else f"(${n})", {"units": {"$": 1}}),
        (
            lambda n: f"{n / 1e6} M" if n > 1e6 else f"{n / 1e3} k",
            {"units": {"k": 1000, "M": 10**6}},
        ),
        (lambda n: f"{n / 4} %", {"units": {"%": 1}}),
        (lambda n: f"{n} - {2 * n}" if n % 5 == 0 else f"{n}", {"format": "1234.56"}),
        (lambda n: f"{n}" if n > 40 else "on request", {"missing": ["on request"]}),
        (lambda n: {17: "n/a", 5: "-"}.get(n, f"{n}"), {"missing": ["n/a", "-"]}),
        (lambda n: f"{n / 10} 万円", {"units": {"万円": 10_000}}),
        (lambda n: f"€ {n:,},-".replace(",", ".", 1), {"format": "1.234,56", "units": {"€": 1}}),
        (lambda n: f"{n} Cr" if n % 2 else f"{n} Lakh", {"units": {"Cr": 10**7, "Lakh": 10**5}}),
        (lambda n: f"{n % 9}h {n % 60}m", {"units": {"h": 60, "m": 1}}),
        (lambda n: f"{n % 9 + 1}h{n % 60:02}", {"units": {"h": 60}}),
        (
            lambda n: f"PT{n % 9}H{n % 60}M{n % 7}S",
            {"units": {"PT": 1, "H": 3600, "M": 60, "S": 1}},
        ),
        (lambda n: f"{n}:{n % 60:02}:07", {"format": "1:23:45"}),
        (lambda n: f"{n % 90 + 1}億{n % 9999}万円", {"units": {"億": 10**8, "万円": 10**4}}),
        (lambda n: f"{n}万" if n % 2 else f"{n}円", {"units": {"万": 10**4, "円": 1}}),
        (lambda n: f"{n}万km" if n % 2 else f"{n}km", {"units": {"万km": 10**4, "km": 1}}),
        (lambda n: f"{n} g" if n % 2 else f"{n / 4} kg", {"units": {"g": 1, "kg": 1000}}),
        (lambda n: f"築{n % 60}年", {"units": {"築": 1, "年": 1}}),
        (lambda n: f"{n} mil. Kč", {"units": {"mil. Kč": 10**6}}),
        (lambda n: f"{n % 50 / 10} out of 5", {"units": {"out of 5": 1}}),
        (lambda n: f"{n:.3e}", {}),
        (lambda n: f"{n:.3e}".replace(".", ","), {"format": "1234,56"}),
        (lambda n: f"{n % 6000 / 1e3:.3f}".replace(".", ","), {"format": "1234,56"}),
    ],
)
def test_numbers_are_read_in_the_form_that_people_write(tmp_path, write, entry):
    found, _, _ = column_of(tmp_path, [write(n) for n in NUMBERS])
    assert found == {"type": "numeric", **entry}


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ([*"1369", "12", "unlimited"], "numeric"),
        (["non-stop", "1 stop", "2 stops", "3 stops"], "vocabulary"),
        ([*"1369", "12", "unlimited", "trial"], "vocabulary"),
    ],
)
def test_one_frequent_word_among_numbers_is_a_missing_value(tmp_path, texts, kind):
    found, _, notes = column_of(tmp_path, texts * 40)
    assert found["type"] == kind
    assert any(("missing" in note) == (kind == "numeric") for note in notes)


def label_of(tmp_path, values: list[str]) -> dict:
    """Return what is proposed for a label with these texts."""
    rows = [[f"{n % 17}", values[n % len(values)]] for n in range(400)]
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["a", "y"], *rows])
    return propose_for(f"csv:{tmp_path / 't.csv'}", "y").label


DAYS = [datetime.datetime(2024, 1 + n % 12, 1 + n % 28, n % 24, n % 60) for n in range(300)]


@pytest.mark.parametrize(
    "format",
    [
        *("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%b-%y", "%Y/%m/%d %H:%M", "%m/%d/%Y %I:%M %p"),
        *("%Y%m%d", "%Y-%m", "%b %d, %Y", "%Y年%m月%d日", "%I:%M %p", "%Y%m%dT%H%M%S%z"),
        *("%Y%m%d%H%M", "%d.%m.%Y %H:%M Uhr", "%Y年%m月%d日 %H時%M分"),
    ],
)
def test_dates_are_read_in_the_form_that_people_write(tmp_path, format):
    days = [day.replace(tzinfo=datetime.UTC).strftime(format) for day in DAYS]
    days[7] = "unknown"
    found, _, _ = column_of(tmp_path, days)
    assert found == {"type": "date", "format": format, "missing": ["unknown"]}


@pytest.mark.parametrize(
    ("texts", "readings"),
    [
        # Neither the order of day and month, nor the meaning of a point or of %, can be known.
        (
            [f"{1 + n % 12:02}/{1 + n % 11:02}/2023" for n in range(300)],
            ["format = '%d/%m/%Y'", "format = '%m/%d/%Y'"],
        ),
        (
            [f"{1 + n % 7}.{n % 10}00" if n % 2 else f"{n}" for n in range(300)],
            ["format = '1.234,56'", "format = '1234.56'"],
        ),
        (
            [f"{n % 90 + 2} %" if n % 2 else "0.5" for n in range(300)],
            ["units = {'%': 1}", "units = {'%': 0.01}"],
        ),
    ],
)
def test_column_that_can_be_read_in_two_ways_is_left_out_with_both(tmp_path, texts, readings):
    found, reason, _ = column_of(tmp_path, texts)
    assert not found and all(reading in reason for reading in readings)


def test_commas_before_three_digits_are_doubtful_between_semicolons(tmp_path):
    texts = [f"{n % 90 + 1},{n % 1000:03}" for n in range(300)]
    assert column_of(tmp_path, texts)[0] == {"type": "numeric", "format": "1,234.56"}
    found, reason, _ = column_of(tmp_path, texts, ";")
    assert not found and "'1,234.56'" in reason and "'1234,56'" in reason
    prices = [f"{n % 50},5" for n in range(300)]
    found, _, _ = column_of(tmp_path, texts, ";", price=prices)
    assert found == {"type": "numeric", "format": "1234,56"}


@pytest.mark.parametrize(
    ("texts", "note"),
    [
        (["-999", *(f"{n / 7:.2f}" for n in range(60))], "-999, the only number below 0"),
        (["<18", "18+"], "'<18' and '18+' are names"),
        (["red/blue", "blue", "red/white", "white"], "several labels with separator = '/'"),
    ],
)
def test_what_is_doubtful_of_a_label_is_told(tmp_path, texts, note):
    label_of(tmp_path, texts)
    notes = propose_for(f"csv:{tmp_path / 't.csv'}", "y").target.notes
    assert any(note in one for one in notes), notes


@pytest.mark.parametrize(
    "units",
    [
        ("kmpl", "km/kg"),
        ("B", "KB"),
        ("T", "kg"),
        ("mm", "g"),
        ("€", "EUR"),
        ("K", "p"),
        ("K", "kg"),
    ],
)
def test_units_that_no_factor_is_known_of_are_not_stripped(tmp_path, units):
    texts = [f"{10 + n % 9}.5 {units[n % 3 == 0]}" for n in range(300)]
    found, _, notes = column_of(tmp_path, texts)
    assert found["type"] == "vocabulary"
    assert f"numbers have several units, {units[0]} (" in notes[0]
    rows = [f'"{text}",{n % 7}' for n, text in enumerate(dict.fromkeys(texts * 9))]
    table = write_csv(tmp_path / "u.csv", [*rows] * 20, "x,n")
    assert "type" not in propose_for(f"csv:{table}", "x").label  # Classes, as they are few.


def test_rows_that_repeat_the_header_are_rejected(tmp_path):
    rows = [f"{'ab'[n % 2]},{'yes' if n % 3 else 'no'}" for n in range(200)]
    table = write_csv(tmp_path / "t.csv", [*rows[:90], "\ufeffkind,ok", *rows[90:]], "kind,ok")
    _, lines = new_recipe.write("joined", f"csv:{table}", "ok")
    assert any("repeats the header (first: t.csv:92)" in text for _, text in lines)
    assert recipe.load("joined").given["label"] == {"column": "ok"}


def test_the_other_columns_decide_what_a_point_means(tmp_path):
    commas = [f"{n % 50},5" for n in range(300)]
    found, _, notes = column_of(tmp_path, [f"{1 + n % 7}.{n % 10}50" for n in range(300)], z=commas)
    assert found == {"type": "numeric", "format": "1.234,56"}
    assert notes == ["the point is the thousands separator, as other columns have decimal commas"]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ([f"{n % 89 + 1:05}" for n in range(300)], "vocabulary"),
        ([f"{'高い安い'[n % 2 :]}{'満足です残念'[n % 4 :]}。{n}" for n in range(300)], "text"),
        (
            [f"{a}{b}{n}" for a in ("Al", "Be", "Ca") for b in ("ma", "ro") for n in range(60)],
            "text",
        ),
        ([hashlib.sha256(f"{n}".encode()).hexdigest() for n in range(300)], ""),
        ([f"INV-{n:06}" for n in range(300)], ""),
    ],
)
def test_texts_are_told_from_keys_by_their_letters(tmp_path, texts, kind):
    found, reason, _ = column_of(tmp_path, texts)
    assert found.get("type", "") == kind
    assert reason == ("" if kind else "differs from row to row, like a key")


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ([f"{n},{n + 10},000" for n in range(1, 60)], {"type": "numeric", "format": "1,234.56"}),
        (["['a', 'b']", "[]", "['c']"], {"type": "multilabel", "format": "list"}),
        (["('a', 'b')", "('c',)", "('a',)"], {"type": "multilabel", "format": "list"}),
        (["['a' 'b']", "['c']", "['a'\n 'c']"], {"type": "multilabel", "format": "list"}),
        (["A1;B2", "B2", "C3;A1", "C3"], {"type": "multilabel"}),
        (["No ", "no", "NO", "yes"], {"ignore_case": True}),
        (["new york", "new  york", "rome"], {"ignore_case": True}),
        (["Ｙｅｓ", "Yes", "no"], {"ignore_case": True}),  # noqa: RUF001
        (["<=50K", "<=50K.", ">50K", ">50K."], {"ignore_case": True}),
        (["500 ml", "0.5 l", "1 l", "2 l"], {"type": "numeric", "units": {"ml": 1, "l": 1000}}),
        ([f"{n}:{n:02}" for n in range(24)], {"type": "numeric", "format": "1:23:45"}),
        (["0", "1.0", "0.0", "1"], {}),
        (["1,5 A", "2,5 A", "x, y"], {}),
    ],
)
def test_label_is_what_a_person_reads(tmp_path, values, label):
    assert label_of(tmp_path, values) == {"column": "y", **label}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1", "0", "True", "False"], "spells booleans in several ways, "),
        (["1", "0", "Yes", "no"], "spells booleans in several ways, "),
        (['{"a": 1}', '{"b": 2}', '{"a": 2}'], "texts that look like lists, but are in no known"),
        (
            [f"2024{1 + n % 12:02}{1 + n % 28:02}" for n in range(80)],
            "contains dates, such as '2024",
        ),
        ([f"[['a', {n}]]" for n in range(40)], "texts that look like lists, but are in no known"),
        ([f"{n}'{n}" for n in range(200)], "is in no known form of numbers or dates, such as"),
        (
            [f"平成{n}年" for n in range(1, 31)],
            "if its 30 different texts are classes, add --column",
        ),
        ([f"{n} {'ft' if n % 2 else 'g'}" for n in range(99)], 'add --column "{'),
    ],
)
def test_label_that_no_form_reads_is_refused(tmp_path, values, message):
    with pytest.raises(InputError, match=re.escape(message)):
        label_of(tmp_path, values)


def test_what_a_person_says_of_a_column_decides(tmp_path, command):
    rows = [f"{1 + n % 12:02}/{1 + n % 11:02}/2023,{1 + n % 7}.{n % 10}00" for n in range(300)]
    table = write_csv(tmp_path / "t.csv", rows, "sold,price")
    arguments = ["recipes", "new", "shop", f"csv:{table}", "--label=price"]
    code, _, errors = command(*arguments)
    price = '{"name": "price", "format": "1.234,56"}'
    assert code == 2 and json.dumps(price) in errors
    day = '{"name": "sold", "format": "%m/%d/%Y"}'
    code, shown, errors = command(*arguments, f"--column={price}", f"--column={day}")
    assert (code, errors) == (0, "")
    assert "label     price: numeric, format 1.234,56: '" in shown
    given = recipe.load("shop").given
    assert given["label"] == {"column": "price", "type": "numeric", "format": "1.234,56"}
    assert given["columns"][0]["format"] == "%m/%d/%Y"


def test_without_a_label_the_columns_that_can_be_predicted_are_listed(tmp_path, command):
    rows = [row.replace(",new", ",New") if n % 5 else row for n, row in enumerate(lines())]
    table = write_csv(tmp_path / "t.csv", rows, HEADER)
    code, _, errors = command("recipes", "new", "orders", f"csv:{table}")
    assert code == 2 and "give --label, the column to predict: kind (2 classes)" in errors
    assert "amount (numeric)" in errors and "note" not in errors


def test_name_of_a_column_sets_no_option(tmp_path, command):
    name = 'a"\nworker_count = 7\n#'
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[name, "y"], *([n % 9, n % 2] for n in range(300))])
    code, shown, _ = command("recipes", "new", "odd", f"csv:{tmp_path / 't.csv'}", "--label=y")
    given = recipe.load("odd").given
    assert code == 0 and given["columns"][0]["name"] == name
    assert "worker_count" not in given and "\nworker" not in shown


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
    assert recipe.load("few").given["max_rejected_fraction"] == 0.22


def test_large_table_is_read_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.data.tables.table_sample.SAMPLE_ROWS", 200)
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
        ("My homes", ["1,2"], "y", "'My homes' is not a recipe name: use lower-case letters"),
        ("new", ["1,2"], "z", "has no column 'z'"),
        ("new", [], "y", "has no rows that can be read"),
        ("new", ["1,2"], "y", "has only 1 row, too few to learn from"),
        ("new", ["1,2"] * 20, "y", "label column 'y' has only one value, '2'; there is nothing"),
        ("new", [f"1,v{n}" for n in range(99)], "y", "88 different texts in 88 rows, too many"),
        (
            "new",
            [f"5,{n}" for n in (1, 2, 3)] * 99,
            "y",
            "no column that could predict 'y': a is always '5'",
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
