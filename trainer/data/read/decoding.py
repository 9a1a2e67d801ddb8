"""Serialized tf.Examples to what a model takes: one by one, or as a data set of batches."""

import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.data.schema import Dataset, Feature
from trainer.data.tables.inputs import Encoder, parse_columns

plain = tf.autograph.experimental.do_not_convert
"""Decorates functions of tensors without Python's if and for: to convert each takes 50 ms."""


def decoded(
    serialized: tf.data.Dataset, dataset: Dataset, *, size: int, parts: int
) -> tf.data.Dataset:
    """Cuts a worker's batches into `parts` of `size` examples, decodes them and reads ahead.

    JPEGs are decoded one by one, which keeps all cores at work for any batch size; on a busy
    machine that is several times as fast as decoding them in batches. Raw images and rows of a
    table cost too little for that.

    Args:
        serialized: of (tf.Examples, string [parts * size]; weights, float32 of that shape).
    """
    if parts > 1:
        serialized = serialized.unbatch().batch(size, drop_remainder=True)
    if dataset.is_table or dataset.feature("image").encoding != "jpeg":
        batches = serialized.map(
            plain(
                lambda batch, weights: (*parse(tf.ensure_shape(batch, [size]), dataset), weights)
            ),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
    else:
        image = dataset.feature("image")
        batches = (
            serialized.map(plain(lambda batch, weights: (*_stored(batch, dataset), weights)))
            .unbatch()
            .map(
                plain(lambda stored, label, weight: (_decoded_jpeg(stored, image), label, weight)),
                num_parallel_calls=tf.data.AUTOTUNE,
            )
            .batch(size, drop_remainder=True)
        )
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)


def parse(serialized: tf.Tensor, dataset: Dataset) -> tuple[Any, tf.Tensor]:
    """Serialized tf.Examples (string [n]) to a model's inputs and labels (int64 [n]).

    Inputs are images, uint8 [n, height, width, channels], or of a table what
    `trainer.data.tables.inputs.Encoder` makes of its columns.
    """
    if dataset.is_table:
        return _table_parser(_Features(dataset, repr(dataset.features)))(serialized)
    stored, labels = _stored(serialized, dataset)
    return decode_images(stored, dataset.feature("image")), labels


def _stored(serialized: tf.Tensor, dataset: Dataset) -> tuple[tf.Tensor, tf.Tensor]:
    """Serialized tf.Examples (string [n]) to stored image bytes (string [n]) and labels."""
    image, label = dataset.feature("image").name, dataset.feature("label").name
    features = tf.io.parse_example(
        serialized,
        {
            image: tf.io.FixedLenFeature([], tf.string),
            label: tf.io.FixedLenFeature([], tf.int64),
        },
    )
    return features[image], features[label]


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
        lambda one: _decoded_jpeg(one, image),
        stored,
        fn_output_signature=tf.TensorSpec(image.shape, tf.uint8),
    )


def _decoded_jpeg(stored: tf.Tensor, image: Feature) -> tf.Tensor:
    """Return a JPEG (string []) to uint8 [height, width, channels]."""
    return tf.ensure_shape(tf.io.decode_jpeg(stored, channels=image.shape[-1]), image.shape)
