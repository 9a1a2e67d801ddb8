"""Searches for hyperparameters on this machine: killed, resumed, and equal to plain runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.runs import run_folders
from tests.child_processes import ROOT, started
from tests.learned_weights import exported
from tests.pipelines.local.conftest import is_alive, wait_for
from tests.pipelines.local.package_runs import descendants

SETTINGS = ["--set=epochs=2", "--set=worker_count=0", "--set=strategy=auto", "--set=min_accuracy=0"]


def command(name, recipe, folder, *arguments):
    words = [sys.executable, "-m", "pipelines", name, recipe, "--local"]
    return [*words, f"--runs-directory={folder}", *arguments]


def succeed(*words):
    """Run a command of the project; return what it prints."""
    words = [sys.executable, "-m", "pipelines", *words]
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def trials_of(folder):
    """Return the numbers and values of the trials that a search has begun, and their states."""
    path = Path(folder, "latest", "logs", "search", "tuning_job.json")
    job = json.loads(path.read_text()) if path.exists() else {}
    return {trial["id"]: (trial["parameters"], trial["state"]) for trial in job.get("trials", ())}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_search_goes_on_and_its_best_trial_is_a_plain_run(tmp_path):
    searching = command("tune", "digits", tmp_path, "--trials=4", "--parallel=2", *SETTINGS)
    with started(searching, cwd=ROOT) as process:
        wait_for(lambda: "SUCCEEDED" in {state for _, state in trials_of(tmp_path).values()})
        children = descendants(process)
    wait_for(lambda: not any(map(is_alive, children)))
    before = trials_of(tmp_path)
    resumed = command("run", "digits-search", tmp_path, "--resume")
    subprocess.run(resumed, cwd=ROOT, check=True, capture_output=True)
    after = trials_of(tmp_path)
    assert after.keys() == {"1", "2", "3", "4"}
    for number, (values, state) in before.items():
        assert after[number][0] == values
        assert state != "SUCCEEDED" or after[number] == (values, state)

    run = run_folders.load_by_name(tmp_path, "latest")
    found = json.loads(Path(run.search_report).with_name("trials").read_text())
    assert [one["trial"] for one in found["trials"]] == ["", "1", "2", "3", "4"]
    assert run.search == found["reason"]
    assert (tmp_path / "latest" / "search.html").exists()
    listed = succeed("runs", f"--runs-directory={tmp_path}")
    assert "1 other trial: status" in listed
    pair = succeed("runs", f"--runs-directory={tmp_path}", "latest/1", "latest/2")
    assert " learning_rate " in pair and " validation loss " in pair
    assert (tmp_path / f"{run.name}-1--{run.name}-2.html").exists()
    best = next(one for one in found["trials"] if one["trial"] == found["best"])
    values = [f"--set={name}={value}" for name, value in best["values"].items() if "." not in name]
    options = {
        name.partition(".")[2]: json.loads(value)
        for name, value in best["values"].items()
        if "." in name
    }
    plain = [*SETTINGS, *values, f"--set=model_options={json.dumps(options)}"]
    subprocess.run(
        command("run", "digits", tmp_path / "plain", *plain),
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    trained = run_folders.load_by_name(tmp_path / "plain", "latest").training
    trials = Path(run.artifacts, "plan-defaults", "training", "trials", run.name)
    trial = trials / found["best"]
    assert exported(trial) == exported(Path(trained))
