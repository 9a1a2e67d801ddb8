"""Predict the records of a split with a SavedModel, and compare a server's predictions."""

import base64
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from trainer.data import schema
from trainer.data.integrity import check_shards
from trainer.data.read.model_inputs import open_inputs
from trainer.data.schema import Dataset
from trainer.errors import InputError, first_line
from trainer.exported import saved_model
from trainer.metrics.disk_columns import Answers, ColumnValues
from trainer.metrics.mistakes import MostConfident
from trainer.progress_lines import ProgressLines

SIGNATURE = "serving_examples"

SERVED_TOLERANCE = 1e-4
"""Largest accepted difference of a server's probabilities: machines sum in different orders."""

_SERVED_RECORDS = 32
_LINE_SECONDS = 5.0
TIE_TOLERANCE = 1e-6  # between the largest probability and the probability of the named label
_SUM_TOLERANCE = 1e-3  # for a softmax that was computed in bfloat16 and cast to float32


class ServedModel:
    """The signature `serving_examples` of the SavedModel at `uri`."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        # A signature is valid only while the loaded model is referenced.
        self._model = saved_model.load(uri, SIGNATURE)
        self._signature = self._model.signatures[SIGNATURE]

    @property
    def image_shape(self) -> list[int]:
        """Return [height, width, channels] of the input images; empty if unknown."""
        default = self._model.signatures.get("serving_default")
        inputs = default.structured_input_signature[1] if default else {}
        return inputs["image"].shape[1:].as_list() if "image" in inputs else []

    def answer(self, examples: tf.Tensor, dataset: Dataset) -> np.ndarray:
        """Return checked probabilities, float32 [n, classes], of serialized examples [n]."""
        values, names = self.predict_unchecked(examples)
        self._check_values(values, dataset)
        self._check_names(names.tolist(), values, dataset)
        return values

    def predict_unchecked(self, examples: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return unchecked probabilities, float32 [n, its classes], and class names, bytes [n]."""
        outputs = self._signature(examples=examples)
        return outputs["probabilities"].numpy(), outputs["label"].numpy()

    def _check_values(self, values: np.ndarray, dataset: Dataset) -> None:
        if values.ndim != 2 or values.shape[1] != len(dataset.classes):
            raise InputError(
                f"the model at {self.uri} returns probabilities of shape {list(values.shape)}, but "
                f"{dataset.uri} has {len(dataset.classes)} classes: it was trained on other data"
            )
        if not np.isfinite(values).all():
            raise InputError(
                f"the model at {self.uri} returns probabilities that are NaN or infinite: its "
                "training diverged; lower learning_rate, or set gradient_clip_norm"
            )
        sums = values.sum(axis=1)
        worst = sums[np.abs(sums - 1).argmax()]
        if abs(worst - 1) > _SUM_TOLERANCE or values.min() < 0:
            raise InputError(
                f"the model at {self.uri} returns probabilities that add up to {worst:.4g} (the "
                f"least is {values.min():.4g}); its output must be a softmax"
            )

    def _check_names(self, names: list[bytes], values: np.ndarray, dataset: Dataset) -> None:
        """Raise InputError if class names or their order differ from the dataset's."""
        indices = {name.encode(): index for index, name in enumerate(dataset.classes)}
        predicted = np.array([indices.get(name, -1) for name in names])
        of_name = values[np.arange(len(values)), predicted]
        wrong = np.flatnonzero((predicted < 0) | (of_name < values.max(axis=1) - TIE_TOLERANCE))
        if len(wrong):
            name, best = names[wrong[0]], int(values[wrong[0]].argmax())
            raise InputError(
                f"the model at {self.uri} predicts {name.decode(errors='replace')!r} where "
                f"{dataset.uri} has {dataset.classes[best]!r}: it was trained on "
                "other classes, or on another order of them"
            )


def read_stored_batches(dataset: Dataset, split: str, batch_size: int) -> tf.data.Dataset:
    """Return the serialized examples of a split, string [up to batch_size], in stored order."""
    shards = dataset.splits[split].shards
    check_shards(dataset, shards)
    files = [dataset.shard_uri(shard) for shard in shards if shard.examples]
    return tf.data.TFRecordDataset(files).batch(batch_size).prefetch(2)


def predict(
    model: ServedModel, dataset: Dataset, mistakes: MostConfident, values: ColumnValues
) -> Answers:
    """Predict the test split, and add each batch to `mistakes` and `values`.

    Because one pass does all of it, no record is read twice.
    """
    total = dataset.splits["test"].examples
    answers = Answers(total, len(dataset.classes))
    lines = ProgressLines("evaluate_model", "test examples", total=total, interval=_LINE_SECONDS)
    try:
        for batch in read_stored_batches(dataset, "test", open_inputs(dataset).scored_at_once):
            labels, keys = _parse_labels_and_keys(batch, dataset)
            probabilities = model.answer(batch, dataset)
            answers.add(labels, probabilities, keys)
            mistakes.add(batch, labels, probabilities)
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
    return answers


def _parse_labels_and_keys(batch: tf.Tensor, dataset: Dataset) -> tuple[np.ndarray, list[bytes]]:
    names = [dataset.feature(kind).name for kind in ("label", "key")]
    types = [tf.io.FixedLenFeature([], dtype) for dtype in (tf.int64, tf.string)]
    parsed = tf.io.parse_example(batch, dict(zip(names, types, strict=True)))
    labels, keys = (parsed[name].numpy() for name in names)
    return labels, keys.tolist()


def check_served(model: str, records: str, ask: Callable[[dict[str, str]], Sequence[float]]) -> int:
    """Compare a server's predictions of the first test records with the SavedModel's.

    Return the number of records. Raise InputError if a probability differs by more than
    `SERVED_TOLERANCE`.

    Args:
        model: URI of the SavedModel that was evaluated.
        records: URI of the records on which it was evaluated.
        ask: sends an instance, {"b64": a serialized tf.Example}, and returns its probabilities.
    """
    dataset = schema.load_dataset(records)
    examples = next(iter(read_stored_batches(dataset, "test", _SERVED_RECORDS)))
    expected = ServedModel(model).answer(examples, dataset)
    for number, (example, probabilities) in enumerate(zip(examples.numpy(), expected, strict=True)):
        served = np.array(ask({"b64": base64.b64encode(example).decode()}))
        if served.shape != probabilities.shape:
            raise InputError(
                f"the server answers test record {number} with {served.size} probabilities, but "
                f"the records have {probabilities.size} classes"
            )
        worst = int(np.abs(served - probabilities).argmax())
        # NaN fails this comparison, too.
        if not np.abs(served - probabilities)[worst] <= SERVED_TOLERANCE:
            raise InputError(
                f"for test record {number}, the server returns a probability of "
                f"{served[worst]:.6f} for {dataset.classes[worst]}, but its SavedModel "
                f"{probabilities[worst]:.6f}; see the log of the deployed model, and check that "
                "serving_image fits the model"
            )
    return len(expected)
