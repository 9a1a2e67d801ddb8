"""Several labels: training on texts, thresholds, metrics, the gate, serving, the report."""

import csv
import json
import random

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics

from pipelines.parameters import check_parameters
from tests import replicas, tables
from tests.trainer.report.report_page import HISTORY, TRAINING, Page
from tests.trainer.training_runs import evaluate_untrained, train, train_and_evaluate
from trainer.data.dataset_warnings import list_warnings
from trainer.data.schema import Dataset
from trainer.evaluation import drift, gate, prediction_file
from trainer.evaluation.champion_scores import score
from trainer.evaluation.gate_options import GateOptions
from trainer.evaluation.scoring import evaluate
from trainer.exported.export import export
from trainer.metrics.label_sets import OutputCounts, example_f1
from trainer.report.document import write_report
from trainer.serving.predictor import Predictor
from trainer.tasks import task_of
from trainer.tasks.label_kinds import MULTILABEL
from trainer.tasks.multilabel import LabelEvaluation, Multilabel
from trainer.training.config import TrainingConfig
from vertex.errors import InputError

LABEL = {"column": "tags", "type": "multilabel"}
NOTES = {
    "label": LABEL,
    "crosses": [],
    "columns": [
        {"name": "note", "type": "text"},
        {"name": "shop", "type": "vocabulary", "size": 5},
    ],
}
WORDS = {"bug": ("crash", "error"), "price": ("costs", "cheap"), "ship": ("late", "parcel")}
OPTIONS = {"model": "wide_and_deep", "model_options": {"hidden_units": [8]}, "batch_size": 64}


def lines(count: int, share: float = 0.4) -> list[str]:
    """Rows of notes with a word for each tag, which is missing from one of ten."""
    generator = random.Random(0)
    made = []
    for number in range(count):
        tags = [tag for tag in WORDS if generator.random() < share]
        words = [generator.choice(WORDS[tag]) for tag in tags if generator.random() < 0.9]
        note = " ".join(generator.sample([*words, "the", "order", "today"], len(words) + 3))
        if number % 60 == 7:
            tags.append("rare")
        made.append(f"{number},{note},{generator.choice('AB')},{';'.join(tags)}")
    return made


def write(folder, rows: list[str], **changes) -> Dataset:
    table = tables.write_csv(folder / "notes.csv", rows, "number,note,shop,tags")
    return tables.write(table, folder / "records", **{**NOTES, **changes})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return write(tmp_path_factory.mktemp("notes"), lines(2400))


@pytest.fixture(scope="module")
def evaluation(dataset, tmp_path_factory) -> LabelEvaluation:
    return train_and_evaluate(dataset, tmp_path_factory.mktemp("run"), **OPTIONS, epochs=5)


@pytest.fixture(scope="module")
def untrained(dataset, tmp_path_factory) -> LabelEvaluation:
    return evaluate_untrained(dataset, tmp_path_factory.mktemp("untrained"), **OPTIONS)


