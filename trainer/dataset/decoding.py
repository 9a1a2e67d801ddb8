"""Serialized tf.Examples to what a model takes: one by one, or as a data set of batches."""

import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.dataset.schema import Dataset, Feature
from trainer.dataset.tabular.inputs import Encoder, parse_columns


def decoded(
    serialized: tf.data.Dataset, dataset: Dataset, *, size: int, parts: int
) -> tf.data.Dataset:
    """Cuts a worker's batches into `parts` of `size` examples, decodes them and reads ahead.

    Args:
        serialized: of (tf.Examples, string [parts * size]; weights, float32 of that shape).
    """
    if parts > 1:
        serialized = serialized.flat_map(
            lambda batch, weights: tf.data.Dataset.from_tensor_slices(
                (
                    tf.reshape(batch, [parts, size]),
                    tf.reshape(weights, [parts, size]),
                )
            )
        )
    image = None if dataset.is_table else dataset.feature("image")
    if image and image.encoding == "jpeg":
        batches = _decoded_one_by_one(serialized, dataset, image, size)
    else:
        batches = serialized.map(
            lambda batch, weights: (*parse(batch, dataset), weights),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)


def _decoded_one_by_one(
    serialized: tf.data.Dataset, dataset: Dataset, image: Feature, size: int
) -> tf.data.Dataset:
    """Parses batches and decodes their JPEGs an example at a time, on all cores."""
    label = dataset.feature("label").name
    description = {
        image.name: tf.io.FixedLenFeature([], tf.string),
        label: tf.io.FixedLenFeature([], tf.int64),
    }

    def parse_batch(batch: tf.Tensor, weights: tf.Tensor) -> tuple:
        features = tf.io.parse_example(batch, description)
        return features[image.name], features[label], weights

    return (
        serialized.map(parse_batch)
        .unbatch()
        .map(
            lambda stored, label, weight: (decode_jpeg(stored, image), label, weight),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        .batch(size, drop_remainder=True)
    )


def parse(serialized: tf.Tensor, dataset: Dataset) -> tuple[Any, tf.Tensor]:
    """Serialized tf.Examples (string [n]) to a model's inputs and labels (int64 [n]).

    Inputs are images, uint8 [n, height, width, channels], or of a table what
    `trainer.dataset.tabular.inputs.Encoder` makes of its columns.
    """
    if dataset.is_table:
        return _table_parser(_Features(dataset, repr(dataset.features)))(serialized)
    image = dataset.feature("image")
    features = tf.io.parse_example(
        serialized,
        {
            image.name: tf.io.FixedLenFeature([], tf.string),
            dataset.feature("label").name: tf.io.FixedLenFeature([], tf.int64),
        },
    )
    return decode_images(features[image.name], image), features[dataset.feature("label").name]


@dataclasses.dataclass(frozen=True)
class _Features:
    """A data set to which another one is equal that has the same features."""

    dataset: Dataset = dataclasses.field(compare=False)
    features: str


@functools.lru_cache(maxsize=8)
def _table_parser(described: _Features) -> Any:
    """`parse` of a table, traced once: many columns are many operations, anew each epoch."""
    dataset = described.dataset
    encode = Encoder(dataset)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def parser(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        columns = parse_columns(serialized, dataset, label=True)
        return encode(columns), columns[dataset.feature("label").name]

    return parser


def decode_images(stored: tf.Tensor, image: Feature) -> tf.Tensor:
    """Stored image bytes (string [n]) to uint8 [n, height, width, channels]."""
    if image.encoding == "raw":
        size = int(np.prod(image.shape))
        flat = tf.io.decode_raw(stored, tf.uint8, fixed_length=size)
        return tf.reshape(flat, [-1, *image.shape])
    return tf.map_fn(
        lambda one: decode_jpeg(one, image),
        stored,
        fn_output_signature=tf.TensorSpec(image.shape, tf.uint8),
    )


def decode_jpeg(stored: tf.Tensor, image: Feature) -> tf.Tensor:
    """One JPEG (string []) to uint8 [height, width, channels]."""
    decoded = tf.io.decode_jpeg(stored, channels=image.shape[-1])
    return tf.ensure_shape(decoded, image.shape)
