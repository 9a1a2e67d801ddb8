"""Read records as batches: the same global batches for any number of workers.

The order of examples depends on the seed and the epoch, not on the workers. A split is divided
into lanes: runs of records whose lengths differ by at most one. A global batch takes equally many
examples from each lane, and each worker reads a block of neighboring lanes:

    lane 0   0  1  8  9 ...  \\ worker 0
    lane 1   2  3 10 11 ...  /
    lane 2   4  5 12 13 ...  \\ worker 1
    lane 3   6  7 14 15 ...  /

So every example is read once per epoch, by one worker, for any number of shards. If the number of
shards is a multiple of the number of lanes, which the writer ensures, no two workers open the same
file. The last batch of an epoch is padded to its full size with examples of weight 0: shapes stay
static, and no replica is left without a batch.

Images stay uint8 until they are inside the model: a quarter of the bytes of float32.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from trainer.data.integrity import check_shards
from trainer.data.read.input_share import InputShare
from trainer.data.read.model_inputs import open_inputs, weigh
from trainer.data.schema import Dataset

plain = tf.autograph.experimental.do_not_convert
"""Decorator for functions that don't use Python's if and for on tensors: converting takes 50 ms."""
_FILES_AT_ONCE = 4
"""Number of shards that endless batches are read from in turn: more mix better, but need more open
files."""


def steps_per_epoch(dataset: Dataset, split: str, batch_size: int) -> int:
    """Return the number of global batches in an epoch, including a partial last one."""
    return math.ceil(dataset.splits[split].examples / batch_size)


def read_training_batches(
    dataset: Dataset,
    share: InputShare,
    *,
    seed: int,
    epoch: int,
    first_step: int = 0,
    shuffle_megabytes: float = 256.0,
    split: str = "train",
) -> tf.data.Dataset:
    """Return this worker's batches of one epoch (from 0), in the order that seed and epoch fix.

    Starts with the batch that an uninterrupted epoch has at step `first_step`; skipped examples
    are read, but not decoded.

    Returns:
        A dataset of (inputs, labels, weights) per replica: inputs and labels as
        `model_inputs` returns them, weights float32 [replica_batch_size], 0 for padding, else 1
        on average.
        Successive elements belong to successive local replicas.

    Raises:
        InputError: a shard is missing or damaged.
    """
    content = dataset.splits[split]
    example_bytes = max(1.0, content.bytes / content.examples)
    buffer = int(shuffle_megabytes * 1e6 / example_bytes / share.shuffled_together)
    order = _Order(seed=seed, epoch=epoch, buffer=max(1, buffer))
    serialized = _read_batches(dataset, split, share, order).skip(first_step)
    return decode_batches(serialized, dataset, share)


def read_evaluation_batches(dataset: Dataset, split: str, share: InputShare) -> tf.data.Dataset:
    """Return this worker's batches of one pass over `split`, in stored order.

    Elements and errors are those of `read_training_batches`.
    """
    return decode_batches(_read_batches(dataset, split, share, None), dataset, share)


def read_endless_batches(
    dataset: Dataset,
    share: InputShare,
    *,
    seed: tf.Tensor,
    shuffle_megabytes: float,
) -> tf.data.Dataset:
    """Return endless, full batches of the training split, for workers that run asynchronously.

    With parameter servers, a worker reads every shard, shuffled each pass: if each worker read only
    some, a lost worker's examples would be missing from the training. An epoch is the number of
    steps that read as many examples as there are. So it reads most examples once, some twice and
    some never. Elements are (inputs, labels, weights); the weights are all 1. The caller checks
    the shards.

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
            cycle_length=min(len(shards), _FILES_AT_ONCE),
        )
        .shuffle(max(1, min(buffer, content.examples)), seed=seed + 1)
    )
    size = share.replica_batch_size
    batches = records.batch(size, drop_remainder=True)
    weighted = batches.map(plain(lambda batch: (batch, tf.ones([size]))))
    return decode_batches(weighted, dataset, share)


def read_stored(dataset: Dataset, split: str) -> tf.data.Dataset:
    """Return the serialized examples of a split, string [], in stored order."""
    shards = dataset.splits[split].shards
    check_shards(dataset, shards)
    return tf.data.TFRecordDataset([dataset.shard_uri(shard) for shard in shards if shard.examples])


def read_for_keras(
    dataset: Dataset, split: str, batch_size: int, *, seed: int | None = None
) -> tf.data.Dataset:
    """Return a split as Keras' `fit` takes it: (inputs, labels), and weights if the records have.

    Inputs and labels are as `model_inputs` returns them; the last batch may be smaller.

    Args:
        seed: if given, the examples are shuffled by it, anew in each epoch.
    """
    records = read_stored(dataset, split)
    if seed is not None:
        records = records.shuffle(max(1, dataset.splits[split].examples), seed=seed)
    inputs = open_inputs(dataset)

    def decode(batch: tf.Tensor) -> Any:
        decoded = inputs.parse(batch)
        if not dataset.weight:
            return decoded
        return (*decoded, weigh(dataset, batch, tf.ones(tf.shape(batch))))

    known = tf.data.experimental.assert_cardinality(steps_per_epoch(dataset, split, batch_size))
    batches = records.batch(batch_size).map(plain(decode), tf.data.AUTOTUNE)
    return batches.apply(known).prefetch(tf.data.AUTOTUNE)