def test_metrics_are_those_of_scikit_learn(dataset, evaluation, tmp_path):
    prediction_file.write(str(tmp_path / "predictions.csv"), evaluation.answers)
    with (tmp_path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:4] == ["key", "label", "prediction", "f1_loss"]

    def parse(name: str) -> np.ndarray:
        names = [row[name].split(";") for row in rows]
        return np.array([[one in shown for one in dataset.classes] for shown in names])

    labels, given = parse("label"), parse("prediction")
    probabilities = np.array(
        [[float(row[f"probability_{name}"]) for name in dataset.classes] for row in rows]
    )
    figures = evaluation.scalars()
    expected = {
        "example_f1": metrics.f1_score(labels, given, average="samples", zero_division=1.0),
        "micro_f1": metrics.f1_score(labels, given, average="micro"),
        "micro_precision": metrics.precision_score(labels, given, average="micro"),
        "micro_recall": metrics.recall_score(labels, given, average="micro"),
        "macro_f1": metrics.f1_score(labels, given, average="macro"),
        "mean_average_precision": metrics.average_precision_score(
            labels, probabilities, average="macro"
        ),
        "roc_auc": metrics.roc_auc_score(labels, probabilities, average="macro"),
        "exact_match": metrics.accuracy_score(labels, given),
        "log_loss": 4 * metrics.log_loss(labels.ravel(), probabilities.ravel()),
    }
    for name, value in expected.items():
        assert figures[name] == pytest.approx(value, rel=1e-5), name
    assert figures["micro_f1"] > 0.9
    for name in ("example_f1", "micro_f1", "micro_recall", "exact_match"):
        assert figures[f"{name}_low"] < figures[name] < figures[f"{name}_high"]
    per_label = metrics.f1_score(labels, given, average=None)
    assert [row.f1 for row in evaluation.per_class] == pytest.approx(per_label.tolist())
    recorded = evaluation.registry_metrics()
    assert recorded["auPrc"] == figures["mean_average_precision"]
    (half,) = (one for one in recorded["confidenceMetrics"] if one["confidenceThreshold"] == 0.5)
    assert half["f1Score"] == pytest.approx(
        metrics.f1_score(labels, probabilities >= 0.5, average="micro")
    )
    losses = [float(row["f1_loss"]) for row in rows]
    np.testing.assert_allclose(losses, 1 - example_f1(labels, given))
    predictions = prediction_file.parse((tmp_path / "predictions.csv").read_bytes())
    assert predictions.kind is MULTILABEL
    assert predictions.scores.correct.mean() == pytest.approx(figures["exact_match"])
    wrong = (labels != given).any(axis=1)
    assert len(evaluation.worst) == min(24, wrong.sum())


def test_best_constant_answer_is_found(evaluation):
    labels = np.concatenate([labels for labels, _, _, _ in evaluation.answers.blocks()])
    order = np.argsort(-labels.sum(axis=0), kind="stable")
    means = []
    for count in range(len(order) + 1):
        given = np.zeros_like(labels)
        given[:, order[:count]] = True
        means.append(example_f1(labels, given).mean())
    assert evaluation.baseline.example_f1 == pytest.approx(max(means))
    names = [evaluation.classes[place] for place in order[: int(np.argmax(means))]]
    assert evaluation.baseline.labels == ";".join(names)


def test_server_answers_as_the_evaluation_does(dataset, evaluation):
    predictor = Predictor("notes@1")
    predictor.load(evaluation.model)
    rows = tables.read_rows(dataset, "test")[:40]
    instances = [{name: row[name].decode() for name in ("note", "shop")} for row in rows]
    request = predictor.preprocess({"instances": instances})
    answers = predictor.postprocess(predictor.predict(request))["predictions"]
    _, given, probabilities, _ = next(evaluation.answers.blocks())
    found = [one["probabilities"] for one in answers]
    np.testing.assert_allclose(found, probabilities[:40], rtol=1e-5)
    expected = [[dataset.classes[place] for place in np.flatnonzero(row)] for row in given[:40]]
    assert [one["labels"] for one in answers] == expected and [] in expected


def test_thresholds_have_the_highest_micro_f1():
    """A label that can't be predicted is not given, although giving it always has a higher F1."""
    generator = np.random.default_rng(0)
    labels = generator.random((3000, 3)) < [0.3, 0.1, 0.02]
    outputs = generator.normal(labels * [2.0, 2.0, 0.0] - [0, 3, 5], 1.0)
    counts = OutputCounts(3)
    counts.add(labels[:1000], outputs[:1000], np.ones(1000))
    counts.add(labels[1000:], outputs[1000:], np.ones(len(labels) - 1000))

    def measure(thresholds: list[float]) -> float:
        return metrics.f1_score(labels, outputs >= thresholds, average="micro")

    chosen = counts.choose_thresholds().tolist()
    assert (outputs[:, 2] >= chosen[2]).mean() < 0.01
    for place in range(3):
        others = ([*chosen[:place], cut, *chosen[place + 1 :]] for cut in np.linspace(-8, 3, 120))
        assert max(map(measure, others)) < measure(chosen) + 1e-3
    # Between outputs that a wide gap separates.
    counts = OutputCounts(1)
    is_first = np.arange(100)[:, None] < 50
    counts.add(is_first, np.where(is_first, 4.0, -6.0), np.ones(100))
    assert counts.choose_thresholds() == pytest.approx([-1.0], abs=0.02)
    # Rare labels share one, and without examples it is a probability of one half.
    counts = OutputCounts(3)
    counts.add(labels[:60], outputs[:60], np.ones(60))
    assert len(set(counts.choose_thresholds().tolist())) == 1
    assert OutputCounts(2).choose_thresholds().tolist() == [0, 0]


