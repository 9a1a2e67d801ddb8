"""Compare recipes that `recipes new` writes with gradient boosting, on the very same rows.

Boosting is scikit-learn's HistGradientBoosting, untuned; for texts, TfidfVectorizer and logistic
regression. Both learn from the rows of the training and the validation split (ours uses the latter
to choose the epoch), and are scored on those of the test split.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.preprocessing import OrdinalEncoder

from tests.benchmarks.measuring import Row
from trainer.data.schema import SPLITS, Dataset, load_dataset

GOAL = 0.99
"""R2 or ROC AUC as a multiple of boosting's."""
LABEL = "label"


def rows() -> list[Row]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, columns in list_tables():
            table = Path(folder, f"{name}.csv")
            with table.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(columns)
                writer.writerows(zip(*columns.values(), strict=True))
            ours, metric, dataset = run_proposed(name, table)
            theirs = score_boosting(columns, dataset)
            figures = f"{metric} {ours:.4f} / {theirs:.4f}, {len(columns[LABEL]):,} rows"
            found.append((f"{name}: recipes new / boosting", ours / theirs, GOAL, figures))
    return found


def list_tables() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield tables: columns by name, of which one is the label."""
    real = Path(os.environ.get("REAL_DATA_DIR", ""))
    if (real / "housing/data.csv").is_file():
        yield "housing_table", rename(read(real / "housing/data.csv"), "median_house_value")
    if (real / "taxi/data.csv").is_file():
        trips = read(real / "taxi/data.csv")
        fares, tips = (
            np.array([float(x or 0) for x in trips.pop(name)]) for name in ("fare", "tips")
        )
        yield "taxi", {**trips, "fare": fares, LABEL: np.where(tips > 0.2 * fares, "big", "small")}
    generator = np.random.default_rng(0)
    values, label = datasets.make_friedman1(20_000, n_features=10, noise=1.0, random_state=0)
    yield "friedman", {**name_columns(values), LABEL: label}
    yield "prices", draw_prices(generator, 30_000)
    for bundle in (datasets.load_breast_cancer, datasets.load_digits, datasets.load_diabetes):
        values, label = bundle(return_X_y=True)
        yield f"{bundle.__name__[5:]}_table", {**name_columns(values), LABEL: label}


def read(path: Path) -> dict[str, Any]:
    with path.open(newline="") as file:
        header, *lines = csv.reader(file)
    return dict(zip(header, map(list, zip(*lines, strict=True)), strict=True))


def rename(columns: dict[str, Any], label: str) -> dict[str, Any]:
    return {LABEL if name == label else name: values for name, values in columns.items()}


def name_columns(values: np.ndarray) -> dict[str, Any]:
    return {f"x{number}": column for number, column in enumerate(values.T)}


def draw_prices(generator: np.random.Generator, n: int) -> dict[str, Any]:
    """Draw flats: the price per square meter depends on the district, the age and the floor."""
    districts = [f"d{number:02}" for number in range(40)]
    level = generator.lognormal(8, 0.4, 40)
    at, size = generator.integers(0, 40, n), generator.lognormal(4.2, 0.4, n)
    year, floor = generator.integers(1890, 2021, n), generator.integers(0, 12, n)
    lift, kind = generator.random(n) < 0.5, generator.choice(["flat", "loft", "studio"], n)
    factor = 1 - 0.003 * (2020 - year) + 0.25 * (year < 1920) + np.where(kind == "loft", 0.15, 0)
    factor = factor * np.where(lift | (floor < 3), 1, 1 - 0.03 * floor)
    price = level[at] * size**0.9 * factor * generator.lognormal(0, 0.15, n)
    return {
        "district": [districts[one] for one in at], "size": size.round(1), "year": year,
        "floor": floor, "lift": np.where(lift, "yes", "no"), "kind": kind, LABEL: price.round(),
    }  # fmt: skip


def run_proposed(name: str, table: Path, *settings: str) -> tuple[float, str, Dataset]:
    """Return the figure of a run of the proposed recipe, its name, and the run's records."""
    folder = table.parent
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}  # noqa: PTH109
    calls = (
        ["recipes", "new", name, f"csv:{table}", f"--label={LABEL}"],
        ["run", name, "--local", *settings],
    )
    for arguments in calls:
        command = [sys.executable, "-m", "pipelines", *arguments]
        subprocess.run(command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    run = Path(folder, "runs", "latest")
    metrics = json.loads((run / "summary.json").read_text())["metrics"]
    metric = "r2" if "r2" in metrics else "roc_auc"
    records = run / "artifacts/create-tfrecords/records"
    return metrics[metric], metric, load_dataset(str(records.resolve()))


def list_lines(dataset: Dataset) -> dict[str, list[int]]:
    """Return the indices of the table's rows in each split."""
    import tensorflow as tf

    lines: dict[str, list[int]] = {}
    for split in SPLITS:
        shards = [dataset.shard_uri(shard) for shard in dataset.splits[split].shards]
        description = {"key": tf.io.FixedLenFeature([], tf.string)}
        batches = tf.data.TFRecordDataset(shards).batch(1024)
        parsed = (tf.io.parse_example(batch, description)["key"] for batch in batches)
        keys = [key for batch in parsed for key in batch.numpy()]
        lines[split] = [int(key.rpartition(b":")[2]) - 2 for key in keys]
    return lines


def score_boosting(columns: dict[str, Any], dataset: Dataset) -> float:
    lines = list_lines(dataset)
    labels = np.array(columns[LABEL])
    encoded, categorical = [], []
    for name in columns.keys() - {LABEL}:
        try:
            encoded.append(np.array([float(x) if x != "" else np.nan for x in columns[name]]))
            categorical.append(False)
        except ValueError:
            texts = np.array(columns[name], str)[:, None]
            encoder = OrdinalEncoder(max_categories=200)
            encoded.append(encoder.fit_transform(texts)[:, 0])
            categorical.append(True)
    values = np.stack(encoded, axis=1)
    train, test = lines["train"] + lines["validation"], lines["test"]
    if not dataset.classes:
        labels = labels.astype(float)
        model = HistGradientBoostingRegressor(categorical_features=categorical, random_state=0)
        return r2_score(labels[test], model.fit(values[train], labels[train]).predict(values[test]))
    model = HistGradientBoostingClassifier(categorical_features=categorical, random_state=0)
    scores = model.fit(values[train], labels[train]).predict_proba(values[test])
    if len(dataset.classes) == 2:
        return roc_auc_score(labels[test] == model.classes_[1], scores[:, 1])
    return roc_auc_score(labels[test], scores, multi_class="ovr")
