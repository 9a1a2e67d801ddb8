"""Evaluation takes nearly the same memory for ten times the examples, and does not need Keras."""

import dataclasses
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from tests import tables
from trainer.data.schema import FILE_NAME, Dataset, Split
from trainer.evaluation.scoring import evaluate

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
verdict = gate.judge(evaluation, GateOptions(), registry=True, champion=champion)
prediction_file.write(file, evaluation)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
loss = evaluate(*other).log_loss if other else None
print(loss, "keras" in sys.modules, verdict.comparison.examples, peak)
"""


class Guesses(tf.Module):
    """A model whose probabilities follow from an example's hash."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def answer(self, examples):
        share = tf.cast(tf.strings.to_hash_bucket_fast(examples, 1 << 20), tf.float32) / (1 << 20)
        names = tf.gather(["small", "big"], tf.cast(share > 0.5, tf.int32))
        return {"probabilities": tf.stack([1 - share, share], axis=1), "label": names}


@pytest.mark.parametrize("most_copies", [8, pytest.param(20, marks=pytest.mark.slow)])
def test_memory_hardly_grows_without_keras(tmp_path, untrained_model, digit_records, most_copies):
    model = Guesses()
    tf.saved_model.save(model, str(tmp_path / "model"), {"serving_examples": model.answer})
    dataset = tables.records(tmp_path, 40_000)
    # One process also evaluates a model that Keras exported.
    digits = [untrained_model, digit_records.uri]
    peaks = {}
    for copies, more, loss in (
        (1, digits, evaluate(*digits).log_loss),
        (most_copies, [], None),
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
    assert many > 30_000 * most_copies
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