def test_loss_is_the_likelihood_of_all_labels(dataset):
    labels = np.array([[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]])
    outputs = np.array([[2.0, -1, 0.5, -3], [-1, -1, -1, -1], [-2, 1, -1, -1]], np.float32)
    probabilities = 1 / (1 + np.exp(-outputs))
    expected = -np.log(np.where(labels, probabilities, 1 - probabilities)).sum(axis=1)
    task = task_of(dataset)
    objective = task.make_objective(TrainingConfig(**OPTIONS))
    np.testing.assert_allclose(objective(tf.constant(labels), outputs), expected, rtol=1e-5)
    loss, f1 = task.scores(tf.constant(labels), tf.constant(outputs))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert f1.numpy().tolist() == [0.5, 1, 1]


def judge(evaluation, champion=None, **options) -> gate.Verdict:
    return gate.judge(evaluation, GateOptions(**options), registers=True, champion=champion)


def test_gate_compares_f1_of_examples(evaluation, untrained):
    first = judge(evaluation, floors={"micro_f1": 0.5, "exact_match": 0.1})
    assert (first.accepted, first.role) == (True, "champion")
    assert ", better than always answering " in first.line
    figures = first.to_dict()
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    missed = judge(evaluation, floors={"example_f1": 0.999})
    assert missed.reason.endswith("is below its floor 0.999")
    better = judge(evaluation, score("notes@1", untrained.model, evaluation))
    assert better.accepted and better.comparison and better.comparison.metric == "example_f1"
    assert better.comparison.candidate == pytest.approx(evaluation.headline[1])
    assert better.comparison.champion == pytest.approx(untrained.headline[1])
    difference = evaluation.headline[1] - untrained.headline[1]
    assert better.comparison.difference == pytest.approx(difference)
    assert better.comparison.low < difference < better.comparison.high
    assert (
        f"only the candidate is right on {better.comparison.candidate_only}, only the"
        in better.reason
    )
    same = score("notes@2", evaluation.model, evaluation)
    assert not judge(evaluation, same).accepted
    assert judge(evaluation, same, champion_rule="not_worse", margin=0.01).accepted


@pytest.mark.slow
def test_champion_of_other_labels_is_compared_by_their_names(evaluation, tmp_path):
    """A label that the records do not have is wrong."""
    rows = [line.replace("price", "cost") for line in lines(2400)]
    other = write(tmp_path, rows)
    assert other.classes == ["bug", "cost", "rare", "ship"]
    renamed = train_and_evaluate(other, tmp_path / "run", **OPTIONS, epochs=5)
    champion = score("notes@3", renamed.model, evaluation)
    assert champion.pairs
    share = 1 - champion.pairs.losses[1] / evaluation.examples
    assert 0.2 < share < evaluation.headline[1] - 0.2


def test_classifier_is_no_champion_of_labels(evaluation, row_model):
    problem = score("taxi@1", row_model, evaluation).problem
    assert "has no signature serving_examples with the outputs probabilities and labels" in problem


def test_constant_answers_are_not_accepted(untrained):
    verdict = judge(untrained)
    assert not verdict.accepted and ", not better than always answering '" in verdict.reason


def test_report_shows_labels_pairs_and_mistakes(dataset, evaluation, tmp_path):
    f1 = {"loss": 0.5, "example_f1": 0.8}
    history = [
        {**row, "example_f1": 0.9, "validation_example_f1": 0.8 if row["validation_loss"] else None}
        for row in HISTORY
    ]
    path = tmp_path / "report.html"
    training = {**TRAINING, "train": {"loss": 0.1, "example_f1": 0.95}, "validation": f1}
    write_report(
        str(path),
        evaluation=evaluation,
        dataset=dataset,
        training=training,
        history=history,
        title="notes",
        details={},
        defaults={},
        verdict=judge(evaluation),
    )
    page = Page(path)
    assert not page.open
    for words in (
        "Mean F1 of an example's labels on the test split",
        "Labels that occur together",
        "shop by value",
        "Overfitting: F1 95.0% in training, 80.0% in validation",
        "predicted; true:",
    ):
        assert words in page.text, words


