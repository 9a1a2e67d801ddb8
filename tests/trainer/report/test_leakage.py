"""The ROC AUC of each column alone shows a column that leaks the label."""

import random

import numpy as np
import pytest

from tests import tables
from trainer.data.tables.inputs import parse_columns
from trainer.evaluation.answers import ColumnValues, DiskColumns
from trainer.evaluation.leakage import compute_column_aucs
from trainer.evaluation.prediction import read_stored_batches

COLUMNS = [
    {"name": "tip", "type": "numeric"},
    {"name": "noise", "type": "numeric"},
    {"name": "kind", "type": "vocabulary", "size": 3},
    {"name": "ticket", "type": "hashed", "buckets": 1000},
]


def test_each_column_alone_has_its_area(tmp_path):
    generator = random.Random(0)
    rows = []
    for number in range(2400):
        big = generator.random() < 0.4
        # Neither high nor low but in the middle: no area of the raw number would show it.
        tip = generator.uniform(4, 6) if big else generator.choice([1.0, 9.0])
        kind = "card" if big or generator.random() < 0.2 else "cash"
        rows.append(f"{tip:.2f},{generator.random():.3f},{kind},t{number},{'yes' if big else 'no'}")
    table = tables.write_csv(tmp_path / "t.csv", rows, "tip,noise,kind,ticket,big")
    label = {"column": "big"}
    dataset = tables.write(table, tmp_path / "r", columns=COLUMNS, crosses=[], label=label)
    values = ColumnValues(dataset, "train")
    labels = DiskColumns(values.rows, {"label": np.int32})
    for batch in read_stored_batches(dataset, "train", 512):
        values.add(batch)
        labels.append({"label": parse_columns(batch, dataset, label=True)["label"]})
    areas = compute_column_aucs(values, labels)
    assert areas["tip"] > 0.99
    assert areas["kind"] == pytest.approx(0.9, abs=0.03)
    assert areas["noise"] == pytest.approx(0.5, abs=0.05)
    assert areas["ticket"] == pytest.approx(0.5, abs=0.05)  # Each is seen once.
