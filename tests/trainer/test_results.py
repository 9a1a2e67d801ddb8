"""Metrics and history that the chief has written are read back as numbers."""

import json

from trainer.evaluation import results


def test_metrics_and_history_are_read_back(tmp_path):
    others = {"stopped": "", "best_epoch": None, "versions": {"keras": "3"}}
    metrics = {"steps": 30, "validation": {"accuracy": 0.9}, **others}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    (tmp_path / "history.csv").write_text("epoch,loss,validation_loss\n1,0.5,\n")
    read = results.load(str(tmp_path))
    assert read.metrics == metrics
    assert read.history == [{"epoch": 1.0, "loss": 0.5, "validation_loss": None}]
    assert read.scalars() == {"steps": 30, "validation_accuracy": 0.9}
