"""A store keeps shards whose examples have not changed; only the others are written again."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.refusals import refused
from tests.trainer.data import killing
from tests.trainer.data.picture_folders import (
    SIZE,
    all_records,
    content,
    flip,
    picture,
    records,
    two_classes,
    write,
    write_pictures,
)
from trainer.data.schema import Shard, load_dataset
from trainer.data.write.output import ShardResult
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.store import RecordsStore
from trainer.data.write.writer import create_tfrecords

OPTIONS = {"image_size": SIZE, "encoding": "raw", "shard_megabytes": 0.05}
NONE_KEPT = "0 shards reused, "


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """200 of each of two classes: nine shards or so of 0.05 MB."""
    return two_classes(tmp_path_factory.mktemp("pictures"), 200)


@pytest.fixture
def photos(tmp_path, pictures):
    """A copy of them that a test may change."""
    return shutil.copytree(pictures, tmp_path / "photos")


@pytest.fixture
def run(tmp_path, photos):
    """Write the photos with a store to a folder named; return the dataset and its log line."""

    def run(name, **options):
        lines = []
        values = {**OPTIONS, "records_store": str(tmp_path / "store"), **options}
        options = RecordOptions(source=f"images:{photos}", **values)
        dataset = create_tfrecords(options, str(tmp_path / name), progress=lines.append)
        (line,) = [line for line in lines if "reused" in line]
        return dataset, line.removeprefix("create_tfrecords: ")

    return run


@pytest.fixture
def first(run):
    """The records of a first run, and the photos' shards in the store."""
    dataset, line = run("first")
    assert line.startswith(NONE_KEPT)
    return dataset


def digests(dataset):
    return {shard.sha256 for split in dataset.splits.values() for shard in split.shards}


def test_new_pictures_are_written_and_every_shard_kept(first, run, photos, tmp_path):
    write_pictures(photos / "cat" / "new", 8, seed=7)
    second, line = run("second")
    assert digests(first) < digests(second)
    assert line.startswith(f"{len(digests(first))} shards reused, ")
    assert line.endswith(" to write with 8 images")
    # Copies, not links: damage to the first run's files leaves the second's intact.
    for split in first.splits.values():
        flip(Path(first.shard_uri(split.shards[0])))
    plain = write(photos, tmp_path / "plain", shard_megabytes=0.05)
    assert all_records(second) == all_records(plain)
    for split in ("train", "validation", "test"):
        assert records(second)[split].keys() == records(plain)[split].keys()
        assert second.splits[split].class_counts == plain.splits[split].class_counts
    assert second.rejected == plain.rejected
    third, line = run("third")
    assert content(Path(third.uri)) == content(Path(second.uri))
    # The small shards of the fresh pictures are written again, those alone.
    assert line.endswith(" to write with 8 images")


CHANGES = {
    "removed": Path.unlink,
    "renamed": lambda path: path.rename(path.with_name("renamed.png")),
    "moved": lambda path: path.rename(path.parents[1] / "dog" / "moved.png"),
    "changed": lambda path: picture(99_999).save(path),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_picture_rewrites_only_its_shard(first, run, photos, tmp_path, change):
    CHANGES[change](photos / "cat" / "007.png")
    second, _ = run("second")
    assert len(digests(first) - digests(second)) == 1
    plain = write(photos, tmp_path / "plain", shard_megabytes=0.05)
    assert all_records(second) == all_records(plain)


def test_rejected_pictures_stay_known_with_their_shards(run, photos):
    (photos / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    first, _ = run("first")
    write_pictures(photos / "dog" / "new", 3, seed=7)
    second, _ = run("second")
    assert first.rejected == second.rejected
    assert second.rejected["count"] == 1
    rejected = Path(second.uri, "rejected.jsonl").read_text()
    assert json.loads(rejected)["key"] == "cat/broken.jpg"


def test_small_shards_are_merged_before_they_are_many(first, run, photos):
    for number in range(1, 7):
        write_pictures(photos / "cat" / f"new-{number}", 8, seed=number + 10)
        last, _ = run(f"run-{number}")
    usual = min(shard.bytes for shard in first.splits["train"].shards)
    assert sum(shard.bytes < usual / 2 for shard in last.splits["train"].shards) <= 1
    assert len(all_records(last)) == 400 + 48


def test_other_options_or_classes_keep_no_shard(first, run, photos):
    for options in ({"image_size": 15}, {"encoding": "jpeg"}):
        assert run("second", **options)[1].startswith(NONE_KEPT)
    write_pictures(photos / "cow", 30, seed=5)
    assert run("second")[1].startswith(NONE_KEPT)


def test_replaced_or_removed_records_are_written_again(first, run, photos):
    write_pictures(photos / "cat" / "new", 8, seed=7)
    again, line = run("first")
    assert line.startswith(NONE_KEPT)
    assert load_dataset(first.uri) == again
    shutil.rmtree(first.uri)
    third, line = run("third")
    assert line.startswith(NONE_KEPT)
    assert digests(third) == digests(again)


def test_damaged_shard_is_refused_until_it_is_removed(first, run, tmp_path):
    path = Path(first.shard_uri(first.splits["train"].shards[2]))
    flip(path)
    message = refused(run, "second")
    assert message == f"{path} is damaged; remove it to have it written again"
    assert not (tmp_path / "second" / "dataset.json").exists()
    path.unlink()
    assert digests(run("second")[0]) == digests(first)


def test_invalid_store_is_refused(first, run, tmp_path):
    (tmp_path / "file").write_text("")
    assert "can't write to" in refused(run, "out", records_store=str(tmp_path / "file" / "store"))
    (entry,) = (tmp_path / "store").iterdir()
    entry.write_text("{}")
    assert f"{entry} is damaged; remove it" in refused(run, "second")


def test_killed_run_repeated_writes_the_same_bytes(first, run, photos, tmp_path):
    write_pictures(photos / "cat" / "new", 150, seed=7)
    store = tmp_path / "store"
    before = shutil.copytree(store, tmp_path / "before")
    run("second")
    shutil.rmtree(store)
    before.rename(store)
    expected = content(tmp_path / "second")
    options = RecordOptions(source=f"images:{photos}", records_store=str(store), **OPTIONS)
    killing.kill_and_finish(options, expected, tmp_path / "third")


def test_simultaneous_runs_store_the_records_of_one_of_them(tmp_path):
    ready = threading.Barrier(2)

    def save(name):
        store = RecordsStore(str(tmp_path), "conditions")
        shard = Shard(file="train-00000-of-00001.tfrecord", examples=1, bytes=0, sha256="")
        (tmp_path / name).mkdir()
        (tmp_path / name / shard.file).touch()
        saved = [(ShardResult(shard, [1], []), np.zeros(10_000, "S16"))]
        for _ in range(100):
            ready.wait(60)
            store.save(str(tmp_path / name), saved)
        return store

    with ThreadPoolExecutor(2) as pool:
        store, _ = pool.map(save, ("a", "bb"))
    (listed,) = store.list_shards("another")
    assert listed.folder in {str(tmp_path / name) for name in ("a", "bb")}
    assert not list(tmp_path.glob("*.partial"))
