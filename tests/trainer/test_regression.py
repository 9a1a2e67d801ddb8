"""Numbers to predict: training, answers with intervals, metrics, the gate, serving, the report."""

import base64
import csv
import json
import math
import random

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import (
    mean_absolute_error,
    mean_pinball_loss,
    r2_score,
    root_mean_squared_error,
)

from pipelines.parameters import check_parameters
from tests import replicas, tables
from tests.refusals import refused
from tests.trainer.report.report_page import HISTORY, TRAINING, Page
from tests.trainer.training_runs import (
    evaluate_untrained,
    export_and_evaluate,
    train,
    train_and_evaluate,
)
from trainer.data.schema import Dataset
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.writer import create_tfrecords
from trainer.evaluation import drift, gate, prediction_file
from trainer.evaluation.champion_scores import score
from trainer.evaluation.gate_options import GateOptions
from trainer.evaluation.scoring import evaluate
from trainer.exported.export import export
from trainer.report.document import write_report
from trainer.report.findings import list_findings
from trainer.serving.predictor import Predictor
from trainer.tasks import task_of
from trainer.tasks.label_kinds import REGRESSION
from trainer.tasks.regression import CONFIDENCE, NumberEvaluation
from trainer.training.config import TrainingConfig
from vertex.errors import InputError

LABEL = {"column": "price", "type": "numeric", "log": True}
HOMES = {
    "label": LABEL,
    "crosses": [],
    "columns": [
        {"name": "size", "type": "numeric", "quantiles": 8},
        {"name": "town", "type": "vocabulary", "size": 5},
    ],
}
OPTIONS = {
    "model": "wide_and_deep",
    "model_options": {"hidden_units": [16]},
    "batch_size": 64,
    "learning_rate": 0.01,
    "wide_learning_rate": 0.02,
}


def lines(count: int, factor: float = 1.0) -> list[str]:
    """Rows of homes: the price is proportional to the size, and higher in one of two towns."""
    generator = random.Random(0)
    made = []
    for _ in range(count):
        size, town = generator.uniform(20, 200), generator.choice(["Ax", "By"])
        price = factor * size * (3000 if town == "Ax" else 2000) * generator.lognormvariate(0, 0.1)
        made.append(f"{size:.1f},{town},{price:.0f}")
    return made


def write(folder, rows: list[str], **changes) -> Dataset:
    table = tables.write_csv(folder / "homes.csv", rows, "size,town,price")
    return tables.write(table, folder / "records", **{**HOMES, **changes})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return write(tmp_path_factory.mktemp("homes"), lines(2400))


@pytest.fixture(scope="module")
def evaluation(dataset, tmp_path_factory) -> NumberEvaluation:
    return train_and_evaluate(dataset, tmp_path_factory.mktemp("run"), **OPTIONS, epochs=8)


@pytest.fixture(scope="module")
def untrained(dataset, tmp_path_factory) -> NumberEvaluation:
    return evaluate_untrained(dataset, tmp_path_factory.mktemp("untrained"), **OPTIONS)


