"""Decode batches of serialized tf.Examples to a model's inputs."""

import tensorflow as tf

from trainer.data.read.input_share import InputShare
from trainer.data.read.model_inputs import open_inputs
from trainer.data.schema import Dataset

plain = tf.autograph.experimental.do_not_convert
"""Decorator for functions that don't use Python's if and for on tensors: converting takes 50 ms."""


def decode_batches(
    serialized: tf.data.Dataset, dataset: Dataset, share: InputShare
) -> tf.data.Dataset:
    """Divide a worker's batches among its replicas, decode them and read ahead.

    JPEGs are decoded in pieces of a batch: if they were decoded one by one, the dataset's overhead
    per example would take a sixth of the time; in whole batches, cores would wait for each other.

    Args:
        serialized: dataset of (tf.Examples, string [n]; weights, float32 [n]) for `share`.
    """
    size, parts = share.replica_batch_size, share.local_replicas
    inputs = open_inputs(dataset)
    largest = inputs.max_piece or size
    piece = max(piece for piece in range(1, largest + 1) if size % piece == 0)
    cuts = parts * size // piece
    if cuts > 1:
        shape = [cuts, piece]
        serialized = serialized.map(
            plain(lambda batch, weights: (tf.reshape(batch, shape), tf.reshape(weights, shape)))
        ).unbatch()
    batches = serialized.map(
        plain(
            lambda batch, weights: (
                *inputs.parse(tf.ensure_shape(batch, [piece])),
                inputs.weigh(batch, weights),
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


def _join_pieces(*pieces: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Return tensors [pieces, n, ...] as [pieces * n, ...]."""
    return tuple(
        tf.reshape(tensor, [tensor.shape[0] * tensor.shape[1], *tensor.shape[2:]])
        for tensor in pieces
    )
