"""The lines that the chief prints of a run."""

import re

import pytest

from trainer.config import TrainingConfig
from trainer.training import logs
from trainer.training.cluster import Cluster
from trainer.training.progress import Progress, Sums


@pytest.fixture
def chief(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_LINES", 0.0)
    return logs.Log(str(tmp_path), Cluster(), 10, TrainingConfig(epochs=3))


def test_first_line_of_a_run_estimates_no_time_left(chief, capsys):
    progress = Progress(sums=Sums(loss=5.0, correct=5.0, examples=10.0), seconds=40.0)
    chief.step(progress, 0)
    progress.step = 1
    chief.step(progress, 1)
    first, second = capsys.readouterr().out.splitlines()
    assert "left" not in first
    # The 40 seconds of the first step, which includes the tracing, do not count.
    assert re.search(r", \d+\.\d s left$", second)


@pytest.mark.parametrize(
    ("validated", "line"),
    [
        (
            {"validation_loss": 0.9, "validation_accuracy": 0.6},
            "accuracy 0.5000, validation loss 0.9000 (best), validation accuracy 0.6000, 5 examp",
        ),
        ({}, "accuracy 0.5000, 5 examples/s"),
    ],
    ids=["validated", "not validated"],
)
def test_best_marks_the_monitored_metric(chief, capsys, validated, line):
    rates = {"learning_rate": 0.1, "images_per_second": 5.0, "input_wait_fraction": 0.0}
    row = {"epoch": 1, "phase": 1, "loss": 1.0, "accuracy": 0.5, "seconds": 2.0, **rates}
    chief.epoch(Progress(epoch=1, history=[row | validated], best_epoch=1), 10)
    assert line in capsys.readouterr().out
