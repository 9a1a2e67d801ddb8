"""What can't be evaluated is refused in one line that names it."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.report_samples import write_model, write_records
from trainer.errors import InputError
from trainer.evaluation.scoring import evaluate

NAMES = ["c0", "c1", "c2"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "pixels", NAMES)


WITHOUT_KERAS = """
import sys
from trainer import quiet
quiet.import_tensorflow()
from trainer.evaluation.scoring import evaluate
print(evaluate(*sys.argv[1:]).log_loss, "keras" in sys.modules)
"""


def test_a_model_is_evaluated_without_the_import_of_keras(untrained_model, digit_records):
    places = [untrained_model, digit_records.uri]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_KERAS, *places], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == f"{evaluate(*places).log_loss} False"


def test_an_empty_split_is_refused(model, tmp_path):
    write_records(tmp_path, NAMES, [], np.zeros((0, 3), np.uint8))
    with pytest.raises(InputError, match=r"test split of .* has no example"):
        evaluate(model, str(tmp_path))


def test_a_missing_model_is_named(tmp_path):
    write_records(tmp_path, NAMES, [0], np.ones((1, 3), np.uint8))
    with pytest.raises(InputError, match=r"no SavedModel at .*nowhere"):
        evaluate(str(tmp_path / "nowhere"), str(tmp_path))


def test_a_model_without_the_signature_lists_those_it_has(tmp_path):
    write_records(tmp_path, NAMES, [0], np.ones((1, 3), np.uint8))
    module = tf.Module()
    module.f = tf.function(lambda x: {"y": x}, input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"predict": module.f})
    with pytest.raises(InputError, match=r"no signature serving_examples \(it has: predict\)"):
        evaluate(str(tmp_path / "m"), str(tmp_path))


def test_records_that_do_not_fit_the_model_are_told_by_what_is_missing(tmp_path):
    write_records(tmp_path, NAMES, [0], np.ones((1, 3), np.uint8))

    def parsed(examples):
        return tf.io.parse_example(examples, {"age": tf.io.FixedLenFeature([1], tf.float32)})

    module = tf.Module()
    module.f = tf.function(parsed, input_signature=[tf.TensorSpec([None], tf.string)])
    signatures = {"serving_examples": module.f}
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=signatures)
    with pytest.raises(InputError, match=r"after 0 of them: Name: .*Feature: age .*not be found"):
        evaluate(str(tmp_path / "m"), str(tmp_path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p * float("nan"), "NaN or infinite"),
        (lambda p: p * 2, "add up to 2"),
        (lambda p: tf.add(p, [0.7, -0.7, 0.0]), "least is -"),
        (lambda p: p[:, :2], r"shape \[2, 2\], but .* has 3 classes"),
    ],
)
def test_answers_that_are_no_probabilities_of_the_classes_name_the_model(tmp_path, change, words):
    write_records(tmp_path, NAMES, [0, 2], np.ones((2, 3), np.uint8))
    model = write_model(tmp_path / "model", NAMES, change=change)
    with pytest.raises(InputError, match=rf"the model at {model} .*{words}"):
        evaluate(model, str(tmp_path))


def test_a_model_trained_on_another_order_of_classes_is_refused(model, tmp_path):
    pixels = np.array([[200, 0, 0]], np.uint8)
    write_records(tmp_path, ["c2", "c1", "c0"], [0], pixels)
    with pytest.raises(InputError, match=r"answers 'c0' where .* has 'c2'"):
        evaluate(model, str(tmp_path))


def test_a_truncated_shard_is_refused(model, tmp_path):
    dataset = write_records(tmp_path, NAMES, [0, 1] * 10, np.ones((20, 3), np.uint8))
    shard = tmp_path / dataset.splits["test"].shards[1].file
    shard.write_bytes(shard.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"has \d+ bytes in place of \d+, so it is not what"):
        evaluate(model, str(tmp_path))


@pytest.mark.parametrize(("told", "words"), [(11, "fewer"), (9, "more")])
def test_other_counts_than_dataset_json_says_are_refused(model, tmp_path, told, words):
    dataset = write_records(tmp_path, NAMES, [0, 1] * 10, np.ones((20, 3), np.uint8))
    first, second = dataset.splits["test"].shards
    shards = [first, dataclasses.replace(second, examples=told)]
    test = dataclasses.replace(dataset.splits["test"], shards=shards)
    changed = dataclasses.replace(dataset, splits={**dataset.splits, "test": test})
    (tmp_path / "dataset.json").write_text(changed.to_json())
    with pytest.raises(InputError, match=rf"hold {words} examples than the {10 + told}"):
        evaluate(model, str(tmp_path))
