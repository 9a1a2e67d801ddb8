"""A run of the digits recipe, killed as a whole, and one that was never stopped."""

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pipelines import run_history
from tests.pipelines.local.conftest import REPLICA, is_alive, wait_for
from tests.pipelines.local.test_interruption import children_of


def command(folder, *arguments):
    return [sys.executable, "-m", "pipelines", "run", "digits", "--local",
            "--runs-directory", str(folder), *arguments]  # fmt: skip


def finish(folder, *arguments):
    result = subprocess.run(
        command(folder, *arguments), cwd=REPLICA.parents[3], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return run_history.find(folder, "latest")


def numbers(checkpoint):
    """Every number of a checkpoint by name: weights, the optimizer's state, the step."""
    variables = tf.train.load_checkpoint(checkpoint)
    return {
        name: variables.get_tensor(name)
        for name, dtype in variables.get_variable_to_dtype_map().items()
        if dtype.is_floating or dtype.is_integer
    }


def exported(run):
    """The weights of a SavedModel, which lists them in an order of its own each time."""
    values = numbers(f"{run.training}/model/variables/variables").values()
    return sorted((value.shape, value.tobytes()) for value in values)


def curves(run):
    """history.csv without what depends on the machine's speed."""
    with Path(run.training, "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    timed = ("images_per_second", "input_wait_fraction", "seconds")
    return [{name: value for name, value in row.items() if name not in timed} for row in rows]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_run_ends_in_the_bits_of_one_never_stopped(tmp_path):
    settings = ["--set", "epochs=6", "--set", "min_accuracy=0"]
    whole = finish(tmp_path / "whole", *settings)
    folder = tmp_path / "killed"
    process = subprocess.Popen(
        command(folder, *settings),
        cwd=REPLICA.parents[3],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        saved = folder / "latest/artifacts/plan-training/training/checkpoints/checkpoint"
        wait_for(saved.exists, seconds=300)
        children = children_of(process.pid)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not any(map(is_alive, children)))
    killed = run_history.find(folder, "latest")
    assert killed.state == "KILLED"
    assert not (folder / "latest" / "summary.json").exists()
    resumed = finish(folder, "--resume")
    assert (resumed.name, resumed.state) == (killed.name, "SUCCEEDED")
    # It went on, and did not begin again.
    log = folder / "latest" / "logs" / "custom-training-job" / "chief-0.log"
    assert "epoch 6/6" in log.read_text()
    assert "epoch 1/6" not in log.read_text()
    assert (resumed.metrics, resumed.verdict) == (whole.metrics, whole.verdict)
    assert curves(resumed) == curves(whole)
    assert len(exported(resumed)) > 5
    assert exported(resumed) == exported(whole)
    ours, theirs = (
        numbers(tf.train.latest_checkpoint(f"{run.training}/checkpoints"))
        for run in (resumed, whole)
    )
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name, strict=True)
