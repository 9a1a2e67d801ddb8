"""Fresh data costs what is fresh: shards of earlier records stay where nothing in them changed."""

import json
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.data import killing
from tests.trainer.data.folders import (
    SIZE,
    all_records,
    content,
    picture,
    records,
    two_classes,
    write,
    write_pictures,
)
from trainer.data.record_options import RecordOptions
from trainer.data.schema import Shard, load
from trainer.data.write import writer
from trainer.data.write.shards import ShardResult
from trainer.data.write.store import RecordsStore
from trainer.errors import InputError

OPTIONS = {"image_size": SIZE, "encoding": "raw", "shard_megabytes": 0.1}
PICTURES = 400
"""Of each of two classes: nine shards or so of 0.1 MB."""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return two_classes(tmp_path_factory.mktemp("pictures"), PICTURES)


@pytest.fixture
def photos(tmp_path, pictures):
    """A copy of them that a test may change."""
    return shutil.copytree(pictures, tmp_path / "photos")


@pytest.fixture
def run(tmp_path, photos):
    """Writes the photos with a store to a folder named; returns the data set and the log."""

    def run(name, source=photos, **options):
        lines = []
        values = {**OPTIONS, "records_store": str(tmp_path / "store"), **options}
        dataset = writer.create_tfrecords(
            RecordOptions(source=f"images:{source}", **values),
            str(tmp_path / name),
            progress=lines.append,
        )
        return dataset, lines

    return run


def shards(dataset):
    return {shard.sha256 for split in dataset.splits.values() for shard in split.shards}


def said(lines):
    (line,) = [line for line in lines if "taken over" in line]
    return line.removeprefix("create_tfrecords: ")


def test_with_a_few_new_pictures_every_shard_stays_and_those_alone_are_written(run, photos):
    first, lines = run("first")
    assert said(lines).startswith("0 shards taken over")
    write_pictures(photos / "cat" / "new", 8, seed=7)
    second, lines = run("second")
    old = len(shards(first))
    assert shards(first) < shards(second)
    assert said(lines).startswith(f"{old} shards taken over, ")
    assert said(lines).endswith(" to write with 8 images")
    # A link, which takes no room of its own.
    files = [shard for split in first.splits.values() for shard in split.shards]
    assert all(Path(first.shard_uri(shard)).stat().st_nlink == 2 for shard in files)
    plain = write(photos, Path(first.uri).parent / "plain", shard_megabytes=0.1)
    assert all_records(second) == all_records(plain)
    for split in ("train", "validation", "test"):
        assert records(second)[split].keys() == records(plain)[split].keys()
        assert second.splits[split].class_counts == plain.splits[split].class_counts
    assert second.rejected == plain.rejected


def test_nothing_new_gives_the_same_bytes_again(run, photos):
    run("first")
    write_pictures(photos / "cat" / "new", 8, seed=7)
    second, _ = run("second")
    third, lines = run("third")
    assert content(Path(third.uri)) == content(Path(second.uri))
    # The small shards of the fresh pictures are written again, those alone.
    assert said(lines).endswith(" to write with 8 images")


@pytest.mark.parametrize("change", ["vanished", "renamed", "moved", "changed"])
def test_a_shard_that_is_no_longer_true_gives_its_others_to_new_ones(run, photos, change):
    first, _ = run("first")
    one = photos / "cat" / "007.png"
    if change == "vanished":
        one.unlink()
    elif change == "renamed":
        one.rename(photos / "cat" / "renamed.png")
    elif change == "moved":
        one.rename(photos / "dog" / "moved.png")
    else:
        picture(99_999).save(one)
    second, _ = run("second")
    assert len(shards(first) - shards(second)) == 1
    plain = write(photos, Path(first.uri).parent / "plain", shard_megabytes=0.1)
    assert all_records(second) == all_records(plain)


