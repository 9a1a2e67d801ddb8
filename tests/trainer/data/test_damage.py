"""Records that are not what dataset.json says are never trained on: one line names them."""

import shutil
from pathlib import Path

import pytest

from tests import replicas
from tests.trainer.data.folders import two_classes, write
from trainer.data.read.reader import InputShare, evaluation_batches, training_batches
from trainer.data.schema import Dataset, limited, load
from trainer.errors import InputError
from trainer.evaluation.prediction import stored_batches


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "records"
    write(two_classes(folder.parent / "in", 100), folder, shard_megabytes=0.02)
    return folder


@pytest.fixture
def dataset(tmp_path, whole) -> Dataset:
    """A copy that a test may damage."""
    return load(str(shutil.copytree(whole, tmp_path / "records")))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    """Cuts between two records, where TensorFlow sees nothing wrong."""
    data = path.read_bytes()
    path.write_bytes(data[: 16 + int.from_bytes(data[:8], "little")])


def swap(path: Path) -> None:
    """Puts another shard of the same length in its place."""
    other = next(one for one in path.parent.glob("train-*") if one != path)
    path.write_bytes((other.read_bytes() * 2)[: path.stat().st_size])


DAMAGES = {
    flip: r"is damaged or replaced \(its sha256 differs\)",
    cut: r"has \d[\d,]* bytes in place of \d[\d,]*",
    swap: r"is damaged or replaced \(its sha256 differs\)",
    Path.unlink: "is missing",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_damaged_shard_is_one_line_before_anything_is_read(dataset, split, damage):
    path = Path(dataset.shard_uri(dataset.splits[split].shards[-1]))
    damage(path)
    ways = {
        "train": lambda: training_batches(dataset, InputShare(batch_size=8), seed=1, epoch=0),
        "validation": lambda: evaluation_batches(dataset, split, InputShare(batch_size=8)),
        "test": lambda: stored_batches(dataset, split, 8),
    }
    with pytest.raises(InputError, match=f"{path.name} {DAMAGES[damage]}, so .*create_tfrecords"):
        ways[split]()


def test_a_worker_checks_the_shards_that_it_reads_and_no_others(dataset):
    shares = [InputShare(batch_size=8, worker=number, workers=2) for number in range(2)]
    flip(Path(dataset.shard_uri(dataset.splits["train"].shards[-1])))
    assert training_batches(dataset, shares[0], seed=1, epoch=0)
    with pytest.raises(InputError, match="is damaged or replaced"):
        training_batches(dataset, shares[1], seed=1, epoch=0)


def test_a_part_of_a_shard_is_read(dataset):
    part = limited(dataset, "train", 3)
    assert len(list(training_batches(part, InputShare(batch_size=3), seed=1, epoch=0))) == 1


@pytest.mark.parametrize(
    "change",
    [
        ('"dog"', '"cow"', "was changed"),
        ('"examples": ', '"examples": 1', "was changed"),
        ("16", "1e999", "was changed"),
        ('"image"', "[]", "was changed"),
        ('"sha256": "', '"sha": "', "not a data set's"),
    ],
    ids=["class", "count", "shape", "name", "sha256"],
)
def test_a_changed_dataset_json_is_one_line(dataset, change):
    path = Path(dataset.uri, "dataset.json")
    text = path.read_text()
    old, new, reason = change
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=rf"dataset.json is .*{reason} .*run create_tfrecords"):
        load(dataset.uri)


def test_a_deeply_nested_dataset_json_is_one_line(tmp_path):
    (tmp_path / "dataset.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(InputError, match=r"dataset.json is not a data set's \(.*recursion"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("strategy", "roles", "finder"),
    [
        ("multi_worker_mirrored", [("chief", 0), ("worker", 0)], "worker"),
        pytest.param(
            "parameter_server",
            [("chief", 0), ("worker", 0), ("ps", 0)],
            "chief",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_job_on_damaged_records_trains_nothing(tmp_path, dataset, strategy, roles, finder):
    flip(Path(dataset.shard_uri(dataset.splits["train"].shards[-1])))
    options = [f"--dataset={dataset.uri}", f"--base_output_directory={tmp_path / 'job'}"]
    options += ["--epochs=1", "--batch_size=8", "--model=small_cnn", f"--strategy={strategy}"]
    with replicas.Cluster("trainer.task", options, roles, tmp_path / "logs") as cluster:
        cluster.start_all()
        assert cluster.processes[finder, 0].wait(240) == 2, cluster.tails()
    log = (tmp_path / "logs" / f"{finder}-0.log").read_text()
    assert "Traceback" not in log
    assert "tfrecord is damaged or replaced" in log.splitlines()[-1]
    assert not (tmp_path / "job" / "history.csv").exists()
    assert not (tmp_path / "job" / "metrics.json").exists()
