"""A trial of a search reports by the signs and the file that Vertex AI's service reads."""

import json
from types import SimpleNamespace

import pytest

from trainer.training import trial

TASK = json.dumps({"task": {"type": "workerpool0", "index": 0, "trial": "3"}})


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    """The file of a process that has not reported yet, at cloudml-hypertune's default name."""
    path = tmp_path / "hypertune" / "output.metrics"
    monkeypatch.setattr(trial, "_DEFAULT_FILE", str(path))
    monkeypatch.setattr(trial, "_reported", [])
    return path


def read(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("sign", ["CLUSTER_SPEC", "TF_CONFIG", "CLOUD_ML_TRIAL_ID"])
def test_any_sign_of_a_trial_makes_it_report(sign, file, tmp_path, monkeypatch):
    monkeypatch.setenv(sign, "3" if sign == "CLOUD_ML_TRIAL_ID" else TASK)
    trial.begin(SimpleNamespace(base_output_directory=str(tmp_path), values={"epochs": "2"}))
    trial.report({"epoch": 1, "validation_loss": 0.5}, 10)
    (entry,) = read(file)
    assert (entry["trial"], entry["validation_loss"], entry["global_step"]) == ("3", "0.5", "10")
    assert json.loads((tmp_path / "trial.json").read_text())["trial"] == 3


def test_training_without_a_search_reports_nothing(file, monkeypatch):
    monkeypatch.setenv("CLUSTER_SPEC", json.dumps({"task": {"type": "workerpool0", "index": 0}}))
    monkeypatch.setenv("TF_CONFIG", "[]")
    trial.report({"validation_loss": 0.5}, 10)
    assert not trial.is_trial() and not file.exists()


def test_last_hundred_lines_have_the_best_of_each_metric(file, monkeypatch):
    monkeypatch.setenv("CLUSTER_SPEC", TASK)
    for step in range(300):
        # Both are best in step 7; the first one falls, the second one rises to it.
        row = {"validation_loss": abs(step - 7), "validation_accuracy": 1 / (1 + abs(step - 7))}
        trial.report({"loss": 0, **row}, step)
    entries = read(file)
    assert len(entries) == 100
    for name, best in (("validation_loss", min), ("validation_accuracy", max)):
        values = {
            int(entry["global_step"]): float(entry[name]) for entry in entries if name in entry
        }
        assert best(values, key=values.get) == 7
        assert list(values)[-1] == 299 and len(values) > 45
    steps = [int(entry["global_step"]) for entry in entries]
    assert steps == sorted(steps)
