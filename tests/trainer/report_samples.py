"""A small SavedModel and small record sets, written by hand.

The model's probabilities are its image's pixels over their sum, so that a test chooses
what the model answers by choosing the pixels. Whole numbers below 2^24 and one division
are exact everywhere, hence ties are ties in the model and in the test alike.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

from tests import records
from trainer.data.schema import FILE_NAME, Dataset, Split, load


class PixelModel(tf.Module):
    """Shares of an image's pixels, uint8 [n, 1, classes, 1]; not all of them 0."""

    def __init__(self, classes, change=lambda probabilities: probabilities):
        super().__init__()
        self.names = tf.constant(classes)
        self.shape = [1, len(classes), 1]
        self.change = change

    def _outputs(self, image):
        pixels = tf.cast(tf.reshape(image, [-1, self.shape[1]]), tf.float32)
        return {
            "probabilities": self.change(pixels / tf.reduce_sum(pixels, axis=1, keepdims=True)),
            "label": tf.gather(self.names, tf.argmax(pixels, axis=-1)),
        }

    def _decode(self, image_bytes):
        return tf.reshape(tf.io.decode_raw(image_bytes, tf.uint8), [-1, *self.shape])

    def signatures(self):
        @tf.function
        def image(image):
            return self._outputs(image)

        @tf.function
        def encoded(image_bytes):
            return self._outputs(self._decode(image_bytes))

        @tf.function
        def serialized(examples):
            parsed = tf.io.parse_example(examples, {"image": tf.io.FixedLenFeature([], tf.string)})
            return self._outputs(self._decode(parsed["image"]))

        text = tf.TensorSpec([None], tf.string)
        return {
            "serving_default": image.get_concrete_function(
                tf.TensorSpec([None, *self.shape], tf.uint8, name="image")
            ),
            "serving_bytes": encoded.get_concrete_function(image_bytes=text),
            "serving_examples": serialized.get_concrete_function(examples=text),
        }


def write_model(folder: Path, classes: list[str], **options) -> str:
    model = PixelModel(classes, **options)
    tf.saved_model.save(model, str(folder), signatures=model.signatures())
    return str(folder)


def probabilities_of(pixels: np.ndarray) -> np.ndarray:
    """Return the answers of PixelModel, to the bit, float32 [n, classes]."""
    counts = pixels.astype(np.float32)
    return counts / counts.sum(axis=1, keepdims=True)


def write_records(
    folder: Path,
    classes: list[str],
    labels,
    pixels: np.ndarray,
    *,
    shards: int = 2,
    keys: list[str] | None = None,
    images: list[bytes] | None = None,
) -> Dataset:
    """A data set whose test split is `labels` [n] and `pixels` (uint8 [n, classes]).

    `images` takes the pixels' place in the records.
    """
    folder.mkdir(parents=True, exist_ok=True)
    images = images or [row.tobytes() for row in pixels]
    keys = keys or [f"example-{index:04}" for index in range(len(labels))]
    examples = list(zip(images, map(int, labels), keys, strict=True))
    parts = [[examples[at] for at in part] for part in np.array_split(range(len(keys)), shards)]
    counts = np.bincount(np.asarray(labels, int), minlength=len(classes)).tolist()
    empty = Split(shards=[], class_counts=[0] * len(classes))
    dataset = Dataset(
        uri=str(folder),
        name="pixels",
        features=records.features([1, len(classes), 1], "raw"),
        classes=classes,
        splits={
            "train": Split(shards=[], class_counts=[3 * count for count in counts]),
            "validation": empty,
            "test": Split(shards=records.write_shards(folder, "test", parts), class_counts=counts),
        },
        rejected={"count": 2, "reasons": {"not an image": 2}, "file": "rejected.jsonl"},
        creation={"source": "pixels", "options": {"image_size": 8, "encoding": "raw"}},
    )
    (folder / FILE_NAME).write_text(dataset.to_json())
    return load(str(folder))
