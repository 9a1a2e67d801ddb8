"""A run of the digits recipe that is killed as a whole, and one that is never stopped."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.runs import run_folders
from tests.child_processes import ROOT, started
from tests.learned_weights import assert_equal_arrays, exported, newest_checkpoint
from tests.pipelines.local.conftest import is_alive, wait_for
from tests.pipelines.local.package_runs import descendants

COMMAND = [sys.executable, "-m", "pipelines", "run", "digits", "--local"]
SETTINGS = ["--set", "epochs=6", "--set", "min_accuracy=0"]


def finish(folder, *arguments):
    result = subprocess.run(
        [*COMMAND, f"--runs-directory={folder}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return run_folders.load_by_name(folder, "latest")


def curves(run):
    """Read history.csv without the columns that depend on the machine's speed."""
    with Path(run.training, "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    timed = ("examples_per_second", "input_wait_fraction", "seconds")
    return [{name: value for name, value in row.items() if name not in timed} for row in rows]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_run_ends_with_the_bits_of_an_unkilled_one(tmp_path):
    whole = finish(tmp_path / "whole", *SETTINGS)
    folder = tmp_path / "killed"
    command, nowhere = [*COMMAND, f"--runs-directory={folder}", *SETTINGS], subprocess.DEVNULL
    with started(command, cwd=ROOT, stdout=nowhere, stderr=nowhere) as process:
        saved = folder / "latest/artifacts/plan-training/training/checkpoints/checkpoint"
        wait_for(saved.exists, seconds=300)
        children = descendants(process)
    wait_for(lambda: not any(map(is_alive, children)))
    killed = run_folders.load_by_name(folder, "latest")
    assert killed.state == "KILLED"
    assert not (folder / "latest" / "summary.json").exists()
    resumed = finish(folder, "--resume")
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
    assert_equal_arrays(newest_checkpoint(ours), newest_checkpoint(theirs))
