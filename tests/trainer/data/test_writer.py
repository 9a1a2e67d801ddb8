import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

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
from trainer.data import schema
from trainer.data.record_options import RecordOptions
from trainer.data.write import process_pool, writer
from trainer.data.write.layout import shard_count
from trainer.data.write.writer import create_tfrecords
from trainer.data.write.writing_progress import ProgressLines


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """The records of 80 pictures."""
    folder = tmp_path_factory.mktemp("written")
    return write(two_classes(folder / "in"), folder / "out")


def test_tensorflow_reads_what_is_written(dataset):
    files = [dataset.shard_uri(one) for s in dataset.splits.values() for one in s.shards]
    read = {}
    for record in tf.data.TFRecordDataset(files):
        example = tf.io.parse_single_example(
            record,
            {
                "image": tf.io.FixedLenFeature([], tf.string),
                "label": tf.io.FixedLenFeature([], tf.int64),
                "key": tf.io.FixedLenFeature([], tf.string),
            },
        )
        image = tf.io.decode_raw(example["image"], tf.uint8)
        read[example["key"].numpy().decode()] = (int(example["label"]), image.numpy())
    assert len(read) == 80
    label, image = read["dog/007.png"]
    assert dataset.classes[label] == "dog"
    np.testing.assert_array_equal(image.reshape(SIZE, SIZE, 3), picture(2007))


def test_dataset_json_tells_everything_and_is_what_is_returned(dataset):
    folder = Path(dataset.uri)
    assert schema.load(dataset.uri) == dataset
    text = (folder / "dataset.json").read_text()
    assert dataset.uri not in text
    assert dataset.classes == ["cat", "dog"]
    assert dataset.feature("image").shape == [SIZE, SIZE, 3]
    for name, split in dataset.splits.items():
        labels = [label for label, _ in records(dataset)[name].values()]
        assert split.class_counts == [labels.count(0), labels.count(1)]
    shards = {one.file: one.bytes for split in dataset.splits.values() for one in split.shards}
    sizes = {name: (folder / name).stat().st_size for name in content(folder)}
    assert sizes == {**shards, "dataset.json": len(text), "rejected.jsonl": 0}
    assert dataset.creation["given"] == dataset.creation["accepted"] == 80
    versions = {"tensorflow", "numpy", "pillow", "opencv-python-headless"}
    assert json.loads(text)["creation"]["versions"].keys() == versions


def test_digits_come_out_complete_and_stretched_to_bytes(tmp_path):
    dataset = write("digits", tmp_path, image_size=8, channels=1)
    found = all_records(dataset)
    assert len(found) == 1797
    assert dataset.classes == list("0123456789")
    first = np.frombuffer(found["digits/0"][1], np.uint8).reshape(8, 8)
    # The first scan's first row is 0 0 5 13 9 1 0 0, of 16.
    assert first[0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]


def test_processes_write_the_same_bytes_as_one(tmp_path, monkeypatch):
    source = two_classes(tmp_path / "in", 150)
    write(source, tmp_path / "one", encoding="jpeg", image_size=64)
    monkeypatch.setattr(writer, "POOL_MIN_SECONDS", 0.0)
    monkeypatch.setattr(process_pool, "available_cores", lambda: 3)
    monkeypatch.setattr(writer, "available_cores", lambda: 3)
    dataset = write(source, tmp_path / "three", encoding="jpeg", image_size=64)
    assert len(dataset.splits["train"].shards) == 8
    assert content(tmp_path / "one") == content(tmp_path / "three")


def test_augmented_copies_lie_beside_train_examples_alone(tmp_path):
    source = two_classes(tmp_path / "in")
    plain = records(write(source, tmp_path / "plain"))
    options = {"augmentation": "records", "augmentation_variants": 2}
    dataset = write(source, tmp_path / "augmented", **options)
    found = records(dataset)
    assert found["test"] == plain["test"]
    assert found["validation"] == plain["validation"]
    assert len(found["train"]) == 3 * len(plain["train"])
    assert sum(dataset.splits["train"].class_counts) == len(found["train"])
    for key, (label, image) in plain["train"].items():
        original = np.frombuffer(image, np.uint8).reshape(SIZE, SIZE, 3)
        turned = [np.rot90(original, turns) for turns in range(4)]
        symmetric = [one.tobytes() for one in [*turned, *(np.fliplr(one) for one in turned)]]
        copies = [found["train"][f"{key}#{variant}"] for variant in (1, 2)]
        assert found["train"][key] == (label, image)
        assert len({image, *(copy for _, copy in copies)}) == 3
        assert all(copy in symmetric and same == label for same, copy in copies)


def test_a_flip_alone_flips(tmp_path):
    source = two_classes(tmp_path / "in")
    options = {"augmentation": "records", "augmentation_operations": ["horizontal_flip"]}
    found = records(write(source, tmp_path / "out", **options))["train"]
    for key, (_, image) in found.items():
        if not key.endswith("#1"):
            flipped = np.fliplr(np.frombuffer(image, np.uint8).reshape(SIZE, SIZE, 3))
            assert found[f"{key}#1"][1] == flipped.tobytes()