def test_rejected_pictures_stay_known_with_their_shards(run, photos):
    broken = photos / "cat" / "broken.jpg"
    broken.write_bytes(b"\xff\xd8\xff broken")
    first, _ = run("first")
    write_pictures(photos / "dog" / "new", 3, seed=7)
    second, _ = run("second")
    assert first.rejected == second.rejected
    assert second.rejected["count"] == 1
    rejected = Path(second.uri, "rejected.jsonl").read_text()
    assert json.loads(rejected)["key"] == "cat/broken.jpg"


def test_small_shards_are_written_again_before_they_are_many(run, photos):
    first, _ = run("run-0")
    for number in range(1, 7):
        write_pictures(photos / "cat" / f"new-{number}", 8, seed=number + 10)
        last, _ = run(f"run-{number}")
    usual = min(shard.bytes for shard in first.splits["train"].shards)
    small = [one for one in last.splits["train"].shards if one.bytes < usual / 2]
    assert len(small) <= 1
    assert len(all_records(last)) == 2 * PICTURES + 48


@pytest.mark.parametrize("change", [{"image_size": 15}, {"encoding": "jpeg"}, "class"])
def test_under_other_options_or_with_another_class_nothing_is_taken_over(run, photos, change):
    run("first")
    if change == "class":
        write_pictures(photos / "cow", 30, seed=5)
        change = {}
    _, lines = run("second", **change)
    assert said(lines).startswith("0 shards taken over")


def test_where_the_last_records_are_gone_all_are_written(run, photos):
    first, _ = run("first")
    shutil.rmtree(first.uri)
    second, lines = run("second")
    assert said(lines).startswith("0 shards taken over")
    assert shards(second) == shards(first)


def test_the_same_folder_written_twice_takes_nothing_from_itself(run, photos):
    first, _ = run("first")
    write_pictures(photos / "cat" / "new", 8, seed=7)
    again, lines = run("first")
    assert said(lines).startswith("0 shards taken over")
    assert load(first.uri) == again


def refused(run, *arguments, **options):
    with pytest.raises(InputError) as raised:
        run(*arguments, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_damaged_shard_is_named_and_not_taken_over(run, photos, tmp_path):
    first, _ = run("first")
    path = Path(first.shard_uri(first.splits["train"].shards[2]))
    damaged = bytearray(path.read_bytes())
    damaged[50] ^= 1
    path.write_bytes(damaged)
    assert refused(run, "second") == (
        f"{path} is damaged; remove it, and its examples are written again"
    )
    assert not (tmp_path / "second" / "dataset.json").exists()
    path.unlink()
    second, _ = run("second")
    assert shards(second) == shards(first)


def test_a_store_that_is_none_is_one_line(run, tmp_path):
    (tmp_path / "file").write_text("")
    assert "can't write to" in refused(run, "out", records_store=str(tmp_path / "file" / "store"))
    run("first")
    (entry,) = (tmp_path / "store").iterdir()
    entry.write_text("{}")
    assert f"{entry} is not what create_tfrecords writes; remove it" in refused(run, "second")
    with pytest.raises(InputError, match="records_store='s' keeps shards of images, but source="):
        RecordOptions(
            source="csv:t.csv",
            records_store="s",
            columns=[{"name": "a", "type": "numeric"}],
            label={"column": "b"},
        )


def test_killed_at_random_moments_and_run_again_gives_the_same_bytes(run, photos, tmp_path):
    run("first")
    write_pictures(photos / "cat" / "new", 150, seed=7)
    shutil.copytree(tmp_path / "store", tmp_path / "store-before")
    expected, _ = run("second")
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "store-before", tmp_path / "store")
    options = RecordOptions(
        source=f"images:{photos}", records_store=str(tmp_path / "store"), **OPTIONS
    )
    dice = random.Random(1)
    moments = [dice.randrange(1, len(shards(expected))) for _ in range(4)]
    killing.kill_and_finish(
        options, tmp_path / "third", killing.ALONE, content(Path(expected.uri)), moments, dice
    )


def test_runs_that_end_at_the_same_moment_leave_the_records_of_one_of_them(tmp_path):
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
    (found,) = store.shards("another")
    assert found.folder in {str(tmp_path / name) for name in ("a", "bb")}
    assert not list(tmp_path.glob("*.partial"))
