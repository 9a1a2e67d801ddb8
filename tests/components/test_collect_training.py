"""Collect what the chief has written as a Model and Metrics; report what it has not as an error."""

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


def test_the_model_is_where_the_chief_exported_it_and_its_numbers_are_metrics(tmp_path, artifacts):
    directory = tmp_path / "training"
    written = {"steps": 276, "validation": {"accuracy": 0.97}, "strategy": "MirroredStrategy"}
    (directory / "metrics.json").write_text(json.dumps(written))
    (directory / "history.csv").write_text("epoch,loss\n1,0.5\n")
    collect_training.python_func(**artifacts)
    assert artifacts["model"].uri == f"{directory}/model"
    assert artifacts["model"].metadata["framework"] == "tensorflow"
    assert artifacts["metrics"].metadata == {"steps": 276, "validation_accuracy": 0.97}


def test_a_job_that_left_no_metrics_is_named_with_its_file(tmp_path, artifacts, refused):
    error = refused(collect_training.python_func, **artifacts)
    assert f"{tmp_path}/training/metrics.json is missing" in error