@pytest.mark.parametrize(
    ("examples", "size", "megabytes", "shards"),
    [
        (0, 0, 64, 0),
        (5, 5e3, 64, 1),
        (1400, 1.4e6, 64, 8),
        (100_000, 2e9, 64, 32),
        (100_000, 2e9, 1000, 16),
        (3, 3e6, 1, 3),
    ],
)
def test_shards_are_of_the_size_wanted_and_enough_for_all_cores(examples, size, megabytes, shards):
    assert shard_count(examples, size, megabytes) == shards


def test_shards_keep_to_shard_megabytes(tmp_path):
    dataset = write(two_classes(tmp_path / "in", 100), tmp_path / "out", shard_megabytes=0.01)
    assert len(dataset.splits["train"].shards) >= 13
    sizes = [shard.bytes for shard in dataset.splits["train"].shards]
    assert sum(sizes) / len(sizes) < 10_000
    # A range of digests has the mean of 10 images, give or take four standard deviations.
    assert max(sizes) < 23_000


def test_progress_says_how_far_how_fast_and_how_long_still(tmp_path, monkeypatch):
    # A line after each step, however fast the machine is.
    monkeypatch.setitem(ProgressLines.__init__.__kwdefaults__, "interval", 0.0)
    lines = []
    create_tfrecords(RecordOptions(source="digits"), str(tmp_path), progress=lines.append)
    listing = [line for line in lines if " listed, " in line]
    *steps, last = lines[len(listing) :]
    assert re.match(r"create_tfrecords: 1,797 images in 0:\d\d", last)
    assert "train 1,436" in last
    assert listing and steps
    assert all("/1,797 images, " in line and " left" in line for line in steps)


def test_an_older_data_set_in_the_folder_is_replaced(tmp_path):
    source = two_classes(tmp_path / "in")
    write(source, tmp_path / "out", shard_megabytes=0.01)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    write(source, tmp_path / "out")
    write(source, tmp_path / "fresh")
    expected = content(tmp_path / "fresh")
    found = content(tmp_path / "out")
    assert found.pop("notes.txt")
    assert found == expected


def test_a_second_run_changes_nothing_and_a_damaged_shard_is_mended(tmp_path):
    source = two_classes(tmp_path / "in")
    dataset = write(source, tmp_path / "out")
    before = content(tmp_path / "out")
    shard = tmp_path / "out" / dataset.splits["test"].shards[0].file
    stamp = shard.stat().st_mtime_ns
    write(source, tmp_path / "out")
    assert shard.stat().st_mtime_ns == stamp
    damaged = bytearray(shard.read_bytes())
    damaged[100] ^= 1
    shard.write_bytes(damaged)
    write(source, tmp_path / "out")
    assert content(tmp_path / "out") == before


def test_new_content_of_the_source_is_noticed_though_names_and_sizes_stay(tmp_path):
    source = two_classes(tmp_path / "in")
    write(source, tmp_path / "out")
    picture(99).save(source / "cat" / "000.png", compress_level=0)
    dataset = write(source, tmp_path / "out")
    assert all_records(dataset)["cat/000.png"][1] == picture(99).tobytes()


def test_a_local_data_set_needs_no_tensorflow(tmp_path):
    source = two_classes(tmp_path / "in")
    code = (
        "import sys\n"
        "from trainer.data.record_options import RecordOptions\n"
        "from trainer.data.write.writer import create_tfrecords\n"
        f"create_tfrecords(RecordOptions(source='images:{source}'), '{tmp_path / 'out'}')\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    root = Path(writer.__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=240)


def test_nested_folders_belong_to_their_class(tmp_path):
    source = two_classes(tmp_path / "in")
    write_pictures(source / "cat" / "more" / "deep", 1, seed=5)
    found = all_records(write(source, tmp_path / "out"))
    assert found["cat/more/deep/000.png"][0] == 0


def test_a_remote_source_and_output_give_the_same_records(tmp_path):
    # TensorFlow's file system in memory stands for all that only tf.io.gfile can reach.
    source = two_classes(tmp_path / "in")
    (source / "cat" / "empty.jpg").write_bytes(b"")
    for path in source.rglob("*.*"):
        target = f"ram://in/{path.relative_to(source)}"
        tf.io.gfile.makedirs(target.rpartition("/")[0])
        tf.io.gfile.copy(str(path), target, overwrite=True)
    local = write(source, tmp_path / "out", max_rejected_fraction=0.1)
    write("images:ram://in", "ram://out", max_rejected_fraction=0.1, image_size=8)
    remote = write("images:ram://in", "ram://out", max_rejected_fraction=0.1)
    assert remote.splits == local.splits
    assert schema.load("ram://out") == remote
    names = {one.file for split in local.splits.values() for one in split.shards}
    assert set(tf.io.gfile.listdir("ram://out")) == {*names, "dataset.json", "rejected.jsonl"}
    for name in [*names, "rejected.jsonl"]:
        with tf.io.gfile.GFile(f"ram://out/{name}", "rb") as file:
            assert file.read() == (tmp_path / "out" / name).read_bytes()