def test_metrics_are_those_of_scikit_learn(evaluation, tmp_path):
    prediction_file.write(str(tmp_path / "predictions.csv"), evaluation.answers)
    with (tmp_path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["key", "label", "prediction", "squared_error", "low", "high"]
    labels, values, losses, low, high = (
        np.array([float(row[name]) for row in rows])
        for name in ("label", "prediction", "squared_error", "low", "high")
    )
    figures = evaluation.scalars()
    assert figures["r2"] == pytest.approx(r2_score(labels, values)) and figures["r2"] > 0.9
    assert figures["rmse"] == pytest.approx(root_mean_squared_error(labels, values))
    assert figures["mae"] == pytest.approx(mean_absolute_error(labels, values))
    assert figures["baseline_rmse"] == pytest.approx(labels.std())
    np.testing.assert_allclose(losses, (values - labels) ** 2, rtol=1e-4)
    assert figures["coverage"] == pytest.approx(((low <= labels) & (labels <= high)).mean())
    assert abs(figures["coverage"] - CONFIDENCE) < 0.06
    assert figures["interval_width"] == pytest.approx((high - low).mean(), rel=1e-5)
    assert ((low < values) & (values < high)).all()
    for name in ("mae", "rmse", "r2", "coverage"):
        assert figures[f"{name}_low"] < figures[name] < figures[f"{name}_high"]
    recorded = evaluation.registry_metrics()
    assert recorded["rSquared"] == pytest.approx(np.corrcoef(labels, values)[0, 1] ** 2)
    assert recorded["rootMeanSquaredError"] == figures["rmse"]
    assert sum(part.examples for part in evaluation.deciles) == len(labels)
    mean = sum(part.mae * part.examples for part in evaluation.deciles) / len(labels)
    assert mean == pytest.approx(figures["mae"])
    worst = [abs(example.figures["error"]) for example in evaluation.worst]
    largest = sorted(np.abs(values - labels), reverse=True)[: len(worst)]
    assert worst == pytest.approx(largest, rel=1e-3)
    predictions = prediction_file.parse((tmp_path / "predictions.csv").read_bytes())
    assert (predictions.kind, predictions.scores.correct) == (REGRESSION, None)


def test_server_answers_as_the_evaluation_does(dataset, evaluation):
    predictor = Predictor("homes@1")
    predictor.load(evaluation.model)
    rows = [*tables.read_rows(dataset, "test")[:20], {"size": 1e9, "town": b"Ax"}]
    instances = [
        {name: value.decode() if name == "town" else value for name, value in row.items()}
        for row in ({k: v for k, v in row.items() if k in ("size", "town")} for row in rows)
    ]
    request = predictor.preprocess({"instances": instances})
    answers = predictor.postprocess(predictor.predict(request))["predictions"]
    for name in ("value", "low", "high"):
        expected = evaluation.answers.read(name)[:20]
        np.testing.assert_allclose([one[name] for one in answers[:20]], expected, rtol=1e-5)
    # However large an input is, the answer is near the labels of the training split.
    most = dataset.feature("label").statistics["maximum"]
    assert all(0 <= one["low"] <= one["value"] <= one["high"] < 3 * most for one in answers)


def test_column_of_many_values_is_sliced_by_the_worst_ones(tmp_path):
    generator = random.Random(0)
    rows = []
    for number in range(5000):
        town, size = number % 50, generator.uniform(20, 200)
        price = size * 1000 * (50 if town in (7, 41) else 1) * generator.lognormvariate(0, 0.1)
        rows.append(f"{size:.1f},town {town},{price:.0f}")
    rows += [f"{50 + number},rare,{10**6}" for number in range(3)]
    towns = {"name": "town", "type": "vocabulary"}
    changes = {"columns": [HOMES["columns"][0], towns], "split_fractions": [0.4, 0.1, 0.5]}
    dataset = write(tmp_path, rows, **changes)
    evaluation = evaluate_untrained(dataset, tmp_path / "run", **OPTIONS)
    (cut,) = evaluation.slices
    names = [part.name for part in cut.slices]
    assert (cut.by, len(names), names[-1]) == ("worst of 51 values", 11, "41 other values")
    assert set(names[:2]) == {"town 7", "town 41"}
    assert "rare" not in names[:2]
    assert sum(part.examples for part in cut.slices) == evaluation.examples
    mean = sum(part.figures["mae"] * part.examples for part in cut.slices) / evaluation.examples
    assert mean == pytest.approx(evaluation.metrics["mae"].value)


@pytest.mark.parametrize("log", [False, True])
def test_objectives_are_errors_in_standard_deviations(dataset, tmp_path, log):
    if not log:
        dataset = write(tmp_path, lines(300), label={**LABEL, "log": False})
    statistics = dataset.feature("label").statistics
    labels = np.array([100_000, 200_000, 500_000], np.float32)
    outputs = np.array([[0.5], [-1.0], [9.0]], np.float32)
    scaled = (np.log1p(labels) if log else labels) - statistics["mean"]
    errors = np.abs(scaled / statistics["deviation"] - outputs[:, 0])
    task = task_of(dataset)
    expected = {
        "squared": errors**2,
        "absolute": errors,
        "huber": np.where(errors < 1, errors**2 / 2, errors - 0.5),
    }
    for loss, values in expected.items():
        objective = task.make_objective(TrainingConfig(**OPTIONS, loss=loss))
        found = objective(tf.constant(labels), tf.constant(outputs))
        np.testing.assert_allclose(found, values, rtol=1e-4)
    loss, mae = task.scores(tf.constant(labels), tf.constant(outputs))
    np.testing.assert_allclose(loss, errors**2, rtol=1e-4)
    answered = task.answers(tf.constant(outputs))
    assert list(answered) == ["value"]
    np.testing.assert_allclose(mae, np.abs(answered["value"] - labels), rtol=1e-4)


@pytest.mark.slow
def test_adaptive_intervals_are_as_wide_as_errors_are_large(tmp_path):
    """Errors are proportional to the size: one width for all is too wide for the smallest homes."""
    widths, covered = {}, {}
    for adaptive in (False, True):
        folder = tmp_path / str(adaptive)
        folder.mkdir()
        label = {"column": "price", "type": "numeric", "adaptive": adaptive}
        dataset = write(folder, lines(4000), label=label)
        answers = train_and_evaluate(dataset, folder / "run", **OPTIONS, epochs=12).answers
        label, value, low, high = (answers.read(name) for name in ("label", "value", "low", "high"))
        assert ((low <= value) & (value <= high)).all()
        inside, fifth = (low <= label) & (label <= high), np.argsort(value)[: len(value) // 5]
        assert abs(inside.mean() - CONFIDENCE) < 0.06
        widths[adaptive], covered[adaptive] = (high - low)[fifth].mean(), inside[fifth].mean()
    assert widths[True] < 0.6 * widths[False]
    assert covered[True] < 0.97 < covered[False]


def test_quantiles_are_learned_by_the_pinball_loss(tmp_path):
    dataset = write(tmp_path, lines(300), label={**LABEL, "adaptive": True})
    statistics = dataset.feature("label").statistics
    labels = np.array([100_000, 500_000], np.float32)
    outputs = np.array([[0.5, -0.5, 0.9], [-1.0, -2.0, 3.0]], np.float32)
    scaled = (np.log1p(labels) - statistics["mean"]) / statistics["deviation"]
    expected = (scaled - outputs[:, 0]) ** 2
    for column, share in ((1, 0.05), (2, 0.95)):
        expected += [
            mean_pinball_loss([own], [end], alpha=share)
            for own, end in zip(scaled, outputs[:, column], strict=True)
        ]
    task = task_of(dataset)
    assert task.outputs == 3
    objective = task.make_objective(TrainingConfig(**OPTIONS))
    np.testing.assert_allclose(objective(tf.constant(labels), outputs), expected, rtol=1e-4)


@pytest.mark.slow
def test_few_validation_examples_give_no_intervals(tmp_path):
    dataset = write(tmp_path, lines(400))
    assert dataset.splits["validation"].examples < 50
    evaluation = train_and_evaluate(dataset, tmp_path / "run", **OPTIONS, epochs=1)
    assert evaluation.metrics["coverage"] is None and "interval_width" not in evaluation.scalars()
    assert "no_intervals" in [finding.kind for finding in evaluation.find_findings()]
    rows = evaluation.answers.format_rows(0, 2)
    assert rows[-2:] == [[None, None], [None, None]]
    report = write_page(tmp_path, evaluation, dataset)
    assert "Predictions have no interval, which needs 50 examples" in report.text


def judge(evaluation, champion=None, **options) -> gate.Verdict:
    return gate.judge(evaluation, GateOptions(**options), registers=True, champion=champion)


def test_metric_that_is_not_finite_meets_no_bound(evaluation, monkeypatch):
    values = {"r2": math.nan, "mae": math.inf}
    monkeypatch.setattr(type(evaluation), "scalars", lambda _: values)
    missed = judge(evaluation, floors={"r2": 0.1}, ceilings={"mae": 1e9})
    assert missed.reason == (
        "r2 has a bound, but is undefined on the test split; mae has a bound, but is undefined on "
        "the test split"
    )


def test_gate_compares_squared_errors(evaluation, untrained):
    first = judge(evaluation, floors={"r2": 0.8}, ceilings={"mae": 1e6})
    assert (first.accepted, first.role) == (True, "champion")
    assert first.line.startswith(
        f"accepted: r2 {evaluation.headline[1]:.4f} (minimum 0.8000), RMSE "
    )
    figures = first.to_dict()
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    missed = judge(evaluation, floors={"r2": 0.999}, ceilings={"rmse": 10})
    assert missed.reason == (
        f"r2 {evaluation.headline[1]:.6g} is below its floor 0.999; rmse "
        f"{evaluation.metrics['rmse'].value:.6g} is above its ceiling 10"
    )
    better = judge(evaluation, score("homes@1", untrained.model, evaluation))
    assert better.accepted and better.comparison and better.comparison.metric == "r2"
    for verdict, of in (
        (better.comparison.candidate, evaluation),
        (better.comparison.champion, untrained),
    ):
        assert verdict == pytest.approx(of.headline[1])
    difference = evaluation.headline[1] - untrained.headline[1]
    assert better.comparison.difference == pytest.approx(difference)
    assert better.comparison.low < difference < better.comparison.high
    closer = better.comparison.candidate_only, better.comparison.champion_only
    words = f"the candidate is closer on {closer[0]}, the champion on {closer[1]}"
    assert f"of {evaluation.examples} examples, {words}" in better.reason
    same = score("homes@2", evaluation.model, evaluation)
    assert not judge(evaluation, same).accepted
    assert judge(evaluation, same, champion_rule="not_worse", margin=0.01).accepted


def test_champion_that_contradicts_its_record_is_not_compared(evaluation, untrained):
    recorded = {"rootMeanSquaredError": untrained.metrics["rmse"].value}
    assert score("homes@1", untrained.model, evaluation, recorded).pairs
    recorded["rootMeanSquaredError"] *= 1.01
    problem = score("homes@1", untrained.model, evaluation, recorded).problem
    assert "its RMSE on these records was" in problem


def test_classifier_is_no_champion_of_numbers(evaluation, row_model):
    problem = score("taxi@1", row_model, evaluation).problem
    assert "has no signature serving_examples with the outputs value" in problem


def test_constant_answers_are_not_accepted(untrained):
    verdict = judge(untrained)
    assert not verdict.accepted
    assert "not better than always answering the mean, " in verdict.reason


def write_page(folder, evaluation, dataset) -> Page:
    scores = {"loss": 0.02, "mae": 9000.0}
    history = [
        {**row, "mae": 1e4, "validation_mae": 2e4 if row["validation_loss"] else None}
        for row in HISTORY
    ]
    path = folder / "report.html"
    write_report(
        str(path),
        evaluation=evaluation,
        dataset=dataset,
        training={**TRAINING, "train": scores, "validation": {"loss": 0.5, "mae": 2e4}},
        history=history,
        title="homes",
        details={},
        defaults={},
        verdict=judge(evaluation),
    )
    return Page(path)


def test_report_shows_answers_errors_and_intervals(dataset, evaluation, tmp_path):
    page = write_page(tmp_path, evaluation, dataset)
    assert not page.open
    for words in (
        "R² of price on the test split",
        "Predictions and errors",
        "Errors by label",
        "split conformal prediction",
        "town by value",
        "Largest errors",
        "Overfitting: the mean absolute error is 9,000 in training, 20,000 in validation",
    ):
        assert words in page.text
    kinds = [
        one.kind
        for one in list_findings(
            evaluation, dataset, {"train": {"mae": 1}, "validation": {}, "stopped": ""}, HISTORY
        )
    ]
    assert "baseline" in kinds


def test_drift_of_the_label_is_measured(dataset, tmp_path):
    same = {one.name: one for one in drift.measure(dataset, dataset).columns}
    assert not same["label"].is_drift and set(same) == {"size", "town", "label"}
    dearer = write(tmp_path, lines(2400, factor=2))
    moved = drift.measure(dataset, dearer).columns
    assert [one.name for one in moved if one.is_drift] == ["label"]


@pytest.mark.slow
def test_ink_of_digits_is_learned_from_pictures(tmp_path):
    digits = load_digits()
    for number, pixels in enumerate(digits.images):
        picture = Image.fromarray((pixels * 15).astype(np.uint8))
        picture.save(tmp_path / f"{number}.png")
    ink = digits.images.sum(axis=(1, 2))
    rows = [f"{number}.png,{value},{number // 20}" for number, value in enumerate(ink)]
    tables.write_csv(tmp_path / "labels.csv", rows, "file,ink,writer")
    options = {
        "source": f"images:{tmp_path}",
        "label": {"column": "ink", "type": "numeric"},
        "split_by": {"group": "writer"},
        "image_size": 8, "channels": 1, "encoding": "raw",
    }  # fmt: skip
    records = tmp_path.with_name("ink-records")
    dataset = create_tfrecords(RecordOptions(**options), str(records), progress=lambda line: None)
    trained = train(dataset, tmp_path, model="small_cnn", epochs=10)
    found = export_and_evaluate(dataset, tmp_path, trained.model)
    assert found.headline[1] > 0.9 and found.metrics["coverage"]  # 0.954 to 0.973 with four seeds.
    predictor = Predictor("ink@1")
    predictor.load(found.model)
    encoded = base64.b64encode((tmp_path / "7.png").read_bytes()).decode()
    request = predictor.preprocess({"instances": [{"image_bytes": {"b64": encoded}}]})
    (answer,) = predictor.postprocess(predictor.predict(request))["predictions"]
    assert answer["low"] < answer["value"] < answer["high"]
    assert answer["value"] == pytest.approx(ink[7], rel=0.2)
    page = write_page(tmp_path, found, dataset)
    assert "R² of ink on the test split" in page.text
    assert [one.picture.shape for one in found.worst] == [(8, 8, 1)] * len(found.worst)
    assert page.text.count("Largest errors") and "data:image/png" in page.source


def test_labels_of_a_test_split_must_differ(evaluation, tmp_path):
    rows = [f"{line},train" for line in lines(100)]
    rows += [f"{number},Ax,1000,test" for number in range(30)]
    table = tables.write_csv(tmp_path / "homes.csv", rows, "size,town,price,split")
    dataset = tables.write(table, tmp_path / "records", **HOMES, split_by={"column": "split"})
    message = refused(evaluate, evaluation.model, dataset.uri)
    assert "all labels of the test split" in message and "are 1000; use a larger split" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_accuracy": 0.9}, "min_accuracy=0.9 has an effect only with labels that are classes"),
        (
            {"class_weights": "balanced"},
            "class_weights='balanced' has an effect only with labels that are",
        ),
        (
            {"monitor": "accuracy"},
            "monitor='accuracy', but the labels are numbers; set loss or mae",
        ),
        ({"champion_metric": "log_loss"}, "but the labels are numbers; set auto or r2"),
        ({"floors": {"accuracy": 0.5}}, "'accuracy' is not a metric of numbers; known: coverage"),
        ({"floors": {"r2": "high"}}, "floors: 'r2' is 'high', not a finite number"),
        ({"floors": {"r2": math.nan}}, "floors: 'r2' is nan, not a finite number"),
        ({"ceilings": {"rmsee": 1}}, "'rmsee' is not a metric of numbers; did you mean 'rmse'?"),
        ({"label": {"column": "price", "above": 1}, "loss": "huber"}, "labels that are numbers"),
    ],
)
def test_option_of_another_task_is_refused(changes, message):
    values = {"source": "csv:homes.csv", "model": "wide_and_deep", **HOMES, **changes}
    with pytest.raises(InputError) as error:
        check_parameters(values, origin="test")
    assert message in str(error.value)


@pytest.mark.slow
def test_two_workers_learn_what_one_learns(dataset, tmp_path):
    options = (
        "--model=wide_and_deep --epochs=2 --batch_size=64 --strategy=multi_worker_mirrored "
        "--loss=huber"
    )
    flags = replicas.flags(dataset, tmp_path / "two", options)
    replicas.run("trainer.task", flags, replicas.CHIEF_AND_WORKER, tmp_path / "logs")
    one = train(
        dataset, tmp_path / "one", model="wide_and_deep", epochs=2, batch_size=64, loss="huber"
    )
    export(one.model, dataset, str(tmp_path / "one" / "model"))
    both = [evaluate(str(tmp_path / name / "model"), dataset.uri) for name in ("one", "two")]
    for name in ("value", "low", "high"):
        np.testing.assert_allclose(*(one.answers.read(name) for one in both), rtol=1e-4)
