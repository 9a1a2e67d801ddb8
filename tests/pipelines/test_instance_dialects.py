"""Files of predictions are read in the dialect of the recipe's table, or in UTF-8 with commas."""

from pathlib import Path

import pytest

from components.planning import prediction_input
from pipelines import instance_files, recipe
from tests import tables
from tests.refusals import refused

COLUMNS = ["city", "area"]
ROWS = [{"city": "Łódź", "area": "1,5"}, {"city": None, "area": "2"}]


@pytest.fixture
def sales(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("recipes").mkdir()
    dialect = '{ encoding = "cp1250", delimiter = ";", skip_rows = 1, footer_rows = 1 }'
    columns = '[{ name = "city", type = "vocabulary" }, { name = "area", type = "numeric" }]'
    label = '{ column = "price", type = "numeric" }'
    Path("recipes/sales.toml").write_text(
        f'# Sales\nsource = "csv:t.csv"\nmodel = "wide_and_deep"\ndialect = {dialect}\n'
        f"columns = {columns}\nlabel = {label}\n"
    )
    return recipe.load("sales")


@pytest.mark.parametrize(
    ("text", "encoding", "line"),
    [
        ("Sales;\ncity;area\nŁódź;1,5\n;2\nTotal;99\n", "cp1250", 3),
        ("city;area\nŁódź;1,5\n;2\n", "cp1250", 2),
        ('city,area\nŁódź,"1,5"\n,2\n', "utf-8", 2),
    ],
)
def test_rows_of_predictions_may_have_no_title_and_no_total(sales, text, encoding, line):
    Path("f.csv").write_text(text, encoding=encoding)
    expected = [(f"f.csv:{line + n}", row) for n, row in enumerate(ROWS)]
    assert list(instance_files.read(sales, "f.csv", COLUMNS)) == expected


def test_rows_of_predictions_in_a_third_encoding_are_refused_by_the_recipes(sales):
    text = Path("recipes/sales.toml").read_text()
    Path("recipes/sales.toml").write_text(text.replace(", skip_rows = 1, footer_rows = 1", ""))
    Path("f.csv").write_text("city;area\nŁódź;1,5\n", encoding="utf-16")
    message = refused(lambda: list(instance_files.read(recipe.load("sales"), "f.csv", COLUMNS)))
    assert message.startswith('f.csv is in UTF-16, not in cp1250; the dialect is { encoding = "cp')


@pytest.mark.parametrize("dialect", ["utf-16", "cp1252", "semicolons", "CR"])
def test_batch_prediction_refuses_csv_that_vertex_can_not_read(tmp_path, dialect):
    dataset = tables.records(tmp_path, 200)
    header = tables.HEADER.split(",")[:5]
    text = ",".join(f'"{name}"' for name in header) + '\n1,2,"é",,3\n'
    text = {"semicolons": text.replace(",", ";"), "CR": text.replace("\n", "\r")}.get(dialect, text)
    encoding = dialect if dialect in ("utf-16", "cp1252") else "utf-8"
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode(encoding))
    message = refused(prediction_input.check, str(path), dataset)
    assert "Vertex AI reads CSV in UTF-8 with commas: convert it, or give .jsonl" in message
