"""Each benchmark at tiny sizes, by the command that measures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import table_writing
from tests.child_processes import ROOT

SIZES = {
    "automatic_tables": {},
    "boosting": {"SETTINGS": ["strategy=mirrored", "worker_count=0", "ps_count=0", "epochs=1"]},
    "bucket_listing": {"PHOTOS": 20_000},
    "sharded_embeddings": {"ROWS": [1000, 2000], "STEPS": 1},
    "interval_coverage": {"DRAWS": 10, "POPULATION": 10_000},
    "digit_photos": {"RECIPE": "digits", "ACCURACY": 0.0},
    "reading": {"PHOTOS": 96, "ROUNDS": 1},
    "records_writing": {"PHOTOS": 40, "MEMORY_PHOTOS": 8, "ROUNDS": 1},
    "searches": {"SEARCHES": 2, "TRIALS": 3},
    "serving": {"SECONDS": 0.2, "ROUNDS": 1},
    "table_writing": {"ROWS": 100_000, "FEW_ROWS": 1000, "MANY_ROWS": 3000, "ROUNDS": 1},
    "tabular": {"ROWS": 2000, "ROUNDS": 1},
    "training_rates": {"EXAMPLES": 1024, "PAIRS": 1, "ROUNDS": 1, "TURNS": 1},
}
"""Values of constants of each benchmark."""
CODE = """
import importlib, json, sys

import numpy as np

from tests.benchmarks.__main__ import main

for name, sizes in json.loads(sys.argv[1]).items():
    module = importlib.import_module(f"tests.benchmarks.{name}")
    assert sizes.keys() <= vars(module).keys()
    vars(module).update(sizes)
    if name == "automatic_tables":
        prices = module.draw_prices(np.random.default_rng(0), 400)
        module.list_tables = lambda: [("prices", prices)]
main(sys.argv[2:])
"""


def measure(names, sizes, data):
    """Run benchmarks; return the ended process."""
    environment = {**os.environ, "COLUMNS": "200", "REAL_DATA_DIR": str(data)}
    command = [sys.executable, "-c", CODE, json.dumps(sizes), *names]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture
def data(tmp_path):
    """A folder with the names of the real data, and made-up trips."""
    for name in ("tfds/mnist", "taxi"):
        (tmp_path / name).mkdir(parents=True)
    table_writing._trips(tmp_path / "taxi" / "data.csv", 1000)
    return tmp_path


def test_each_benchmark_has_a_smoke_test():
    files = Path(__file__).parent.glob("*.py")
    assert {file.stem for file in files if "\ndef rows(" in file.read_text()} == SIZES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_benchmark_measures(name, data):
    result = measure([name], {name: SIZES[name]}, data)
    assert result.returncode == 0, result.stderr[-3000:]
    assert " reached); " in result.stdout or " missed); " in result.stdout


@pytest.mark.slow
def test_failing_benchmark_leaves_the_rows_of_the_others(data):
    sizes = {"searches": SIZES["searches"], "interval_coverage": {"DRAWS": 0}}
    result = measure(["interval_coverage", "searches"], sizes, data)
    assert result.returncode == 1 and "Traceback" in result.stderr
    assert result.stderr.endswith("error: interval_coverage failed; the tracebacks are above\n")
    assert "search: without an effect" in result.stdout