@pytest.mark.slow
def test_labels_without_examples_are_told(tmp_path):
    rows = [f"{line},train" for line in lines(300)]
    rows += [f"1,crash parcel,A,{tags},test" for tags in ["bug", "new", ""] * 30]
    rows += [f"1,crash,A,bug;ship,{split}" for split in ["validation", "test"] * 20]
    table = tables.write_csv(tmp_path / "notes.csv", rows, "number,note,shop,tags,split")
    dataset = tables.write(table, tmp_path / "records", **NOTES, split_by={"column": "split"})
    evaluation = train_and_evaluate(dataset, tmp_path / "run", **OPTIONS, epochs=1)
    names = {one.kind: one.values.get("names") for one in evaluation.find_findings()}
    in_test, in_validation, in_training = list_warnings(dataset)
    assert in_test.startswith("classes 'price', 'rare' have no row in the test split: they")
    assert in_validation.startswith("classes 'new', 'price', 'rare' have no row in the validation ")
    assert in_training == "class 'new' has no row in the training split: it can't be learned"
    assert "new" in names["never_given"]
    none = evaluation.per_class[dataset.classes.index("price")]
    assert (none.support, none.f1, none.roc_auc) == (0, None, None)
    assert json.loads(json.dumps(evaluation.scalars(), allow_nan=False))


def test_drift_of_labels_is_measured(dataset, tmp_path):
    same = {one.name: one for one in drift.measure(dataset, dataset).columns}
    assert not same["label"].is_drift and set(same) == {"note", "shop", "label"}
    columns = [NOTES["columns"][1]]
    rows = [line.replace(";ship", "").replace("ship", "") for line in lines(2400)]
    rows[0] = rows[0] + ";ship"
    moved = drift.measure(dataset, write(tmp_path, rows, columns=columns))
    assert [one.name for one in moved.columns if one.is_drift] == ["label"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_accuracy": 0.9}, "min_accuracy=0.9 has an effect only with labels that are classes"),
        ({"loss": "huber"}, "loss='huber' has an effect only with labels that are numbers"),
        ({"monitor": "mae"}, "set loss or example_f1"),
        ({"floors": {"f1": 0.5}}, "'f1' is not a metric of several at once"),
    ],
)
def test_option_of_another_task_is_refused(changes, message):
    values = {"source": "csv:notes.csv", "model": "wide_and_deep", **NOTES, **changes}
    with pytest.raises(InputError) as error:
        check_parameters(values, origin="test")
    assert message in str(error.value)


def test_model_of_other_labels_is_refused(dataset):
    names = np.array([[b"bug", b"", b"rare", b"other"]], object)
    outputs = {"probabilities": np.full((1, 4), 0.5, np.float32), "labels": names}
    task = Multilabel(dataset)
    with pytest.raises(InputError, match=r"answers 'other' where .* has label 3, 'ship'"):
        task.check_answers(outputs, "gs://bucket/model")
    outputs["probabilities"][0, 1] = np.nan
    with pytest.raises(InputError, match="not from 0 to 1: its training diverged"):
        task.check_answers(outputs, "gs://bucket/model")


@pytest.mark.slow
def test_two_workers_learn_what_one_learns(dataset, tmp_path):
    options = "--model=wide_and_deep --epochs=2 --batch_size=64 --strategy=multi_worker_mirrored"
    flags = replicas.flags(dataset, tmp_path / "two", options)
    replicas.run("trainer.task", flags, replicas.CHIEF_AND_WORKER, tmp_path / "logs")
    one = train(dataset, tmp_path / "one", model="wide_and_deep", epochs=2, batch_size=64)
    export(one.model, dataset, str(tmp_path / "one" / "model"))
    both = [evaluate(str(tmp_path / name / "model"), dataset.uri) for name in ("one", "two")]
    for name in range(len(dataset.classes)):
        np.testing.assert_allclose(*(one.answers.read(name) for one in both), rtol=1e-4)
