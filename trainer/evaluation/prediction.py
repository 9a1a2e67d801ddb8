"""Predict the records of a split with a SavedModel, and compare a server's predictions."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.data import schema
from trainer.data.read import reader
from trainer.data.read.model_inputs import open_inputs, parse_weights
from trainer.data.schema import Dataset
from trainer.exported import saved_model
from trainer.metrics.disk_columns import Answers, ColumnValues
from trainer.metrics.worst_examples import WorstExamples
from trainer.progress_lines import ProgressLines
from trainer.tasks import task_of
from vertex.errors import InputError, first_line

SIGNATURE = "serving_examples"

SERVED_TOLERANCE = 1e-4
"""Largest accepted difference of a server's numbers, relative to those above 1: machines sum in
different orders."""

_SERVED_RECORDS = 32
_LINE_SECONDS = 5.0


class ServedModel:
    """The signature `serving_examples` of the SavedModel at `uri`, asked about a dataset."""

    def __init__(self, uri: str, dataset: Dataset) -> None:
        self.uri, self.dataset = uri, dataset
        self.task = task_of(dataset)
        # A signature is valid only while the loaded model is referenced.
        self._model = saved_model.load(uri, SIGNATURE, answered=self.task.answered)
        self._signature = self._model.signatures[SIGNATURE]

    @property
    def image_shape(self) -> list[int]:
        """Return [height, width, channels] of the input images; empty if unknown."""
        default = self._model.signatures.get("serving_default")
        inputs = default.structured_input_signature[1] if default else {}
        return inputs["image"].shape[1:].as_list() if "image" in inputs else []

    def answer(self, examples: tf.Tensor) -> dict[str, np.ndarray]:
        """Return checked answers to serialized examples [n]: arrays [n, ...] by name."""
        outputs = self.answer_unchecked(examples)
        self.task.check_answers(outputs, self.uri)
        return outputs

    def answer_unchecked(self, examples: tf.Tensor) -> dict[str, np.ndarray]:
        """Return unchecked answers."""
        return {name: value.numpy() for name, value in self._signature(examples=examples).items()}

    def read_stored_batches(self, split: str = "test") -> tf.data.Dataset:
        """Return the serialized examples of a split in batches of a size that fits the model."""
        return read_stored_batches(self.dataset, split, open_inputs(self.dataset).scored_at_once)


def read_stored_batches(dataset: Dataset, split: str, batch_size: int) -> tf.data.Dataset:
    """Return the serialized examples of a split, string [up to batch_size], in stored order."""
    return reader.read_stored(dataset, split).batch(batch_size).prefetch(2)


def predict(model: ServedModel, worst: WorstExamples, values: ColumnValues) -> Answers:
    """Predict the test split, and add each batch to `worst` and `values`.

    Because one pass does all of it, no record is read twice.
    """
    dataset = model.dataset
    total = dataset.splits["test"].examples
    answers = model.task.open_answers(total)
    lines = ProgressLines("evaluate_model", "test examples", total=total, interval=_LINE_SECONDS)
    try:
        for batch in model.read_stored_batches():
            labels, keys = parse_labels_and_keys(batch, dataset)
            outputs = model.answer(batch)
            answers.add_batch(labels, outputs, keys)
            if dataset.weight:
                answers.add_weights(parse_weights(batch, dataset.weight).numpy())
            worst.add(batch, *answers.rate_badness(labels, outputs))
            values.add(batch)
            lines.advance(len(labels))
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        raise InputError(
            f"the test records of {dataset.uri} can't be evaluated with the model at "
            f"{model.uri}, after {lines.done:,} of them: {first_line(error)}"
        ) from None
    if lines.done != total:
        raise InputError(
            f"the test shards of {dataset.uri} do not contain the {total:,} examples of "
            f"{schema.FILE_NAME}; run create_tfrecords again"
        )
    if dataset.weight and not answers.weight_sum:
        column = dataset.weight.settings["column"]
        raise InputError(
            f"weight column {column!r} is 0 in all test rows of {dataset.uri}; leave "
            "weight_column out, or use a larger split"
        )
    return answers


def parse_labels_and_keys(batch: tf.Tensor, dataset: Dataset) -> tuple[np.ndarray, list[bytes]]:
    features = [dataset.feature(kind) for kind in ("label", "key")]
    kinds = {
        feature.name: tf.io.FixedLenFeature(feature.shape, feature.dtype) for feature in features
    }
    parsed = tf.io.parse_example(batch, kinds)
    labels, keys = (parsed[feature.name].numpy() for feature in features)
    return labels, keys.tolist()


def check_served(
    model: str, records: str, ask: Callable[[dict[str, str]], Mapping[str, Any]]
) -> int:
    """Compare a server's predictions of the first test records with the SavedModel's.

    Return the number of records. Raise InputError if a number differs by more than
    `SERVED_TOLERANCE`.

    Args:
        model: URI of the SavedModel that was evaluated.
        records: URI of the records on which it was evaluated.
        ask: sends an instance, {"b64": a serialized tf.Example}, and returns its prediction.
    """
    served_model = ServedModel(model, schema.load_dataset(records))
    examples = next(iter(read_stored_batches(served_model.dataset, "test", _SERVED_RECORDS)))
    expected = served_model.answer(examples)
    for number, example in enumerate(examples.numpy()):
        served = ask({"b64": base64.b64encode(example).decode()})
        for name, values in expected.items():
            if values.dtype.kind == "f":
                _compare_served(number, name, np.array(served.get(name)), values[number])
    return len(examples)


def _compare_served(number: int, name: str, served: np.ndarray, expected: np.ndarray) -> None:
    """Raise InputError if a server's answer to test record `number` differs from the model's."""
    if served.shape != expected.shape:
        raise InputError(
            f"the server answers test record {number} with {served.size} {name}, but its "
            f"SavedModel with {expected.size}"
        )
    gaps = np.atleast_1d(np.abs(served - expected) / np.maximum(1, np.abs(expected)))
    worst = int(gaps.argmax())
    # NaN fails this comparison, too.
    if not gaps[worst] <= SERVED_TOLERANCE:
        place = f"{name}[{worst}]" if expected.ndim else name
        raise InputError(
            f"for test record {number}, the server answers {place} = "
            f"{np.atleast_1d(served)[worst]:.6f}, but its SavedModel "
            f"{np.atleast_1d(expected)[worst]:.6f}; see the log of the deployed model, and check "
            "that serving_image fits the model"
        )
