"""The lines that the chief prints of a run."""

import re
import types

import pytest

from trainer.config import TrainingConfig
from trainer.training import logs
from trainer.training.cluster import Cluster
from trainer.training.progress import Progress, Sums

RATES = {"learning_rate": 0.1, "images_per_second": 5.0, "input_wait_fraction": 0.0}
ROW = {"epoch": 1, "phase": 1, "loss": 1.0, "accuracy": 0.5, "seconds": 2.0, **RATES}


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
    ("stopped", "line"),
    [("", r"epoch 1/7: .*, 1:00 left$"), ("enough", r"epoch 1/5: .*, 40\.0 s left$")],
)
def test_time_left_is_that_since_the_first_step(tmp_path, monkeypatch, capsys, stopped, line):
    now = 0.0
    monkeypatch.setattr(logs, "time", types.SimpleNamespace(monotonic=lambda: now))
    config = TrainingConfig(model="transfer", epochs=3, fine_tune_epochs=4)
    log = logs.Log(str(tmp_path), Cluster(), 10, config)
    now = 100.0  # The first step includes the tracing.
    log.step(Progress(step=1), 1)
    now = 109.0
    log.epoch(Progress(epoch=1, history=[ROW], stopped=stopped), 10)
    assert re.search(line, capsys.readouterr().out.splitlines()[0])


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
    chief.epoch(Progress(epoch=1, history=[ROW | validated], best_epoch=1), 10)
    assert line in capsys.readouterr().out
