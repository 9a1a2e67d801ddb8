"""Test that collect_training turns the chief's output into a Model and Metrics."""

import json
import shutil

import pytest
from kfp import dsl

from components.collect_training import collect_training
from tests.components.artifacts import artifact
from tests.trainer.data.picture_folders import flip
from vertex import checked_json


def test_model_and_metrics_are_the_chiefs_output(tmp_path, refused):
    directory = tmp_path / "training"
    directory.mkdir()
    model = artifact(dsl.Model, tmp_path / "out" / "model")
    metrics = artifact(dsl.Metrics, tmp_path / "out" / "metrics")
    artifacts = {"training": dsl.Artifact(uri=str(directory)), "model": model, "metrics": metrics}
    error = refused(collect_training.python_func, **artifacts)
    assert f"{directory}/metrics.json is missing" in error
    others = {"strategy": "mirrored", "best_epoch": None, "versions": {"keras": "3"}}
    written = {"steps": 276, "validation": {"accuracy": 0.97}, **others}
    (directory / "metrics.json").write_text(json.dumps(checked_json.with_checksum(written)))
    (directory / "history.csv").write_text("epoch,loss\n1,0.5\n")
    collect_training.python_func(**artifacts)
    assert model.uri == f"{directory}/model"
    assert model.metadata["framework"] == "tensorflow"
    assert metrics.metadata == {"steps": 276, "validation_accuracy": 0.97}


@pytest.mark.parametrize("name", ["metrics.json", "history.csv"])
def test_damaged_results_are_named(tmp_path, trained, refused, name):
    training = shutil.copytree(trained, tmp_path / "training")
    model = artifact(dsl.Model, tmp_path / "out" / "model")
    metrics = artifact(dsl.Metrics, tmp_path / "out" / "metrics")
    flip(training / name)
    error = refused(
        collect_training.python_func,
        training=dsl.Artifact(uri=str(training)),
        model=model,
        metrics=metrics,
    )
    assert f"{training / name} is damaged" in error
