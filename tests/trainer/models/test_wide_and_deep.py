"""The wide and deep model of a table: encoding, optimizers, serving, slices and report."""

import itertools
import math
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.recipe import load
from tests import tables
from tests.trainer.report.report_page import report
from tests.trainer.training_runs import evaluate_untrained, train, train_and_evaluate
from trainer.data.schema import Dataset
from trainer.data.tables.inputs import Encoder, list_categories, parse_columns
from trainer.data.write.writer import create_tfrecords
from trainer.models import open_model_for
from trainer.models.model import WIDE_LAYER
from trainer.tasks.classification import ClassEvaluation as Evaluation
from trainer.training.config import TrainingConfig
from trainer.training.optimization import LearningRate, create_optimizer
from vertex.errors import InputError

OPTIONS = {"model": "wide_and_deep", "batch_size": 32, "learning_rate": 5e-3}
OPTIONS["model_options"] = {"hidden_units": [16]}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return tables.records(tmp_path_factory.mktemp("table"))


@pytest.fixture(scope="module")
def evaluation(dataset, tmp_path_factory) -> Evaluation:
    return train_and_evaluate(dataset, tmp_path_factory.mktemp("run"), **OPTIONS, epochs=6)


def raw(**values) -> dict[str, tf.Tensor]:
    row = {"miles": math.nan, "hour": -1, "payment": "", "company": "", "Zone Id": "", **values}
    dtypes = {"miles": tf.float32, "hour": tf.int64}
    return {name: tf.constant([v], dtypes.get(name, tf.string)) for name, v in row.items()}


def test_every_value_has_an_id_and_missing_ones_have_0(dataset):
    encode = Encoder(dataset)
    names = [category.name for category in list_categories(dataset)]
    features = {feature.name: feature for feature in dataset.features}

    def ids(**values) -> dict[str, int]:
        return dict(zip(names, encode(raw(**values))["ids"].numpy()[0].tolist(), strict=True))

    missing = ids()
    assert {missing[name] for name in ("miles", "hour", "payment", "company", "Zone Id")} == {0}
    assert encode(raw())["numbers"].numpy().tolist() == [[0.0] * 5 + [1.0]]
    for place, value in enumerate(features["company"].settings["values"]):
        assert ids(company=value)["company"] == place + 2
    assert ids(company="nobody's")["company"] == 1
    assert [ids(hour=hour)["hour"] for hour in (0, 23, 24, -5)] == [1, 24, 0, 0]
    low, middle, high = features["miles"].settings["boundaries"]
    assert [ids(miles=m)["miles"] for m in (0.0, low, middle, high, 1e9)] == [1, 2, 3, 4, 4]
    statistics = features["miles"].statistics
    miles = (middle + high) / 2
    value = (math.log1p(miles) - statistics["mean"]) / statistics["deviation"]
    expected = [1, 1, 0.5, 0, value, 0]
    assert encode(raw(miles=miles))["numbers"].numpy()[0] == pytest.approx(expected, rel=1e-4)
    for end, place in (("minimum", 0.0), ("maximum", 1.0)):
        numbers = encode(raw(miles=statistics[end]))["numbers"].numpy()[0]
        assert numbers[:4].tolist() == [place] * 4, end
    pairs = itertools.product(range(-1, 24), ("", "card", "cash", "voucher"))
    crossed = {ids(hour=hour, payment=payment)["hour_x_payment"] for hour, payment in pairs}
    assert len(crossed) == 25 * 4  # There is room for each combination: none is hashed.
    shard = dataset.shard_uri(dataset.splits["train"].shards[0])
    batch = tf.stack(list(tf.data.TFRecordDataset(shard)))
    numbers = encode(parse_columns(batch, dataset))["ids"].numpy()
    sizes = [category.size for category in list_categories(dataset)]
    assert ((numbers >= 0) & (numbers < sizes)).all()


def variables_and_optimizer(dataset, **options):
    model = open_model_for("wide_and_deep", dataset, {"hidden_units": [8.0]}).build(dataset)
    config = TrainingConfig(**OPTIONS, **options)
    optimizer = create_optimizer(config, LearningRate(config, 100))
    optimizer.build(model.trainable_variables)
    return model.trainable_variables, optimizer


