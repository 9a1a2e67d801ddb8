"""Evaluation refuses what does not fit the records, and takes little memory without Keras."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests import tables
from tests.refusals import refused
from tests.trainer.report_samples import write_model, write_records
from trainer.data.schema import FILE_NAME, Dataset, Split
from trainer.evaluation.scoring import evaluate
from vertex.errors import InputError

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


EVALUATE = """
import resource, sys
from trainer import quiet
quiet.import_tensorflow()
from trainer.evaluation import prediction_file, champion_scores, gate
from trainer.evaluation.gate_options import GateOptions
from trainer.evaluation.scoring import evaluate
model, records, file, *other = sys.argv[1:]
evaluation = evaluate(model, records)
champion = champion_scores.score("taxi@1", model, evaluation)
verdict = gate.judge(evaluation, GateOptions(), registers=True, champion=champion)
prediction_file.write(file, evaluation.answers)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
loss = evaluate(*other).metrics["log_loss"] if other else None
print(loss, "keras" in sys.modules, verdict.comparison.examples, peak)
"""


class Guesses(tf.Module):
    """A model whose probabilities follow from an example's hash."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def answer(self, examples):
        share = tf.cast(tf.strings.to_hash_bucket_fast(examples, 1 << 20), tf.float32) / (1 << 20)
        names = tf.gather(["small", "big"], tf.cast(share > 0.5, tf.int32))
        return {"probabilities": tf.stack([1 - share, share], axis=1), "label": names}


@pytest.mark.slow
def test_memory_hardly_grows_without_keras(tmp_path, untrained_model, digit_records):
    model = Guesses()
    tf.saved_model.save(model, str(tmp_path / "model"), {"serving_examples": model.answer})
    dataset = tables.records(tmp_path, 40_000)
    # One process also evaluates a model that Keras exported.
    digits = [untrained_model, digit_records.uri]
    peaks = {}
    for copies, more, loss in (
        (1, digits, evaluate(*digits).metrics["log_loss"]),
        (20, [], None),
    ):
        folder = tmp_path / f"{copies}"
        examples = repeat(dataset, folder, copies)
        places = [str(tmp_path / "model"), str(folder), str(folder / "predictions.csv")]
        command = [sys.executable, "-c", EVALUATE, *places, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        *rest, compared, kilobytes = done.stdout.splitlines()[-1].split()
        assert rest == [f"{loss}", "False"]
        with (folder / "predictions.csv").open() as file:
            assert sum(1 for _ in file) - 1 == int(compared) == examples
        peaks[examples] = 1024 * int(kilobytes)
    (few, small), (many, large) = peaks.items()
    assert many > 600_000
    assert (large - small) / (many - few) < 50
    assert large < 1.1 * small


def repeat(dataset: Dataset, folder, copies: int) -> int:
    """Write a dataset whose test split is the training split, `copies` times; return its size."""
    folder.mkdir()
    train, shards = dataset.splits["train"], []
    for number in range(copies):
        for shard in train.shards:
            shards.append(dataclasses.replace(shard, file=f"{number}-{shard.file}"))
            os.link(dataset.shard_uri(shard), folder / shards[-1].file)
    counts = [copies * count for count in train.class_counts]
    test = Split(shards=shards, class_counts=counts)
    changed = dataclasses.replace(dataset, splits={**dataset.splits, "test": test})
    (folder / FILE_NAME).write_text(changed.to_json())
    return test.examples
