"""Records that differ from dataset.json are refused before training, in one line."""

import re
import shutil
import time
from pathlib import Path

import pytest

from tests import replicas
from tests.refusals import refused
from tests.trainer.data.picture_folders import flip, two_classes, write
from trainer.data.read.reader import InputShare, read_evaluation_batches, read_training_batches
from trainer.data.schema import Dataset, limit_examples, load_dataset
from trainer.errors import RETRY_EXIT_CODE
from trainer.evaluation.prediction import read_stored_batches
from trainer.training import rejoin


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


@pytest.mark.parametrize(
    "strategy",
    ["multi_worker_mirrored", pytest.param("parameter_server", marks=pytest.mark.slow)],
)
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
