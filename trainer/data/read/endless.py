"""Read records as endless batches, for workers that run asynchronously.

With parameter servers, a worker reads every shard, in its own order, and starts over at the end:
if each worker read only some of the shards, a lost worker's examples would be missing from the
training. An epoch is the number of steps that read as many examples as there are. So it reads most
examples once, some twice and some never.
"""

import numpy as np
import tensorflow as tf

from trainer.data.read.input_share import InputShare
from trainer.data.read.reader import decode_batches, plain
from trainer.data.schema import Dataset

FILES_AT_ONCE = 4
"""Number of shards that are read in turn: more shards mix better, but need more open files."""


def read_endless_batches(
    dataset: Dataset,
    share: InputShare,
    *,
    seed: tf.Tensor,
    shuffle_megabytes: float,
) -> tf.data.Dataset:
    """Return endless, full batches of the training split, shuffled each pass.

    They are (inputs, labels, weights); the weights are all 1. The split's shards are checked.

    Args:
        seed: seed of the order, int64 []; its value may be known only when the graph runs.
        shuffle_megabytes: size of the shuffle buffer of serialized records, in 10^6 bytes.
    """
    content = dataset.splits["train"]
    shards = [shard for shard in content.shards if shard.examples]
    counts = np.array([shard.examples for shard in shards], np.int64)
    files = ([dataset.shard_uri(shard) for shard in shards], counts)
    buffer = int(shuffle_megabytes * 1e6 * content.examples / max(1, content.bytes))
    records = (
        tf.data.Dataset.from_tensor_slices(files)
        .shuffle(len(shards), seed=seed)
        .repeat()
        .interleave(
            plain(lambda uri, examples: tf.data.TFRecordDataset(uri).take(examples)),
            cycle_length=min(len(shards), FILES_AT_ONCE),
        )
        .shuffle(max(1, min(buffer, content.examples)), seed=seed + 1)
    )
    size = share.replica_batch_size
    batches = records.batch(size, drop_remainder=True)
    weighted = batches.map(plain(lambda batch: (batch, tf.ones([size]))))
    return decode_batches(weighted, dataset, share)
