"""A model whose probabilities reveal the pixels that it gets."""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.trainer.data.picture_folders import read_examples, rejected, write, write_pictures
from trainer.data.read.model_inputs import decode_images
from trainer.data.schema import Dataset
from trainer.exported.export import export

SIZE = 8
_LEVEL = 1000.0
"""The probability of the last class, in units of a pixel's level."""


def write_records(files: dict[str, bytes], folder, **options: Any) -> Dataset:
    """Run create_tfrecords on files by name, all of one class."""
    write_pictures(folder / "in" / "other", 10)
    write_pictures(folder / "in" / "odd", 10, seed=1)
    for name, content in files.items():
        (folder / "in" / "odd" / name).write_bytes(content)
    options = {"image_size": SIZE, "max_rejected_fraction": 1.0, **options}
    return write(folder / "in", folder / "records", **options)


def stored_pixels(dataset: Dataset) -> dict[str, np.ndarray]:
    """Return the pixels, int [height * width * channels], of the odd files by name."""
    image, pixels = dataset.feature("image"), {}
    for split in dataset.splits:
        for example in read_examples(dataset, split):
            folder, _, name = example["key"][0].decode().partition("/")
            if folder == "odd" and " " in name:
                (decoded,) = decode_images(tf.constant(example["image"]), image).numpy()
                pixels[name] = decoded.ravel().astype(int)
    return pixels


def rejections(dataset: Dataset) -> dict[str, str]:
    """Return the reasons of rejected files by name."""
    return {key.partition("/")[2]: reason for key, reason in rejected(dataset.uri).items()}


def export_revealing(dataset: Dataset, uri: str) -> str:
    """Export a model for a dataset with a class per pixel, and another one; return its URI."""
    shape = dataset.feature("image").shape
    inputs = keras.Input(shape, dtype="uint8", name="image")
    logits = keras.ops.log(keras.layers.Flatten()(keras.layers.Rescaling(1.0)(inputs)) + 1.0)
    logits = keras.ops.pad(logits, [[0, 0], [0, 1]], constant_values=math.log(_LEVEL))
    classes = [f"pixel {number}" for number in range(math.prod(shape) + 1)]
    export(keras.Model(inputs, logits), dataclasses.replace(dataset, classes=classes), uri)
    return uri


def revealed(probabilities) -> np.ndarray:
    """Return the pixels of answers, int [n, height * width * channels]."""
    values = np.array(probabilities)
    pixels = values[..., :-1] / values[..., -1:] * _LEVEL - 1
    assert np.abs(pixels - np.round(pixels)).max() < 0.01
    return np.round(pixels).astype(int)