def test_ftrl_learns_the_wide_part_and_adam_the_deep_one(dataset):
    keras.utils.set_random_seed(0)
    options = {"gradient_clip_norm": 1.0, "wide_learning_rate": 0.5}
    variables, optimizer = variables_and_optimizer(dataset, **options)
    before = [variable.numpy() for variable in variables]
    optimizer.apply([tf.ones_like(variable) for variable in before], variables)
    gradient = 1 / math.sqrt(sum(variable.size for variable in before))
    # FTRL's first step from 0, its accumulator starting at 0.1 (McMahan 2013).
    wide = -gradient * 0.5 / math.sqrt(0.1 + gradient**2)
    for old, variable in zip(before, variables, strict=True):
        # Adam's first step is the learning rate.
        expected = wide if WIDE_LAYER in variable.path else -OPTIONS["learning_rate"]
        np.testing.assert_allclose((variable.numpy() - old).ravel(), expected, rtol=1e-2)
    slots = " ".join(variable.path for variable in optimizer.variables)
    assert "accumulator" in slots and "velocity" in slots
    assert int(optimizer.iterations) == 1


def test_overflow_skips_the_step_and_halves_the_scale(dataset):
    variables, optimizer = variables_and_optimizer(dataset, precision="mixed_float16")
    before = [variable.numpy() for variable in variables]
    scale = float(optimizer.dynamic_scale)
    optimizer.apply([tf.fill(variable.shape, math.inf) for variable in variables], variables)
    assert float(optimizer.dynamic_scale) == scale / 2
    for old, variable in zip(before, variables, strict=True):
        np.testing.assert_array_equal(old, variable.numpy())


def test_options_set_hidden_layers_and_the_wide_part(dataset):
    def sizes(**options) -> list[int]:
        model = open_model_for("wide_and_deep", dataset, options).build(dataset)
        return [layer.units for layer in model.layers if layer.name.startswith("hidden")]

    assert sizes(hidden_units=[7.0, 5.0]) == [7, 5]
    assert sizes(first_units=100.0, scale_factor=0.5, layers=3.0) == [100, 50, 25]
    deep = open_model_for("wide_and_deep", dataset, {"wide": False}).build(dataset)
    assert not any(WIDE_LAYER in variable.path for variable in deep.variables)


def test_model_learns_and_its_signatures_agree(dataset, evaluation):
    assert evaluation.metrics["roc_auc"] > 0.9
    signatures = tf.saved_model.load(evaluation.model).signatures
    assert set(signatures) == {"serving_default", "serving_examples"}
    files = [dataset.shard_uri(shard) for shard in dataset.splits["test"].shards]
    batch = next(iter(tf.data.TFRecordDataset(files).batch(64)))
    columns = parse_columns(batch, dataset)
    columns["Zone_Id"] = columns.pop("Zone Id")
    by_columns = signatures["serving_default"](**columns)["probabilities"]
    by_example = signatures["serving_examples"](examples=batch)["probabilities"]
    np.testing.assert_allclose(by_columns, by_example, atol=1e-6)
    np.testing.assert_allclose(tf.reduce_sum(by_columns, axis=1), 1, atol=1e-5)


def test_slices_cover_the_split_and_are_in_the_report(dataset, evaluation, tmp_path):
    by = {cut.column: cut for cut in evaluation.slices}
    assert list(by) == ["hour", "payment", "company"]
    for cut in evaluation.slices:
        assert sum(part.examples for part in cut.slices) == evaluation.examples
        right = sum(part.figures["accuracy"] * part.examples for part in cut.slices)
        assert right / evaluation.examples == pytest.approx(evaluation.headline[1])
    cash = next(part for part in by["payment"].slices if part.name == "cash")
    assert (cash.figures["positive_rate"], cash.figures["roc_auc"]) == (0.0, None)
    assert by["company"].by == "worst of 40 values"
    assert [part.name for part in by["company"].slices[-2:]] == ["30 other values", "missing"]
    assert all(set(mistake.row) >= {"miles", "hour"} for mistake in evaluation.worst)
    page = report(tmp_path / "report.html", evaluation, dataset).source
    for words in ("<h2>Slices</h2>", "<h2>Columns</h2>", "Missing in train", "hour_x_payment"):
        assert words in page


