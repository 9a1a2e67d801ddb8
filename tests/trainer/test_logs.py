"""What the chief's console says of a run."""

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


def row(epoch: int, **more: float) -> dict[str, float]:
    rates = {"learning_rate": 0.1, "images_per_second": 5.0, "input_wait_fraction": 0.0}
    return {"epoch": epoch, "phase": 1, "loss": 1.0, "accuracy": 0.5, "seconds": 2.0} | rates | more


def test_the_first_line_of_a_run_gives_no_time_left(chief, capsys):
    progress = Progress(sums=Sums(loss=5.0, correct=5.0, examples=10.0), seconds=40.0)
    chief.step(progress, 0)
    progress.step = 1
    chief.step(progress, 1)
    first, second = capsys.readouterr().out.splitlines()
    assert "left" not in first
    # The 40 seconds of the first step, which held the tracing, do not count.
    assert re.search(r", 0:\d\d left$", second)


def test_best_stands_beside_the_metric_that_is_the_best(chief, capsys):
    scored = row(1, validation_loss=0.9, validation_accuracy=0.6)
    chief.epoch(Progress(epoch=1, history=[scored], best_epoch=1), 10)
    assert "validation loss 0.9000 (best), validation accuracy 0.6000," in capsys.readouterr().out


def test_an_epoch_that_was_not_validated_is_not_called_best(chief, capsys):
    chief.epoch(Progress(epoch=1, history=[row(1)], best_epoch=1), 10)
    assert "best" not in capsys.readouterr().out
