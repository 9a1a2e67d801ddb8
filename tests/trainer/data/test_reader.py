"""Every example is read once an epoch, in one order for any number of workers, undamaged."""

import re
import shutil
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.refusals import refused
from tests.small_records import write_records
from tests.trainer.data.picture_folders import flip, two_classes, write
from trainer.data.read.reader import (
    InputShare,
    read_evaluation_batches,
    read_training_batches,
    steps_per_epoch,
)
from trainer.data.schema import Dataset, limit_examples, load_dataset
from trainer.engine import rejoin
from trainer.evaluation.prediction import read_stored_batches
from vertex.errors import RETRY_EXIT_CODE


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
@pytest.mark.parametrize("workers", [1, 3])
def test_every_example_is_read_by_one_worker(tmp_path, shards, workers):
    dataset = numbered(tmp_path, shards)
    batches = [read(dataset, share) for share in shares(24, workers)]
    assert {len(b) for b in batches} == {steps_per_epoch(dataset, "train", 24)} == {2}
    assert sorted([label for b in batches for label in kept(b)]) == list(range(40))


@pytest.mark.parametrize("workers", [2, 4])
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "records"
    write(two_classes(folder.parent / "in", 100), folder, shard_megabytes=0.02)
    return folder


@pytest.fixture
def dataset(tmp_path, whole) -> Dataset:
    """A copy that a test may damage."""
    return load_dataset(str(shutil.copytree(whole, tmp_path / "records")))


def last_shard(dataset: Dataset, split: str = "train") -> Path:
    return Path(dataset.shard_uri(dataset.splits[split].shards[-1]))


def cut(path: Path) -> None:
    """Cut between two records, where TensorFlow sees nothing wrong."""
    data = path.read_bytes()
    path.write_bytes(data[: 16 + int.from_bytes(data[:8], "little")])


def swap(path: Path) -> None:
    """Put another shard of the same length in its place."""
    other_shard = next(shard for shard in path.parent.glob("train-*") if shard != path)
    path.write_bytes((other_shard.read_bytes() * 2)[: path.stat().st_size])


DIFFERS = r"is damaged or was replaced \(its sha256 differs\)"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (flip, DIFFERS),
        (cut, r"has \d[\d,]* bytes instead of \d[\d,]*"),
        (swap, DIFFERS),
        (Path.unlink, "is missing"),
    ],
)
@pytest.mark.parametrize(
    ("split", "read"),
    [
        (
            "train",
            lambda data: read_training_batches(data, InputShare(batch_size=8), seed=1, epoch=0),
        ),
        (
            "validation",
            lambda data: read_evaluation_batches(data, "validation", InputShare(batch_size=8)),
        ),
        ("test", lambda data: read_stored_batches(data, "test", 8)),
    ],
)
def test_damaged_shard_is_refused_before_it_is_read(dataset, split, read, damage, words):
    path = last_shard(dataset, split)
    damage(path)
    assert re.search(f"{path.name} {words}, so .*create_tfrecords", refused(read, dataset))


def test_worker_checks_only_the_shards_that_it_reads(dataset):
    shares = [InputShare(batch_size=8, worker=number, workers=2) for number in range(2)]
    part = limit_examples(dataset, "train", 3)
    assert len(list(read_training_batches(part, InputShare(batch_size=3), seed=1, epoch=0))) == 1
    flip(last_shard(dataset))
    assert read_training_batches(dataset, shares[0], seed=1, epoch=0)
    message = refused(read_training_batches, dataset, shares[1], seed=1, epoch=0)
    assert "is damaged or was replaced" in message


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"dog"', '"cow"', "was changed"),
        ('"examples": ', '"examples": 1', "was changed"),
        ("16", "1e999", "was changed"),
        ('"image"', "[]", "was changed"),
        ('"sha256": "', '"sha": "', "not describe a dataset"),
        ('"dog"', "[" * 100_000, r"not describe a dataset \(.*recursion"),
    ],
    ids=["class", "count", "shape", "name", "sha256", "depth"],
)
def test_changed_dataset_json_is_refused(dataset, old, new, reason):
    path = Path(dataset.uri, "dataset.json")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    message = refused(load_dataset, dataset.uri)
    assert re.search(rf"dataset.json does .*{reason}.*run create_tfrecords", message)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["multi_worker_mirrored", "parameter_server"])
def test_job_on_damaged_records_ends_without_training(tmp_path, dataset, monkeypatch, strategy):
    # A replica that has waited for so long does not wait again.
    monkeypatch.setenv(rejoin.WAITED_SINCE, str(time.time() - rejoin.PATIENCE_SECONDS - 1))
    roles, finder = replicas.CHIEF_AND_WORKER, "worker"
    if strategy == "parameter_server":
        roles, finder = [*roles, ("ps", 0)], "chief"
    flip(last_shard(dataset))
    options = [f"--dataset={dataset.uri}", f"--base_output_directory={tmp_path / 'job'}"]
    options += ["--epochs=1", "--batch_size=8", "--model=small_cnn", f"--strategy={strategy}"]
    with replicas.Cluster("trainer.task", options, roles, tmp_path / "logs") as cluster:
        cluster.start_all()
        assert cluster.processes[finder, 0].wait(240) == 2, cluster.tails()
        if finder == "worker":
            assert cluster.processes["chief", 0].wait(240) == RETRY_EXIT_CODE, cluster.tails()
            *_, line = (tmp_path / "logs" / "chief-0.log").read_text().splitlines()
            assert line.startswith("error: a peer of chief 0 is gone (")
            assert line.endswith("), and did not come back")
    log = (tmp_path / "logs" / f"{finder}-0.log").read_text()
    assert "Traceback" not in log
    assert "tfrecord is damaged or was replaced" in log.splitlines()[-1]
    assert not (tmp_path / "job" / "history.csv").exists()
    assert not (tmp_path / "job" / "metrics.json").exists()