def test_records_of_the_other_kind_are_refused(dataset, digit_records):
    with pytest.raises(InputError, match="model='wide_and_deep' needs rows of a table, but"):
        open_model_for("wide_and_deep", digit_records, {}).build(digit_records)
    with pytest.raises(InputError, match=r"model='small_cnn' needs images, but .* contains rows"):
        open_model_for("small_cnn", dataset, {}).build(dataset)


@pytest.mark.slow
def test_epoch_of_steps_starts_where_the_last_ended(dataset, tmp_path):
    options = {**OPTIONS, "max_train_examples": 128}
    steps = train(dataset, tmp_path / "steps", **options, epochs=4, steps_per_epoch=2)
    passes = train(dataset, tmp_path / "passes", **options, epochs=2)
    assert steps.progress.epoch == 4
    for value, expected in zip(steps.model.variables, passes.model.variables, strict=True):
        np.testing.assert_array_equal(value.numpy(), expected.numpy())


MOODS = {"good": ["great", "not bad", "love it"], "bad": ["awful", "not great", "bad"]}


@pytest.fixture(scope="module")
def comments(tmp_path_factory) -> Dataset:
    """A table of comments, some of which only a pair of words tells apart."""
    generator, folder = random.Random(0), tmp_path_factory.mktemp("comments")
    rows = []
    for number in range(1200):
        mood = generator.choice([*MOODS])
        words = generator.choices(["the", "film", "was", "a", "tale", "of", "two", "cities"], k=6)
        words.insert(generator.randrange(7), generator.choice(MOODS[mood]))
        rows.append(f"{' '.join(words)} <i>{number}</i> {'x' * 500},{number},{mood}")
    table = tables.write_csv(folder / "t.csv", rows, "comment,number,mood")
    columns = [{"name": "comment", "type": "text", "embedding": 4}]
    label = {"column": "mood", "classes": ["bad", "good"]}
    options = {"columns": columns, "crosses": [], "label": label}
    return tables.write(table, folder / "records", **options)


@pytest.mark.slow
def test_texts_are_learned_and_their_signatures_agree(comments, tmp_path):
    evaluation = train_and_evaluate(comments, tmp_path, **OPTIONS, epochs=3)
    assert evaluation.headline[1] > 0.95 and evaluation.slices == []
    signatures = tf.saved_model.load(evaluation.model).signatures
    asked = tf.constant(["Not BAD, the film!", "the film was not great", ""])
    answers = signatures["serving_default"](comment=asked)["probabilities"].numpy()
    assert answers[0, 1] > 0.8 and answers[1, 0] > 0.8
    files = [comments.shard_uri(shard) for shard in comments.splits["test"].shards]
    batch = next(iter(tf.data.TFRecordDataset(files).batch(64)))
    by_columns = signatures["serving_default"](**parse_columns(batch, comments))["probabilities"]
    by_example = signatures["serving_examples"](examples=batch)["probabilities"]
    np.testing.assert_allclose(by_columns, by_example, atol=1e-6)
    page = report(tmp_path / "report.html", evaluation, comments).source
    assert "words and pairs of words in the vocabulary" in page


def test_report_shows_the_start_of_texts_as_text(comments, tmp_path):
    evaluation = evaluate_untrained(comments, tmp_path, **OPTIONS)
    (mistake, *_) = evaluation.worst
    assert len(mistake.row["comment"]) == 500 and mistake.row["comment"].endswith("\u2026")
    page = report(tmp_path / "report.html", evaluation, comments).source
    assert "&lt;i&gt;" in page and "<i>1" not in page


@pytest.mark.slow
def test_chicago_taxi_recipe_reaches_its_goal(real_data, tmp_path):
    source = {"source": f"csv:{real_data / 'taxi/data.csv'}"}
    parameters = load("chicago_taxi").with_values(source, origin="test")
    trips = create_tfrecords(parameters.records, str(tmp_path / "records"), progress=lambda _: None)
    assert sum(split.examples for split in trips.splits.values()) == 15_002
    options = {**vars(parameters.training), "strategy": "one_device"}
    assert train_and_evaluate(trips, tmp_path, **options).metrics["roc_auc"] >= 0.93
