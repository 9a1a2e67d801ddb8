"""Compare the chicago_taxi recipe, run by its command, with scikit-learn's gradient boosting.

Both learn from the rows of the same training records, and are scored on those of the test split.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.preprocessing import OrdinalEncoder

from tests.benchmarks.measuring import Row
from trainer.data.schema import Dataset, load_dataset
from trainer.data.tables.columns import list_columns
from trainer.data.tables.inputs import parse_rows

SEEDS = 3
SETTINGS: list[str] = []
"""Values of parameters that replace the recipe's."""


def rows() -> list[Row]:
    """Compare ROC AUC and accuracy, if the trips are in REAL_DATA_DIR/taxi."""
    trips = Path(os.environ.get("REAL_DATA_DIR", ""), "taxi", "data.csv")
    if not trips.is_file():
        print("skipped: REAL_DATA_DIR has no taxi/data.csv")
        return []
    with tempfile.TemporaryDirectory() as folder:
        command = ["run", "chicago_taxi", "--local", f"--runs-directory={folder}"]
        command = [sys.executable, "-m", "pipelines", *command]
        for setting in (f"source=csv:{trips}", *SETTINGS):
            command += ["--set", setting]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        run = Path(folder, "latest")
        metrics = json.loads((run / "summary.json").read_text())["metrics"]
        areas, accuracies = _boosted(
            load_dataset(str(run / "artifacts" / "create-tfrecords" / "records"))
        )
    pairs = (("ROC AUC", metrics["roc_auc"], areas), ("accuracy", metrics["accuracy"], accuracies))
    return [
        (
            f"chicago_taxi / gradient boosting on the same rows, {name}",
            ours / statistics.median(values),
            1.0,
            f"{ours:.4f} / {statistics.median(values):.4f}, median of {SEEDS} seeds "
            f"({min(values):.4f} to {max(values):.4f})",
        )
        for name, ours, values in pairs
    ]


def _boosted(dataset: Dataset) -> tuple[list[float], list[float]]:
    """Return ROC AUC and accuracy on the test split, for each seed."""
    numbers, text, labels = _table(dataset, "train")
    encoder = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=np.nan, max_categories=200
    ).fit(text)
    test_numbers, test_text, test_labels = _table(dataset, "test")
    examples = np.hstack([numbers, encoder.transform(text)])
    test_examples = np.hstack([test_numbers, encoder.transform(test_text)])
    areas, accuracies = [], []
    for seed in range(SEEDS):
        trees = HistGradientBoostingClassifier(random_state=seed).fit(examples, labels)
        scores = trees.predict_proba(test_examples)[:, 1]
        areas.append(float(roc_auc_score(test_labels, scores)))
        accuracies.append(float(accuracy_score(test_labels, scores > 0.5)))
    return areas, accuracies


def _table(dataset: Dataset, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers (float64 [n, k], NaN for missing), text ([n, m]) and labels [n]."""
    content = dataset.splits[split]
    files = [dataset.shard_uri(shard) for shard in content.shards]
    serialized = next(iter(tf.data.TFRecordDataset(files).batch(content.examples)))
    columns, labels = parse_rows(serialized, dataset)
    numbers = [columns[one.name] for one in list_columns(dataset) if one.dtype != "string"]
    text = [columns[one.name] for one in list_columns(dataset) if one.dtype == "string"]
    table = np.stack([column.numpy().astype(float) for column in numbers], axis=1)
    table[table == -1] = np.nan  # A missing whole number.
    names = np.stack([column.numpy().astype(str) for column in text], axis=1)
    return table, names, labels.numpy()
