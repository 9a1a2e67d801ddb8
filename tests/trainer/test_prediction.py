"""Evaluation refuses models that don't fit the records, and damaged records."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.refusals import refused
from tests.trainer.report_samples import write_model, write_records
from trainer.errors import InputError
from trainer.evaluation.scoring import evaluate

NAMES = ["c0", "c1", "c2"]


def changed(change):
    """Return a function that writes a model whose probabilities are changed."""
    return lambda folder: write_model(folder, NAMES, change)


def with_signature(name, answer):
    """Return a function that writes a model of one signature."""

    def write(folder):
        spec = tf.TensorSpec([None], tf.string)
        function = tf.function(answer, input_signature=[spec])
        tf.saved_model.save(tf.Module(), str(folder), signatures={name: function})

    return write


def parse_age(examples):
    age = tf.io.parse_example(examples, {"age": tf.io.FixedLenFeature([1], tf.float32)})["age"]
    return {"probabilities": age, "label": tf.as_string(age)}


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda folder: None, r"no SavedModel at .*model"),
        (with_signature("predict", lambda x: {"y": x}), r"no signature .* \(it has: predict\)"),
        (with_signature("serving_examples", parse_age), "0 of them: Name: .*: age .*not be found"),
        (lambda folder: write_model(folder, NAMES[::-1]), r"predicts 'c2' where .* has 'c0'"),
        (changed(lambda p: p * float("nan")), "the model at {} .*NaN or infinite"),
        (changed(lambda p: p * 2), "the model at {} .*add up to 2"),
        (changed(lambda p: tf.add(p, [0.7, -0.7, 0.0])), "the model at {} .*least is -"),
        (changed(lambda p: p[:, :2]), r"the model at {} .*shape \[2, 2\], but .* has 3 classes"),
    ],
)
def test_model_that_does_not_fit_the_records_is_refused(tmp_path, write, message):
    write_records(tmp_path, NAMES, [0, 2], np.array([[200, 1, 1], [1, 1, 200]], np.uint8))
    write(tmp_path / "model")
    with pytest.raises(InputError, match=message.format(tmp_path / "model")):
        evaluate(str(tmp_path / "model"), str(tmp_path))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "pixels", NAMES)


def test_empty_split_is_refused(model, tmp_path):
    write_records(tmp_path, NAMES, [], np.zeros((0, 3), np.uint8))
    error = refused(evaluate, model, str(tmp_path))
    assert f"the test split of {tmp_path} is empty; change split_fractions" in error


@pytest.mark.parametrize("count", [11, 9])
def test_wrong_count_of_a_shard_is_refused(model, tmp_path, count):
    dataset = write_records(tmp_path, NAMES, [0, 1] * 10, np.ones((20, 3), np.uint8))
    shards = dataset.splits["test"].shards
    shards[1] = dataclasses.replace(shards[1], examples=count)
    (tmp_path / "dataset.json").write_text(dataset.to_json())
    with pytest.raises(InputError, match=rf"do not contain the {10 + count} examples"):
        evaluate(model, str(tmp_path))
