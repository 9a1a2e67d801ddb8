"""Sources and outputs that can't be used are refused; nothing remains that looks complete."""

import errno
import os
import re
import socket
from pathlib import Path

import pytest

from tests.trainer.data import killing
from tests.trainer.data.folders import content, refused, write, write_pictures
from trainer.data import storage
from trainer.data.record_options import RecordOptions
from trainer.errors import InputError


@pytest.mark.parametrize(
    ("pictures", "words"),
    [
        ({"cat": 40, "dog": 40, "eel": 0}, "class 'eel' is empty"),
        (
            {"train/cat": 9, "train/dog": 9, "test/cat": 9, "test/dog": 9, "test/eel": 3},
            "class 'eel' has no folder in train/",
        ),
        ({"cat": 1, "dog": 1}, r"none of its 2 images falls into (train|test)"),
    ],
)
def test_folder_without_a_class_or_a_split_is_refused(tmp_path, pictures, words):
    for seed, (place, count) in enumerate(pictures.items(), 1):
        write_pictures(tmp_path / "in" / place, count, seed=seed)
    assert re.search(words, refused(write, tmp_path / "in", tmp_path / "out"))
    assert not content(tmp_path / "out")


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff broken"])
def test_unusable_images_are_refused_beyond_the_limit(photos, tmp_path, data):
    for number in range(15):
        (photos / "cat" / f"bad{number:02}.jpg").write_bytes(data)
    message = refused(write, photos, tmp_path / "out", max_rejected_fraction=0.1)
    assert "15 of 95 images (15.8%)" in message
    assert re.search(r"cat/bad09\.jpg: (?:empty file|damaged|not a)", message)
    assert re.findall(r"cat/bad(\d\d)\.jpg", message) == [f"{number:02}" for number in range(10)]
    assert not content(tmp_path / "out")
    assert write(photos, tmp_path / "out", max_rejected_fraction=0.2).rejected["count"] == 15
    (photos / "eel").mkdir()
    (photos / "eel" / "1.jpg").write_bytes(data)
    message = refused(write, photos, tmp_path / "other", max_rejected_fraction=0.5)
    assert "class 'eel' has no images that can be used" in message
    assert not content(tmp_path / "other")


def test_unwritable_or_overlapping_output_is_refused(photos, tmp_path):
    (tmp_path / "file").write_text("")
    message = refused(write, photos, tmp_path / "file" / "out")
    assert f"can't write to {tmp_path}/file/out" in message
    assert "overlap; write to another folder" in refused(write, photos, photos / "out")
    assert "overlap; write to another folder" in refused(write, photos, tmp_path)


def test_augmented_records_without_operations_are_refused(tmp_path):
    options = {"augmentation": "records", "augmentation_operations": []}
    assert "augmentation_operations=[]" in refused(write, "digits", tmp_path, **options)


@pytest.mark.parametrize("threshold", [killing.POOL, killing.ALONE])
def test_full_disk_is_one_line(photos, tmp_path, threshold):
    # A limit of the size of files stands in for a full disk.
    limit = (
        "import resource\n"
        "from trainer.data.write import writer\n"
        "writer.available_cores = lambda: 2\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
    )
    options = RecordOptions(source=f"images:{photos}", encoding="raw", image_size=64)
    errors = killing.run(options, tmp_path / "out", threshold, before=limit, code=2)
    assert errors.count("\n") == 1
    assert f"no room to write to {tmp_path}/out" in errors
    partial = [name for name in content(tmp_path / "out") if "partial" in name]
    assert threshold == killing.POOL or not partial  # A process is ended in the middle of a file.
    assert not (tmp_path / "out" / "dataset.json").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a Linux device")
def test_error_of_a_full_disk_is_quoted():
    with pytest.raises(InputError, match=os.strerror(errno.ENOSPC)), storage.writing("out"):
        Path("/dev/full").write_bytes(b"x")


def test_unprepared_tfds_name_is_refused_without_a_request(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("a name must be enough")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    missing = refused(write, "tfds:mnist", tmp_path / "out", data_dir=str(tmp_path))
    assert f"tfds build mnist --data_dir={tmp_path}" in missing
