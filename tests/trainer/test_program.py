"""A user's own training program runs on each replica, and its model is exported as any other."""

import json

import numpy as np
import pytest

from pipelines.parameters import check_parameters
from tests import replicas
from tests.learned_weights import exported
from tests.refusals import refused
from trainer.evaluation.prediction import ServedModel
from trainer.exported import results
from trainer.report.learning import summarize_learning
from trainer.tasks import task_of
from trainer.training.config import TrainingConfig

PROGRAM = "tests.trainer.own_program:main"
OPTIONS = f'--model={PROGRAM} --model_options={{"units":32,"epochs":4}}'


@pytest.fixture(scope="module")
def alone(run_here, digit_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    assert run_here(replicas.flags(digit_records, folder, OPTIONS)) == 0
    return folder


def test_program_leaves_what_the_pipeline_reads(digit_records, alone):
    metrics, history = results.load(str(alone))
    assert [row["epoch"] for row in history] == [1, 2, 3, 4]
    assert metrics["validation"]["accuracy"] == history[-1]["validation_accuracy"] > 0.6
    assert (metrics["model"], metrics["replicas"]) == (PROGRAM, 1)
    model = ServedModel(str(alone / "model"), digit_records)
    answers = [model.answer(batch) for batch in model.read_stored_batches("validation")]
    assert np.concatenate([answer["probabilities"] for answer in answers]).shape[1] == 10


def test_program_may_measure_other_metrics_than_its_task(run_here, digit_records, tmp_path):
    options = '--model_options={"units":8,"epochs":2,"metric":"sparse_top_k_categorical_accuracy"}'
    flags = replicas.flags(digit_records, tmp_path, f"--model={PROGRAM} {options}")
    assert run_here(flags) == 0
    metrics, history = results.load(str(tmp_path))
    task = task_of(digit_records)
    assert task.find_overfitting(metrics) is None
    assert len(summarize_learning(metrics, history, task.measured)["figures"]) == 1  # the loss


@pytest.mark.slow
def test_program_learns_the_same_on_two_workers(digit_records, alone, tmp_path):
    flags = replicas.flags(digit_records, tmp_path, OPTIONS)
    replicas.run("trainer.task", flags, replicas.CHIEF_AND_WORKER, tmp_path / "logs")
    assert json.loads((tmp_path / "metrics.json").read_text())["replicas"] == 2
    pairs = zip(exported(tmp_path), exported(alone), strict=True)
    for (shape, values), (_, expected) in pairs:
        if shape:
            found, known = (np.frombuffer(content, np.float32) for content in (values, expected))
            np.testing.assert_allclose(np.sort(found), np.sort(known), atol=1e-4)


@pytest.mark.slow
def test_program_learns_with_parameter_servers(digit_records, tmp_path):
    flags = replicas.flags(digit_records, tmp_path, OPTIONS)
    roles = [*replicas.CHIEF_AND_WORKER, ("ps", 0)]
    with replicas.Cluster("trainer.task", flags, roles, tmp_path / "logs") as cluster:
        cluster.start_all()
        assert cluster.processes["chief", 0].wait(240) == 0, cluster.tails()
    metrics, history = results.load(str(tmp_path))
    assert metrics["strategy"] == "parameter_server"
    assert history[-1]["validation_accuracy"] > 0.6
    model = ServedModel(str(tmp_path / "model"), digit_records)
    batch = next(iter(model.read_stored_batches("validation")))
    assert (model.answer(batch)["probabilities"].max(axis=1) > 0.2).any()


def test_program_without_a_model_is_an_error(run_here, digit_records, tmp_path, capfd):
    flags = replicas.flags(digit_records, tmp_path, "--model=tests.trainer.own_program:forgets")
    assert run_here(flags) == 2
    assert "forgets' returned NoneType; return a keras.Model" in capfd.readouterr().err


def test_options_of_a_program_are_checked():
    message = refused(TrainingConfig, model=PROGRAM, model_options={"units": 8, "rows": 1})
    assert "rows" in message
    message = refused(TrainingConfig, model=PROGRAM)
    assert "needs 'units', which has no default" in message


def test_options_that_a_program_ignores_are_refused():
    program = {"model": PROGRAM, "model_options": {"units": 8}}
    for options in ({"warm_start": "gs://b/f"}, {"evaluator_count": 1}, {"epochs": 3}):
        message = refused(check_parameters, {**program, **options}, origin="--set")
        ((name, value),) = options.items()
        assert f"{name}={value!r} has an effect only with a model that is not a program" in message
    # The batches of the project's loop, which would not divide among three workers.
    check_parameters({**program, "worker_count": 2}, origin="--set")
