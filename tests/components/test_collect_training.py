"""Test that collect_training turns the chief's output into a Model and Metrics."""

import json

import pytest
from kfp import dsl

from components.collect_training import collect_training
from tests.components.artifacts import artifact


@pytest.fixture
def artifacts(tmp_path):
    (tmp_path / "training").mkdir()
    return {
        "training": dsl.Artifact(uri=str(tmp_path / "training")),
        "model": artifact(dsl.Model, tmp_path / "out" / "model"),
        "metrics": artifact(dsl.Metrics, tmp_path / "out" / "metrics"),
    }


def test_model_and_metrics_are_the_chiefs_output(tmp_path, artifacts):
    directory = tmp_path / "training"
    written = {"steps": 276, "validation": {"accuracy": 0.97}, "strategy": "MirroredStrategy"}
    (directory / "metrics.json").write_text(json.dumps(written))
    (directory / "history.csv").write_text("epoch,loss\n1,0.5\n")
    collect_training.python_func(**artifacts)
    assert artifacts["model"].uri == f"{directory}/model"
    assert artifacts["model"].metadata["framework"] == "tensorflow"
    assert artifacts["metrics"].metadata == {"steps": 276, "validation_accuracy": 0.97}


def test_missing_metrics_are_reported_with_their_file(tmp_path, artifacts, refused):
    error = refused(collect_training.python_func, **artifacts)
    assert f"{tmp_path}/training/metrics.json is missing" in error
