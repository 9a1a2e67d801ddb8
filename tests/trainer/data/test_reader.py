"""Every example is read once an epoch, in one order for any number of workers."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.records import write_records
from trainer.data.read.reader import (
    InputShare,
    evaluation_batches,
    steps_per_epoch,
    training_batches,
)
from trainer.data.schema import Dataset, load
from trainer.errors import InputError


def numbered(directory, shards: list[int], encoding: str = "raw") -> Dataset:
    """Images whose value is their label: 0, 1, 2 ... in shards of the sizes given."""
    cuts = np.cumsum([0, *shards])
    parts = []
    for begin, end in itertools.pairwise(cuts):
        labels = np.arange(begin, end)
        images = np.broadcast_to(labels[:, None, None, None], (len(labels), 8, 8, 1))
        parts.append((images.astype(np.uint8), labels))
    classes = [str(label) for label in range(cuts[-1])]
    return write_records(directory, {"train": parts}, classes, encoding)


def read(dataset: Dataset, share: InputShare, **order) -> list[tuple[np.ndarray, np.ndarray]]:
    """(labels, weights) of each local batch of an epoch."""
    order = {"seed": 7, "epoch": 0, **order}
    batches = training_batches(dataset, share, **order)
    result = []
    for images, labels, weights in batches:
        assert images.shape == (share.replica_batch_size, 8, 8, 1)
        assert images.dtype == tf.uint8
        np.testing.assert_allclose(images.numpy()[:, 0, 0, 0], labels.numpy(), atol=2)
        result.append((labels.numpy(), weights.numpy()))
    return result


def kept(batches) -> list[int]:
    return [int(label) for labels, weights in batches for label in labels[weights > 0]]


@pytest.mark.parametrize("shards", [[40], [1, 38, 1], [5] * 8, [0, 13, 0, 27], [3] * 13 + [1]])
@pytest.mark.parametrize("workers", [1, 6])
def test_every_example_is_read_once_by_one_worker(tmp_path, shards, workers):
    dataset = numbered(tmp_path, shards)
    shares = [InputShare(batch_size=24, worker=w, workers=workers) for w in range(workers)]
    batches = [read(dataset, share) for share in shares]
    assert {len(b) for b in batches} == {steps_per_epoch(dataset, "train", 24)} == {2}
    assert sorted([label for b in batches for label in kept(b)]) == list(range(40))


@pytest.mark.parametrize("workers", [2, 8])
def test_a_global_batch_holds_the_same_examples_for_any_number_of_workers(tmp_path, workers):
    dataset = numbered(tmp_path, [9, 30, 1, 27])
    alone = read(dataset, InputShare(batch_size=16))
    shared = [
        read(dataset, InputShare(batch_size=16, worker=w, workers=workers)) for w in range(workers)
    ]
    for step, batch in enumerate(alone):
        together = [label for worker in shared for label in kept([worker[step]])]
        assert sorted(together) == sorted(kept([batch]))


def test_order_changes_with_the_epoch_and_the_seed_and_with_nothing_else(tmp_path):
    dataset = numbered(tmp_path, [30, 34])
    share = InputShare(batch_size=8)
    first = kept(read(dataset, share))
    assert first != sorted(first)
    assert first == kept(read(load(dataset.uri), share))
    assert first != kept(read(dataset, share, epoch=1))
    assert first != kept(read(dataset, share, seed=8))
    keras.utils.set_random_seed(1)
    assert first == kept(read(dataset, share))


@pytest.mark.parametrize("encoding", ["raw", "jpeg"])
def test_an_epoch_taken_up_in_its_middle_goes_on_as_if_never_left(tmp_path, encoding):
    dataset = numbered(tmp_path, [30, 34], encoding)
    share = InputShare(batch_size=24, worker=1, workers=2)
    whole = read(dataset, share, epoch=3)
    assert kept(read(dataset, share, epoch=3, first_step=1)) == kept(whole[1:])
    assert kept(whole[1:]) != kept(whole[:1])


def test_replicas_of_a_host_get_equal_parts_and_padding_weighs_nothing(tmp_path):
    dataset = numbered(tmp_path, [13])
    batches = read(dataset, InputShare(batch_size=8, local_replicas=2))
    assert [len(labels) for labels, _ in batches] == [4, 4, 4, 4]
    assert [weights.sum() for _, weights in batches] == [4, 4, 4, 1]
    assert sorted(kept(batches)) == list(range(13))


def test_evaluation_reads_the_stored_order_of_each_lane(tmp_path):
    dataset = numbered(tmp_path, [11, 5])
    labels = [
        int(label)
        for _, labels, weights in evaluation_batches(dataset, "train", InputShare(batch_size=4))
        for label in labels.numpy()[weights.numpy() > 0]
    ]
    assert labels == [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]


def test_a_batch_that_replicas_cannot_share_names_the_sizes_that_they_can():
    with pytest.raises(InputError, match=r"batch_size=100 .* 3 replicas; use 99 or 102"):
        InputShare(batch_size=100, workers=3)
    with pytest.raises(InputError, match=r"batch_size=1 .* 2 replicas; use 2$"):
        InputShare(batch_size=1, local_replicas=2)
