"""A made-up table whose label follows from its columns, and how to write it as records."""

import random
from pathlib import Path
from typing import Any

from tests.trainer.data.picture_folders import read_examples
from trainer import fields
from trainer.data.schema import Dataset
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.writer import create_tfrecords

HEADER = "miles,hour,payment,company,Zone Id,tips,fare"
COLUMNS: list[dict[str, Any]] = [
    {"name": "miles", "type": "numeric", "log": True, "quantiles": 4},
    {"name": "hour", "type": "identity", "buckets": 24},
    {"name": "payment", "type": "vocabulary", "size": 3},
    {"name": "company", "type": "vocabulary", "size": 50, "embedding": 4},
    {"name": "Zone Id", "type": "hashed", "buckets": 10},
]
CROSSES = [{"columns": ["hour", "payment"], "buckets": 1000}, {"columns": ["company", "miles"]}]
LABEL = {"column": "tips", "above": 0.2, "times_column": "fare", "classes": ["small", "big"]}
TEXTS: dict[str, Any] = {
    "columns": [
        {"name": "company", "type": "text", "embedding": 4} if one["name"] == "company" else one
        for one in COLUMNS
    ],
    "crosses": CROSSES[:1],
}
"""Options by which the company is a text."""
DESCRIBED = {"columns": COLUMNS, "crosses": CROSSES, "label": LABEL}


def lines(count: int, seed: int = 0) -> list[str]:
    """Rows without their header: whoever pays by card from noon on tips, mostly."""
    generator = random.Random(seed)
    made = []
    for number in range(count):
        miles = "" if generator.random() < 0.1 else f"{generator.expovariate(0.3):.2f}"
        hour, fare = generator.randrange(24), 4 + generator.random() * 40
        payment = generator.choice(["cash", "card", "card", "voucher"])
        company = "" if generator.random() < 0.3 else f"company {generator.randrange(40)}"
        tips = fare * 0.3 if payment == "card" and hour >= 12 and generator.random() < 0.9 else 0
        made.append(f"{miles},{hour},{payment},{company},{number % 17},{tips:.2f},{fare:.2f}")
    return made


def write_csv(path: Path, rows: list[str], header: str = HEADER) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def options(table: Path | str, **changes: Any) -> RecordOptions:
    return fields.build(RecordOptions, {"source": f"csv:{table}", **DESCRIBED, **changes})


def one_number(name: str, **label: Any) -> dict[str, Any]:
    """Return the options of a table with one column of numbers, and that label."""
    return {"columns": [{"name": name, "type": "numeric"}], "crosses": [], "label": label}


def write(table: Path | str, output: Path, **changes: Any) -> Dataset:
    """Run create_tfrecords on a CSV file, or on `source`, without output."""
    return create_tfrecords(options(table, **changes), str(output), progress=lambda _: None)


def records(folder: Path, count: int = 1500, **changes: Any) -> Dataset:
    """Write a dataset of `count` rows under `folder`."""
    return write(write_csv(folder / "trips.csv", lines(count)), folder / "records", **changes)


def read_rows(dataset: Dataset, *splits: str) -> list[dict[str, Any]]:
    """Return rows, of all splits if none is given: values that are there, label and key."""
    from trainer.data.tables.columns import list_columns
    from trainer.data.tables.inputs import row_values  # Imports TensorFlow.

    rows = []
    for split in splits or dataset.splits:
        for example in read_examples(dataset, split):
            row = row_values(example, list_columns(dataset))
            row = {name: value for name, value in row.items() if value is not None}
            rows.append({**row, "label": example["label"][0], "key": example["key"][0]})
    return rows


def values(dataset: Dataset) -> list[list]:
    """Return all rows without their keys, sorted."""
    return sorted(
        sorted((name, row[name]) for name in row if name != "key") for row in read_rows(dataset)
    )
