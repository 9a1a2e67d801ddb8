"""A model's figures reach the console as metrics, a matrix, a curve and a report."""

import json

import numpy as np
import pytest
from kfp import dsl

from components.evaluate_model import evaluate_model
from tests.components.artifacts import artifact
from tests.trainer.report_samples import write_model, write_records

CLASSES = ["rose", "tulip"]


@pytest.fixture
def evaluated(tmp_path):
    labels = np.array([0, 0, 1, 1, 1])
    # The model answers with the shares of the pixels: it is wrong about the last.
    pixels = np.array([[9, 1], [8, 2], [1, 9], [3, 7], [6, 4]], np.uint8)
    write_records(tmp_path / "records", CLASSES, labels, pixels)
    training = tmp_path / "training"
    training.mkdir()
    (training / "metrics.json").write_text(json.dumps({"epochs": 1, "steps": 5}))
    (training / "history.csv").write_text("epoch,loss,accuracy,seconds\n1,0.5,0.8,2.0\n")
    artifacts = {
        "model": dsl.Model(uri=write_model(tmp_path / "model", CLASSES)),
        "records": dsl.Dataset(uri=str(tmp_path / "records")),
        "training": dsl.Artifact(uri=str(training), metadata={"optimizer": "adamw"}),
        "metrics": artifact(dsl.Metrics, tmp_path / "out" / "metrics"),
        "classification": artifact(dsl.ClassificationMetrics, tmp_path / "out" / "classification"),
        "report": artifact(dsl.HTML, tmp_path / "out" / "report"),
    }
    outputs = evaluate_model.python_func(title="digits-1", **artifacts)
    return outputs, artifacts


def test_the_step_puts_out_accuracy_metrics_matrix_curve_and_report(evaluated, tmp_path):
    (accuracy,), artifacts = evaluated
    assert accuracy == pytest.approx(0.8)
    assert artifacts["metrics"].metadata["accuracy"] == pytest.approx(0.8)
    assert artifacts["metrics"].metadata["examples"] == 5
    matrix = artifacts["classification"].metadata["confusionMatrix"]
    assert [spec["displayName"] for spec in matrix["annotationSpecs"]] == CLASSES
    assert [row["row"] for row in matrix["rows"]] == [[2, 0], [1, 2]]
    curve = artifacts["classification"].metadata["confidenceMetrics"]
    assert curve[-1]["recall"] == 1
    assert artifacts["report"].uri == str(tmp_path / "out" / "report.html")
    text = (tmp_path / "out" / "report.html").read_text()
    assert "digits-1" in text
    assert "adamw" in text
    json.dumps([artifact.metadata for artifact in artifacts.values()], allow_nan=False)
