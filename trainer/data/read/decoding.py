"""Decode serialized tf.Examples to a model's inputs, as tensors or as datasets of batches."""

from typing import Any

import numpy as np
import tensorflow as tf

from trainer.data.schema import Dataset, Feature
from trainer.data.tables.inputs import Encoder, parse_columns

_MAX_PIECE = 32
"""Largest number of JPEGs that one call decodes."""
plain = tf.autograph.experimental.do_not_convert
"""Decorator for functions that don't use Python's if and for on tensors: converting takes 50 ms."""


def decode_batches(serialized: tf.data.Dataset, dataset: Dataset, share: Any) -> tf.data.Dataset:
    """Divide a worker's batches among its replicas, decode them and read ahead.

    JPEGs are decoded in pieces of a batch: if they were decoded one by one, the dataset's overhead
    per example would take a sixth of the time; in whole batches, cores would wait for each other.

    Args:
        serialized: dataset of (tf.Examples, string [n]; weights, float32 [n]) for `share`.
    """
    size, parts = share.replica_batch_size, share.local_replicas
    piece = _piece_size(dataset, size)
    cuts = parts * size // piece
    if cuts > 1:
        shape = [cuts, piece]
        serialized = serialized.map(
            plain(lambda batch, weights: (tf.reshape(batch, shape), tf.reshape(weights, shape)))
        ).unbatch()
    batches = serialized.map(
        plain(
            lambda batch, weights: (
                *parse_examples(tf.ensure_shape(batch, [piece]), dataset),
                weights,
            )
        ),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    if piece < size:
        batches = batches.batch(size // piece, drop_remainder=True).map(plain(_join_pieces))
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)


def _piece_size(dataset: Dataset, size: int) -> int:
    """Return the number of examples that one call decodes, a divisor of `size`."""
    if dataset.is_table or dataset.feature("image").encoding != "jpeg":
        return size
    return max(piece for piece in range(1, _MAX_PIECE + 1) if size % piece == 0)


def _join_pieces(*pieces: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Return tensors [pieces, n, ...] as [pieces * n, ...]."""
    return tuple(
        tf.reshape(tensor, [tensor.shape[0] * tensor.shape[1], *tensor.shape[2:]])
        for tensor in pieces
    )


def parse_examples(serialized: tf.Tensor, dataset: Dataset) -> tuple[Any, tf.Tensor]:
    """Decode serialized tf.Examples (string [n]) to a model's inputs and labels (int64 [n]).

    Inputs are images, uint8 [n, height, width, channels], or a table's columns as encoded by
    `trainer.data.tables.inputs.Encoder`.
    """
    if dataset.is_table:
        key = repr(dataset.features)
        if key not in _table_parsers:
            _table_parsers[key] = _build_table_parser(dataset)
        return _table_parsers[key](serialized)
    image, label = dataset.feature("image"), dataset.feature("label").name
    features = tf.io.parse_example(
        serialized,
        {
            image.name: tf.io.FixedLenFeature([], tf.string),
            label: tf.io.FixedLenFeature([], tf.int64),
        },
    )
    return decode_images(features[image.name], image), features[label]


_table_parsers: dict[str, Any] = {}
"""Parsers of tables by features: without this cache, each epoch would trace them again."""


def _build_table_parser(dataset: Dataset) -> Any:
    encode = Encoder(dataset)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def parser(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        columns = parse_columns(serialized, dataset, label=True)
        return encode(columns), columns[dataset.feature("label").name]

    return parser


def decode_images(stored: tf.Tensor, image: Feature) -> tf.Tensor:
    """Decode stored image bytes (string [n]) to uint8 [n, height, width, channels]."""
    if image.encoding == "raw":
        size = int(np.prod(image.shape))
        flat = tf.io.decode_raw(stored, tf.uint8, fixed_length=size)
        return tf.reshape(flat, [-1, *image.shape])

    def decode(jpeg: tf.Tensor) -> tf.Tensor:
        return tf.io.decode_jpeg(jpeg, channels=image.shape[-1])

    count = stored.shape[0]
    if count and count <= _MAX_PIECE:  # One operation per image avoids the cost of a loop.
        images = tf.stack([decode(jpeg) for jpeg in tf.unstack(stored)])
        return tf.ensure_shape(images, [count, *image.shape])
    return tf.map_fn(decode, stored, fn_output_signature=tf.TensorSpec(image.shape, tf.uint8))
