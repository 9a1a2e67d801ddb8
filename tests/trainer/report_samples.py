"""Write a small SavedModel and small record sets for tests of evaluation and report.

The model's probabilities are its image's pixels over their sum, so that a test chooses the
answers by choosing the pixels. Whole numbers below 2^24 and one division are exact everywhere:
ties in the model are ties in the test.
"""

import dataclasses
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests import small_records
from trainer.data.schema import EXTRA_ASSETS, FILE_NAME, Dataset, Split, load_dataset
from trainer.exported import model_files


def write_model(
    folder: Path, classes: list[str], change=lambda probabilities: probabilities
) -> str:
    """Save a model of images, uint8 [n, 1, classes, 1]; `change` alters its probabilities."""
    shape = [1, len(classes), 1]

    def answers(images):
        pixels = tf.cast(tf.reshape(images, [-1, len(classes)]), tf.float32)
        return {
            "probabilities": change(pixels / tf.reduce_sum(pixels, axis=1, keepdims=True)),
            "label": tf.gather(classes, tf.argmax(pixels, axis=-1)),
        }

    @tf.function(input_signature=[tf.TensorSpec([None, *shape], tf.uint8, name="image")])
    def from_images(image):
        return answers(image)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def from_examples(examples):
        parsed = tf.io.parse_example(examples, {"image": tf.io.FixedLenFeature([], tf.string)})
        return answers(tf.io.decode_raw(parsed["image"], tf.uint8))

    signatures = {"serving_default": from_images, "serving_examples": from_examples}
    tf.saved_model.save(tf.Module(), str(folder), signatures)
    (folder / EXTRA_ASSETS).mkdir()
    model_files.write_digests(str(folder))
    return str(folder)


def probabilities_of(pixels: np.ndarray) -> np.ndarray:
    """Return the model's answers to the bit, float32 [n, classes]."""
    counts = pixels.astype(np.float32)
    return counts / counts.sum(axis=1, keepdims=True)


def write_records(
    folder: Path,
    classes: list[str],
    labels,
    pixels: np.ndarray,
    *,
    keys: list[str] | None = None,
) -> Dataset:
    """Write a dataset whose test split is `labels` [n] and `pixels` (uint8 [n, classes])."""
    images = np.asarray(pixels, np.uint8).reshape(-1, 1, len(classes), 1)
    labels, half = np.asarray(labels, int), (len(labels) + 1) // 2
    shards = [(images[part], labels[part]) for part in (slice(half), slice(half, None))]
    keys = keys or [f"example-{index:04}" for index in range(len(labels))]
    dataset = small_records.write_records(folder, {"test": shards}, classes, keys=keys)
    counts = dataset.splits["test"].class_counts
    train = Split(shards=[], class_counts=[3 * count for count in counts])
    validation = Split(shards=[], class_counts=[0] * len(classes))
    changed = dataclasses.replace(
        dataset,
        name="pixels",
        splits={"train": train, "validation": validation, **dataset.splits},
        rejected={"count": 2, "reasons": {"not an image": 2}, "file": "rejected.jsonl"},
        creation={"source": "pixels", "options": {"image_size": 8, "encoding": "raw"}},
    )
    (folder / FILE_NAME).write_text(changed.to_json())
    return load_dataset(str(folder))
