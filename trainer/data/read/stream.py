"""Records to batches without end, for workers that keep no step with each other.

A worker of a parameter server reads every shard, in an order of its own, and starts over
when it is through: were the shards shared out, a worker that is gone for good would take
its share out of the training. So an epoch, the number of steps that it takes to see as
many examples as there are, sees most of them once, some twice and some not at all.
"""

import numpy as np
import tensorflow as tf

from trainer.data.read import reader
from trainer.data.read.decoding import decoded
from trainer.data.schema import Dataset

FILES_AT_ONCE = 4
"""Shards that examples are taken from in turn: more mix better, and cost open files."""


def endless_batches(
    dataset: Dataset,
    share: reader.InputShare,
    *,
    seed: tf.Tensor,
    shuffle_megabytes: float,
    split: str = "train",
) -> tf.data.Dataset:
    """Full batches of `split` (it has an example, its shards are checked), shuffled each pass.

    Args:
        seed: of the order, int64 []; may be known only where the graph runs.
        shuffle_megabytes: of serialized records in the shuffle buffer (10^6 bytes).

    Returns:
        A dataset without end of (inputs, labels, weights); the weights are all 1.
    """
    content = dataset.splits[split]
    shards = [shard for shard in content.shards if shard.examples]
    counts = np.array([shard.examples for shard in shards], np.int64)
    files = ([dataset.shard_uri(shard) for shard in shards], counts)
    fitting = int(shuffle_megabytes * 1e6 * content.examples / max(1, content.bytes))
    records = (
        tf.data.Dataset.from_tensor_slices(files)
        .shuffle(len(shards), seed=seed)
        .repeat()
        .interleave(
            lambda uri, examples: tf.data.TFRecordDataset(uri).take(examples),
            cycle_length=min(len(shards), FILES_AT_ONCE),
        )
        .shuffle(max(1, min(fitting, content.examples)), seed=seed + 1)
    )
    size = share.replica_batch_size
    batches = records.batch(size, drop_remainder=True)
    weighted = batches.map(lambda batch: (batch, tf.ones([size])))
    return decoded(weighted, dataset, size=size, parts=share.local_replicas)
