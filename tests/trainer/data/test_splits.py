"""Splits and shards follow from digests of the examples' content."""

import hashlib
import json
import random
import shutil
import tracemalloc

import numpy as np
import pyarrow
import pytest

from tests.trainer.data.picture_folders import (
    all_records,
    content,
    picture,
    read_examples,
    records,
    rejected,
    two_classes,
    write,
    write_pictures,
)
from trainer.data.schema import SPLITS, load_dataset
from trainer.data.sources import Example, Reference, digest
from trainer.data.write import spill
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.split_plan import plan_splits
from trainer.data.write.writer import create_tfrecords
from trainer.data.write.written_labels import ClassIndices


def listed(numbers):
    return [Example(Reference(f"k{n}", n), n % 2, digest(str(n).encode()), "") for n in numbers]


def planned(examples, fractions=(0.8, 0.1, 0.1)):
    """Return keys by split, in their order."""
    _, rows = plan_splits(iter(examples), ClassIndices(["a", "b"]), fractions)
    return {
        split: [key for part in rows.read_shard(split, 0, 1) for key in part["key"].to_pylist()]
        for split in SPLITS
    }


def test_splits_have_the_fractions_and_are_shuffled():
    splits = planned(listed(range(20_000)), [0.7, 0.2, 0.1])
    sizes = [len(keys) / 20_000 for keys in splits.values()]
    np.testing.assert_allclose(sizes, [0.7, 0.2, 0.1], atol=0.01)
    order = [int(key[1:]) for key in splits["train"]]
    assert abs(np.corrcoef(np.arange(len(order)), order)[0, 1]) < 0.05


def test_new_examples_in_any_order_never_move_old_ones():
    examples = listed(range(-500, 1000))
    random.Random(0).shuffle(examples)
    before, after = planned(listed(range(500))), planned(examples)
    for split, names in before.items():
        kept = set(names)
        assert [name for name in after[split] if name in kept] == names


def test_shard_is_a_range_of_digests_of_the_size_set(tmp_path):
    folder = two_classes(tmp_path / "in", 100)
    dataset = write(folder, tmp_path / "out", shard_megabytes=0.01)
    keys = [example["key"][0].decode() for example in read_examples(dataset, "train")]
    digests = [hashlib.md5((folder / key).read_bytes()).digest() for key in keys]
    assert digests == sorted(digests)
    shards = dataset.splits["train"].shards
    assert len(shards) >= 13
    places = [int.from_bytes(digest[:8], "big") * len(shards) >> 64 for digest in digests]
    assert np.bincount(places).tolist() == [shard.examples for shard in shards]
    sizes = [shard.bytes for shard in shards]
    assert np.mean(sizes) < 10_000
    # A range of digests has the mean of 10 images, give or take four standard deviations.
    assert max(sizes) < 23_000


@pytest.mark.slow
def test_plan_of_many_examples_takes_little_memory(monkeypatch):
    # Counted by Python and NumPy, and by Arrow; the generator itself holds one example at a time.
    # In memory, so many rows take 20 MB.
    number = 40_000
    monkeypatch.setattr(spill, "MEMORY_BYTES", 2 * 10**6)
    examples = (
        Example(Reference(f"class/{n:08}.jpg", 0), 0, digest(n.to_bytes(8, "big")), "")
        for n in range(number)
    )
    default = pyarrow.default_memory_pool()
    pool = pyarrow.proxy_memory_pool(default)
    pyarrow.set_memory_pool(pool)
    tracemalloc.start()
    try:
        totals, _ = plan_splits(examples, ClassIndices(["a"]), [0.8, 0.1, 0.1])
        peak = tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        pyarrow.set_memory_pool(default)
    assert totals.items == number
    assert peak < 13 * 10**6