class _Order(NamedTuple):
    """The order of an epoch."""

    seed: int
    epoch: int
    buffer: int  # examples in a lane's shuffle buffer


class _Segment(NamedTuple):
    """A run of records in one file: skip `skip` records, then take `take`."""

    file: str
    skip: int
    take: int


def _assign_lanes(dataset: Dataset, split: str, share: InputShare) -> dict[int, list[_Segment]]:
    """Return this worker's lanes by number, each as the segments that it reads in turn."""
    ends = np.cumsum([shard.examples for shard in dataset.splits[split].shards]).tolist()
    spans = list(zip(dataset.splits[split].shards, [0, *ends], ends, strict=False))
    count, total = share.lanes, ends[-1]
    lanes = {}
    for lane in share.own_lanes:
        begin, end = lane * total // count, (lane + 1) * total // count
        lanes[lane] = [
            _Segment(
                file=dataset.shard_uri(shard),
                skip=max(begin - start, 0),
                take=min(end, stop) - max(begin, start),
            )
            for shard, start, stop in spans
            if max(begin, start) < min(end, stop)
        ]
    return lanes


def _read_records(
    lanes: Mapping[int, list[_Segment]], order: _Order | None, together: int
) -> tf.data.Dataset:
    """Return the serialized records of the lanes in turn, each lane shuffled according to `order`.

    `together` is the number of records that are read from a lane in its turn.
    Lanes are data, so that their pipeline is traced once, not once per lane.
    """
    longest = max(len(segments) for segments in lanes.values())
    # Lanes are padded to equal lengths to be rows of tensors; nothing is read from the padding.
    files, spans, orders = [], [], []
    for lane, segments in lanes.items():
        generator = np.random.default_rng([order.seed, order.epoch, lane] if order else 0)
        if order:
            segments = [segments[index] for index in generator.permutation(len(segments))]
        padding = longest - len(segments)
        files.append([segment.file for segment in segments] + [""] * padding)
        spans.append([(segment.skip, segment.take) for segment in segments] + [(0, 0)] * padding)
        buffer = min(order.buffer, sum(segment.take for segment in segments)) if order else 1
        orders.append((buffer, int(generator.integers(1, 2**31))))

    @plain
    def read(files: tf.Tensor, spans: tf.Tensor, buffer_and_seed: tf.Tensor) -> Any:
        records = tf.data.Dataset.from_tensor_slices((files, spans)).flat_map(
            plain(lambda file, span: tf.data.TFRecordDataset(file).skip(span[0]).take(span[1]))
        )
        if order is None:
            return records
        # The order does not depend on the global seed, but tf.data takes no tensor as a seed if
        # the global seed is 0.
        tf.compat.v1.set_random_seed(1)
        buffer, seed = tf.unstack(buffer_and_seed)
        return records.shuffle(buffer, seed=seed, reshuffle_each_iteration=False)

    table = (np.array(files), np.array(spans, np.int64), np.array(orders, np.int64))
    # Lanes are read in parallel, because a bucket sends each file at a limited rate.
    return tf.data.Dataset.from_tensor_slices(table).interleave(
        read,
        cycle_length=len(lanes),
        block_length=together,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _read_batches(
    dataset: Dataset, split: str, share: InputShare, order: _Order | None
) -> tf.data.Dataset:
    """Return one epoch as (serialized string [worker_batch_size], weights float32, same shape)."""
    size, own = share.worker_batch_size, len(share.own_lanes) * share.lane_size
    lanes = {
        n: segments for n, segments in _assign_lanes(dataset, split, share).items() if segments
    }
    files = {segment.file for segments in lanes.values() for segment in segments}
    shards = dataset.splits[split].shards
    check_shards(dataset, [shard for shard in shards if dataset.shard_uri(shard) in files])
    examples = sum(segment.take for segments in lanes.values() for segment in segments)
    missing = steps_per_epoch(dataset, split, share.batch_size)
    batches = []
    if lanes:
        missing -= math.ceil(examples / own)
        batches.append(
            _read_records(lanes, order, share.lane_size if order else 1)
            .batch(own)
            .map(plain(lambda batch: _pad_batch(batch, size)))
        )
    if missing:  # Other workers have a last batch, for which this worker has no examples.
        uris = [dataset.shard_uri(shard) for shard in shards]
        filler = tf.data.TFRecordDataset(uris).take(1).repeat(size).batch(size, drop_remainder=True)
        batches.append(filler.map(plain(lambda batch: (batch, tf.zeros([size])))))
    return functools.reduce(tf.data.Dataset.concatenate, batches)


def _pad_batch(batch: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Pad a batch (string [n <= size]) with its own examples, at weight 0."""
    present = tf.shape(batch)[0]
    position = tf.range(size)
    weights = tf.cast(position < present, tf.float32)
    return tf.gather(batch, position % present), weights


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
                weigh(dataset, batch, weights),
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
