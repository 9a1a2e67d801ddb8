"""The task of docs/tasks.md: a user's own, with another loss and another metric."""

import re

import numpy as np
import pytest

from pipelines.parameters import check_parameters
from tests import tables
from tests.child_processes import ROOT
from tests.refusals import refused
from tests.trainer.training_runs import export_and_evaluate, train
from trainer.tasks import task_of

PAGE = ROOT / "docs" / "tasks.md"
MODULE = re.search(r"`pricing.py`:\n\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]
HOMES = {
    "columns": [{"name": "size", "type": "numeric"}],
    "crosses": [],
    "label": {"column": "price", "type": "numeric"},
}


@pytest.fixture
def table(tmp_path, monkeypatch):
    (tmp_path / "pricing.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    generator = np.random.default_rng(0)
    sizes = generator.uniform(20, 200, 1000)
    prices = sizes * generator.lognormal(0, 0.3, 1000)
    rows = [f"{size:.2f},{price:.2f}" for size, price in zip(sizes, prices, strict=True)]
    return tables.write_csv(tmp_path / "homes.csv", rows, "size,price")


def test_own_task_trains_with_its_loss_and_reports_its_metric(table, tmp_path, capsys):
    dataset = tables.write(table, tmp_path / "records", **HOMES, task="pricing:Careful")
    options = {"model": "wide_and_deep", "batch_size": 32, "learning_rate": 0.01, "epochs": 6}
    trained = train(dataset, tmp_path / "run", **options)
    found = export_and_evaluate(dataset, tmp_path, trained.model)
    share = float((found.answers.read("value") > found.answers.read("label")).mean())
    # The mean, which the loss of regression learns, is above 56% of log-normal prices.
    assert share < 0.45
    assert found.scalars()["too_high"] == pytest.approx(share)
    assert task_of(dataset).measured == ("loss", "mae", "too_high")
    assert "validation too_high 0." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            "pricing:Multilabel",
            "has no Multilabel that is derived from trainer.tasks.regress",
        ),
        ("pricing:Carefree", "has no Carefree that is derived from"),
        ("pricing", "task='pricing' is not MODULE:NAME, such as"),
        (
            "no_such_module:Task",
            "there is no module no_such_module; put it into the working folder",
        ),
        ("trainer.tasks:Task", "are packages of this project, which hide yours"),
    ],
)
def test_unusable_task_is_refused(table, tmp_path, task, message):
    def write_and_open():
        task_of(tables.write(table, tmp_path / "records", **HOMES, task=task))

    assert message in refused(write_and_open)


def test_metric_that_is_only_a_name_is_refused(table, tmp_path):
    module = MODULE.replace("*Regression.metrics, TOO_HIGH", "*Regression.metrics, 'too_high'")
    (tmp_path / "naming.py").write_text(module)
    dataset = tables.write(table, tmp_path / "records", **HOMES, task="naming:Careful")
    message = refused(task_of, dataset)
    assert "has the metric 'too_high'; declare it as a trainer.metrics.metric.Metric" in message


def test_floors_of_own_metrics_are_accepted(table):
    options = {**HOMES, "source": f"csv:{table}", "model": "wide_and_deep"}
    options |= {"augmentation": "none", "min_accuracy": 0, "ceilings": {"too_high": 0.3}}
    check_parameters({**options, "task": "pricing:Careful"}, origin="it")
    assert "'too_high' is not a metric" in refused(check_parameters, options, origin="it")