def test_duplicates_are_in_one_split_and_written_from_disk_too(photos, tmp_path, monkeypatch):
    for path in sorted((photos / "cat").iterdir()):
        shutil.copy(path, path.with_name(f"copy{path.name}"))
    shutil.copy(photos / "cat" / "007.png", photos / "dog" / "same.png")
    written = records(write(photos, tmp_path / "memory", shard_megabytes=0.01))
    for split in written.values():
        assert all(key.replace("copy", "").replace("dog/same", "cat/007") in split for key in split)
    assert sum(map(len, written.values())) == 121
    monkeypatch.setattr(spill, "MEMORY_BYTES", 1)
    write(photos, tmp_path / "disk", shard_megabytes=0.01)
    assert content(tmp_path / "disk") == content(tmp_path / "memory")


def test_missing_validation_split_is_taken_from_train(tmp_path):
    for name, count in (("train", 200), ("test", 20)):
        two_classes(tmp_path / "in" / name, count, seed=count)
    dataset = write(tmp_path / "in", tmp_path / "out", split_fractions=[0.6, 0.2, 0.2])
    written = records(dataset)
    assert len(written["test"]) == 40
    assert len(written["train"]) + len(written["validation"]) == 400
    # 0.2 / (0.6 + 0.2) of 400, give or take four standard deviations.
    assert 65 < len(written["validation"]) < 135
    assert all(key.startswith("train/") for key in written["validation"])


def test_duplicates_across_given_splits_stay_in_the_last(tmp_path):
    source = tmp_path / "in"
    for seed, name in enumerate(("train", "validation", "test")):
        two_classes(source / name, 20, seed=10 * (seed + 1))
    for place in ("train/cat/a", "validation/cat/b", "test/cat/c", "train/dog/d"):
        picture(7).save(source / f"{place}.png")
    for place in ("train/dog/e", "validation/dog/f"):
        picture(8).save(source / f"{place}.png")
    dataset = write(source, tmp_path / "out", max_rejected_fraction=0.0)
    written = records(dataset)
    assert "test/cat/c.png" in written["test"]
    assert "validation/dog/f.png" in written["validation"]
    copy = "duplicate: same content as test/cat/c.png in test"
    assert rejected(tmp_path / "out") == {
        "train/cat/a.png": copy,
        "train/dog/d.png": copy,
        "train/dog/e.png": "duplicate: same content as validation/dog/f.png in validation",
        "validation/cat/b.png": copy,
    }
    assert dataset.rejected["reasons"] == {"duplicate": 4}
    assert dataset.creation["given"] == 126 == len(all_records(dataset)) + 4


def test_equal_content_under_two_labels_is_named(photos, tmp_path):
    write(photos, tmp_path / "without")
    assert "contradictions" not in json.loads((tmp_path / "without" / "dataset.json").read_text())
    for place in ("cat/a", "cat/b", "dog/c", "dog/d"):
        picture(7).save(photos / f"{place}.png")
    picture(8).save(photos / "cat" / "twice.png")
    picture(8).save(photos / "cat" / "again.png")
    lines = []
    options = RecordOptions(source=f"images:{photos}", image_size=16)
    dataset = create_tfrecords(options, str(tmp_path / "out"), progress=lines.append)
    pairs = [["cat/a.png (cat)", "dog/c.png (dog)"], ["cat/a.png (cat)", "dog/d.png (dog)"]]
    assert dataset.creation["contradictions"] == {"count": 2, "first": pairs}
    assert load_dataset(str(tmp_path / "out")) == dataset
    assert lines[-1] == (
        "warning: equal images with different labels: 2 pairs, such as cat/a.png (cat) "
        "= dog/c.png (dog); "
        "cat/a.png (cat) = dog/d.png (dog)"
    )
    assert len(all_records(dataset)) == 86


def test_class_named_train_is_no_split_beside_other_classes(tmp_path):
    write_pictures(tmp_path / "in" / "train", 40, seed=1)
    write_pictures(tmp_path / "in" / "bus", 40, seed=2)
    assert write(tmp_path / "in", tmp_path / "out").classes == ["bus", "train"]
