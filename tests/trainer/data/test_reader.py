"""Every example is read once an epoch, in one order for any number of workers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.refusals import refused
from tests.small_records import write_records
from trainer.data.read.reader import (
    InputShare,
    read_evaluation_batches,
    read_training_batches,
    steps_per_epoch,
)
from trainer.data.schema import Dataset, load_dataset


def numbered(directory, shards: list[int], encoding: str = "raw") -> Dataset:
    """Write images whose value is their label: 0, 1, 2 ... in shards of the sizes given."""
    labels = np.arange(sum(shards))
    images = np.broadcast_to(labels[:, None, None, None], (len(labels), 8, 8, 1)).astype(np.uint8)
    cuts = np.cumsum(shards)[:-1]
    parts = list(zip(np.split(images, cuts), np.split(labels, cuts), strict=True))
    return write_records(directory, {"train": parts}, [str(label) for label in labels], encoding)


def read(dataset: Dataset, share: InputShare, **order) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (labels, weights) of each local batch of an epoch."""
    result = []
    for images, labels, weights in read_training_batches(
        dataset, share, **{"seed": 7, "epoch": 0, **order}
    ):
        assert images.shape == (share.replica_batch_size, 8, 8, 1)
        assert images.dtype == tf.uint8
        np.testing.assert_allclose(images.numpy()[:, 0, 0, 0], labels.numpy(), atol=2)
        result.append((labels.numpy(), weights.numpy()))
    return result


def kept(batches) -> list[int]:
    """Return the labels of examples, without padding."""
    return [int(label) for labels, weights in batches for label in labels[weights > 0]]


def shares(batch_size: int, workers: int) -> list[InputShare]:
    return [InputShare(batch_size=batch_size, worker=w, workers=workers) for w in range(workers)]


@pytest.mark.parametrize("shards", [[40], [1, 38, 1], [5] * 8, [0, 13, 0, 27], [3] * 13 + [1]])
@pytest.mark.parametrize("workers", [1, 6])
def test_every_example_is_read_by_one_worker(tmp_path, shards, workers):
    dataset = numbered(tmp_path, shards)
    batches = [read(dataset, share) for share in shares(24, workers)]
    assert {len(b) for b in batches} == {steps_per_epoch(dataset, "train", 24)} == {2}
    assert sorted([label for b in batches for label in kept(b)]) == list(range(40))


@pytest.mark.parametrize("workers", [2, 8])
def test_global_batch_is_the_same_for_any_number_of_workers(tmp_path, workers):
    dataset = numbered(tmp_path, [9, 30, 1, 27])
    alone = read(dataset, InputShare(batch_size=16))
    shared = [read(dataset, share) for share in shares(16, workers)]
    for step, batch in enumerate(alone):
        together = [label for worker in shared for label in kept([worker[step]])]
        assert sorted(together) == sorted(kept([batch]))


def test_order_depends_only_on_the_epoch_and_the_seed(tmp_path):
    dataset = numbered(tmp_path, [30, 34])
    share = InputShare(batch_size=8)
    first = kept(read(dataset, share))
    assert first != sorted(first)
    assert first == kept(read(load_dataset(dataset.uri), share))
    assert first != kept(read(dataset, share, epoch=1))
    assert first != kept(read(dataset, share, seed=8))
    keras.utils.set_random_seed(1)
    assert first == kept(read(dataset, share))


@pytest.mark.parametrize("encoding", ["raw", "jpeg"])
def test_resumed_epoch_continues_in_the_same_order(tmp_path, encoding):
    dataset = numbered(tmp_path, [30, 34], encoding)
    share = shares(24, 2)[1]
    whole = read(dataset, share, epoch=3)
    assert kept(read(dataset, share, epoch=3, first_step=1)) == kept(whole[1:])
    assert kept(whole[1:]) != kept(whole[:1])


def test_replicas_of_a_host_get_equal_parts_and_padding(tmp_path):
    dataset = numbered(tmp_path, [13])
    batches = read(dataset, InputShare(batch_size=8, local_replicas=2))
    assert [len(labels) for labels, _ in batches] == [4, 4, 4, 4]
    assert [weights.sum() for _, weights in batches] == [4, 4, 4, 1]
    assert sorted(kept(batches)) == list(range(13))


def test_evaluation_reads_the_stored_order_of_each_lane(tmp_path):
    dataset = numbered(tmp_path, [11, 5])
    batches = read_evaluation_batches(dataset, "train", InputShare(batch_size=4))
    labels = kept((labels.numpy(), weights.numpy()) for _, labels, weights in batches)
    assert labels == [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]


def test_batch_size_that_replicas_can_not_share_is_refused():
    message = refused(InputShare, batch_size=100, workers=3)
    assert "batch_size=100 " in message and message.endswith(" 3 replicas; use 99 or 102")
    message = refused(InputShare, batch_size=1, local_replicas=2)
    assert "batch_size=1 " in message and message.endswith(" 2 replicas; use 2")
