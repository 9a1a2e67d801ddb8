"""create_tfrecords writes shards, rejected.jsonl and dataset.json, and replaces older ones."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.data import killing
from tests.trainer.data.picture_folders import (
    SIZE,
    all_records,
    content,
    flip,
    picture,
    records,
    write,
)
from trainer.data import schema
from trainer.data.write import writer
from trainer.data.write.layout import shard_count
from trainer.data.write.record_options import RecordOptions
from trainer.progress_lines import ProgressLines
from vertex.formats import clock


def as_pixels(image: bytes) -> np.ndarray:
    return np.frombuffer(image, np.uint8).reshape(SIZE, SIZE, 3)


def test_dataset_json_describes_records_that_tensorflow_reads(photos, tmp_path):
    folder = tmp_path / "out"
    dataset = write(photos, folder)
    files = [dataset.shard_uri(shard) for s in dataset.splits.values() for shard in s.shards]
    names = {"image": tf.string, "label": tf.int64, "key": tf.string}
    features = {name: tf.io.FixedLenFeature([], dtype) for name, dtype in names.items()}
    read = {}
    for record in tf.data.TFRecordDataset(files):
        example = tf.io.parse_single_example(record, features)
        image = tf.io.decode_raw(example["image"], tf.uint8)
        read[example["key"].numpy().decode()] = (int(example["label"]), image.numpy())
    assert len(read) == 80
    label, image = read["dog/007.png"]
    assert dataset.classes[label] == "dog"
    np.testing.assert_array_equal(as_pixels(image), picture(2007))
    assert schema.load_dataset(dataset.uri) == dataset
    text = (folder / "dataset.json").read_text()
    assert dataset.uri not in text
    assert dataset.classes == ["cat", "dog"]
    assert dataset.feature("image").shape == [SIZE, SIZE, 3]
    for name, split in dataset.splits.items():
        labels = [label for label, _ in records(dataset)[name].values()]
        assert split.class_counts == [labels.count(0), labels.count(1)]
    shards = {
        shard.file: shard.bytes for split in dataset.splits.values() for shard in split.shards
    }
    sizes = {name: (folder / name).stat().st_size for name in content(folder)}
    assert sizes == {**shards, "dataset.json": len(text), "rejected.jsonl": 0}
    assert dataset.creation["given"] == dataset.creation["accepted"] == 80
    versions = {"tensorflow", "numpy", "pillow", "opencv-python-headless"}
    assert json.loads(text)["creation"]["versions"].keys() == versions


def test_digits_are_complete_and_scaled_to_bytes(tmp_path, monkeypatch):
    # In this process, with a line after each step, however fast the machine is.
    monkeypatch.setattr(writer, "POOL_MIN_SECONDS", 1e9)
    monkeypatch.setitem(ProgressLines.__init__.__kwdefaults__, "interval", 0.0)
    lines = []
    options = RecordOptions(source="digits", image_size=8, channels=1, encoding="raw")
    dataset = writer.create_tfrecords(options, str(tmp_path), progress=lines.append)
    written = all_records(dataset)
    assert len(written) == 1797
    assert dataset.classes == list("0123456789")
    first = np.frombuffer(written["digits/0"][1], np.uint8).reshape(8, 8)
    # The first scan's first row is 0 0 5 13 9 1 0 0, of 16.
    assert first[0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]
    listing = [line for line in lines if " listed" in line]
    *steps, last = lines[len(listing) :]
    assert re.match(r"create_tfrecords: 1,797 images in [\d.]+ s, ", last)
    assert "train 1,436" in last
    assert listing and steps
    assert all("/1,797 images" in line for line in steps) and " left" in steps[-1]


TURNS_AND_FLIPS = [(turns, flips) for turns in range(4) for flips in range(2)]


@pytest.mark.parametrize(
    ("options", "variants", "symmetries"),
    [
        ({"augmentation_variants": 2}, 2, TURNS_AND_FLIPS[1:]),
        ({"augmentation_operations": ["horizontal_flip"]}, 1, [(0, 1)]),
    ],
)
def test_augmented_copies_are_in_train_only(photos, tmp_path, options, variants, symmetries):
    plain = records(write(photos, tmp_path / "plain"))
    dataset = write(photos, tmp_path / "augmented", augmentation="records", **options)
    written = records(dataset)
    assert written["test"] == plain["test"]
    assert written["validation"] == plain["validation"]
    assert len(written["train"]) == (1 + variants) * len(plain["train"])
    assert sum(dataset.splits["train"].class_counts) == len(written["train"])
    for key, (label, image) in plain["train"].items():
        turned = [(np.rot90(as_pixels(image), turns), flips) for turns, flips in symmetries]
        allowed = {
            (label, (np.fliplr(image) if flips else image).tobytes()) for image, flips in turned
        }
        copies = {written["train"][f"{key}#{number + 1}"] for number in range(variants)}
        assert written["train"][key] == (label, image)
        assert len(copies) == variants and copies <= allowed


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
def test_shard_count_follows_size_and_cores(examples, size, megabytes, shards):
    assert shard_count(examples, size, megabytes) == shards


def test_second_run_replaces_older_damaged_or_changed_shards(photos, tmp_path):
    output = tmp_path / "out"
    write(photos, output, shard_megabytes=0.01)
    (output / "notes.txt").write_text("mine")
    dataset = write(photos, output)
    write(photos, tmp_path / "fresh")
    before = content(tmp_path / "fresh")
    assert content(output).keys() == {*before, "notes.txt"}
    (output / "notes.txt").unlink()
    assert content(output) == before
    shard = output / dataset.splits["test"].shards[0].file
    stamp = shard.stat().st_mtime_ns
    write(photos, output)
    assert shard.stat().st_mtime_ns == stamp
    flip(shard)
    write(photos, output)
    assert content(output) == before
    # Under the same name, in a file of the same size.
    picture(99).save(photos / "cat" / "000.png", compress_level=0)
    assert all_records(write(photos, output))["cat/000.png"][1] == picture(99).tobytes()


def test_local_data_set_needs_no_tensorflow(photos, tmp_path):
    without = "import sys\nsys.modules['tensorflow'] = None\n"
    killing.run(RecordOptions(source=f"images:{photos}"), tmp_path / "out", before=without)


def test_remote_source_and_output_give_the_same_records(photos, tmp_path):
    # TensorFlow's file system in memory stands for all that only tf.io.gfile can reach.
    (photos / "cat" / "empty.jpg").write_bytes(b"")
    for path in photos.rglob("*.*"):
        target = f"ram://in/{path.relative_to(photos)}"
        tf.io.gfile.makedirs(target.rpartition("/")[0])
        tf.io.gfile.copy(str(path), target, overwrite=True)
    local = write(photos, tmp_path / "out", max_rejected_fraction=0.1)
    write("images:ram://in", "ram://out", max_rejected_fraction=0.1, image_size=8)
    stored, lines = {"max_rejected_fraction": 0.1, "records_store": "ram://store"}, []
    remote = write("images:ram://in", "ram://out", **stored)
    assert remote.splits == local.splits
    options = RecordOptions(source="images:ram://in", image_size=SIZE, encoding="raw", **stored)
    copied = writer.create_tfrecords(options, "ram://copy", progress=lines.append)
    assert copied.splits == local.splits
    assert any("3 shards reused, " in line for line in lines)
    assert schema.load_dataset("ram://out") == remote
    names = {shard.file for split in local.splits.values() for shard in split.shards}
    assert set(tf.io.gfile.listdir("ram://out")) == {*names, "dataset.json", "rejected.jsonl"}
    for name in [*names, "rejected.jsonl"]:
        with tf.io.gfile.GFile(f"ram://out/{name}", "rb") as file:
            assert file.read() == (tmp_path / "out" / name).read_bytes()


def lines_after(steps, unit="images", **total):
    """Return the lines when steps of (seconds, number done) have passed."""
    now, lines = 0.0, []
    total |= {"emit": lines.append, "clock": lambda: now}
    progress = ProgressLines("create_tfrecords", unit, **total)
    for seconds, done in steps:
        now += seconds
        progress.advance(done)
    return [line.removeprefix("create_tfrecords: ") for line in lines]


def test_line_is_printed_about_every_second():
    assert lines_after([(0.25, 100)] * 12, total=1800) == [
        "400/1,800 images, 400 images/s, 3.5 s left",
        "800/1,800 images, 400 images/s, 2.5 s left",
        "1,200/1,800 images, 400 images/s, 1.5 s left",
    ]


def test_line_omits_what_is_unknown():
    assert lines_after([(2, 0)], total=9) == ["0/9 images"]
    assert lines_after([(2, 1)], "rows") == ["1 row listed"]
    assert lines_after([(0.5, 1000), (1, 3000)]) == ["4,000 images listed, 3,000 images/s"]


def test_speed_does_not_count_the_start_of_processes():
    assert lines_after([(9, 1), (1, 50)], total=101) == [
        "1/101 images",
        "51/101 images, 50 images/s, 1.0 s left",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0.0 s"), (2.44, "2.4 s"), (754, "12:34"), (3723, "1:02:03")]
)
def test_duration_reads_like_a_clock(seconds, shown):
    assert clock(seconds) == shown
