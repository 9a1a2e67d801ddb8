"""Runs of each task that are killed as a whole, and ones that are never stopped."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipelines.runs import run_folders
from tests.child_processes import ROOT, started
from tests.learned_weights import assert_equal_arrays, exported, newest_checkpoint
from tests.pipelines.local.conftest import is_alive, wait_for
from tests.pipelines.local.package_runs import descendants

RECIPES = ("digits", "housing", "emotions")
"""A recipe of each task."""


def command(recipe, folder, *arguments):
    run = [sys.executable, "-m", "pipelines", "run", recipe, "--local"]
    return [*run, f"--runs-directory={folder}", *arguments]


def finish(recipe, folder, *arguments):
    called = command(recipe, folder, *arguments)
    result = subprocess.run(called, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return run_folders.load_by_name(folder, "latest")


def curves(run):
    """Read history.csv without the columns that depend on the machine's speed."""
    with Path(run.training, "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    timed = ("examples_per_second", "input_wait_fraction", "seconds")
    return [{name: value for name, value in row.items() if name not in timed} for row in rows]


def settings_of(recipe):
    settings = ["--set=epochs=6", "--set=floors={}"]
    if recipe == "digits":
        return [*settings, "--set=min_accuracy=0"]
    table = Path(os.environ.get("REAL_DATA_DIR", ""), recipe, "data.csv")
    if not table.is_file():
        pytest.skip(f"REAL_DATA_DIR has no {recipe}/data.csv")
    return [*settings, f"--set=source=csv:{table}"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("recipe", RECIPES)
def test_killed_run_ends_with_the_bits_of_an_unkilled_one(recipe, tmp_path):
    settings = settings_of(recipe)
    whole, folder = finish(recipe, tmp_path / "whole", *settings), tmp_path / "killed"
    killed = kill_while_it_trains(recipe, folder, *settings)
    assert not (folder / "latest" / "summary.json").exists()
    resumed = finish(recipe, folder, "--resume")
    assert (resumed.name, resumed.state) == (killed.name, "SUCCEEDED")
    # It continued rather than started again.
    log = folder / "latest" / "logs" / "custom-training-job" / "chief-0.log"
    assert "epoch 6/6" in log.read_text()
    assert "epoch 1/6" not in log.read_text()
    assert (resumed.metrics, resumed.verdict) == (whole.metrics, whole.verdict)
    assert curves(resumed) == curves(whole)
    ours, theirs = Path(resumed.training), Path(whole.training)
    assert len(exported(ours)) > 5
    assert exported(ours) == exported(theirs)
    for file in filter(Path.is_file, (theirs / "model").rglob("*")):
        # The list has the digest of history.csv, too, which times the epochs.
        if file.name != "files.sha256":
            assert (ours / file.relative_to(theirs)).read_bytes() == file.read_bytes(), file
    assert_equal_arrays(newest_checkpoint(ours), newest_checkpoint(theirs))
    if recipe != "digits":  # See test_batch_prediction.
        check_batch_prediction(recipe, (folder / "latest").resolve(), tmp_path)


def kill_while_it_trains(recipe, folder, *arguments):
    nowhere = subprocess.DEVNULL
    called = command(recipe, folder, *arguments)
    with started(called, cwd=ROOT, stdout=nowhere, stderr=nowhere) as process:
        saved = folder / "latest/artifacts/plan-training/training/checkpoints/checkpoint"
        wait_for(saved.exists, seconds=300)
        children = descendants(process)
    wait_for(lambda: not any(map(is_alive, children)))
    # The kernel releases a process's lock when its last thread has ended.
    wait_for(lambda: run_folders.load_by_name(folder, "latest").state == "KILLED", 30)
    return run_folders.load_by_name(folder, "latest")


@pytest.mark.slow
def test_killed_run_continues_on_other_machines(tmp_path):
    # With other seeds, a difference by rounding turns on a ReLU, from where on it grows.
    steady = ("schedule=constant", "optimizer=sgd", "learning_rate=0.01", "seed=2")
    settings = [*settings_of("digits"), *(f"--set={one}" for one in steady)]
    whole = finish("digits", tmp_path / "whole", *settings)
    killed = kill_while_it_trains("digits", tmp_path, *settings)
    resumed = finish("digits", tmp_path, "--resume", "--set=worker_count=2")
    assert (resumed.state, resumed.training) == ("SUCCEEDED", killed.training)
    logs = tmp_path / "latest" / "logs" / "custom-training-job"
    assert "epoch 1/6" not in (logs / "chief-0.log").read_text()
    assert (logs / "worker-1.log").exists()
    expected = newest_checkpoint(Path(whole.training))
    for name, value in newest_checkpoint(Path(resumed.training)).items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5, err_msg=name)


def check_batch_prediction(recipe, run, folder):
    """Predict the records of the test split in a batch, as the evaluation did."""
    with (run / "artifacts/evaluate-model/predictions.csv").open(newline="") as file:
        expected = list(csv.DictReader(file))
    shards = run / "artifacts/create-tfrecords/records/test-*.tfrecord"
    called = command(recipe, run.parent, f"--batch={shards}", f"--set=output={folder}/answers")
    subprocess.run(called, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    files = sorted((folder / "answers").glob("*/prediction.results-*"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    answers = [json.loads(line)["prediction"] for line in lines]
    for answer, row in zip(answers, expected, strict=True):
        if recipe == "emotions":
            assert answer["labels"] == list(filter(None, row["prediction"].split(";")))
        else:
            columns = {"value": "prediction", "low": "low", "high": "high"}
            for name, column in columns.items():
                assert answer[name] == pytest.approx(float(row[column]), rel=1e-4)
