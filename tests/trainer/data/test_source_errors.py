"""Unusable sources and outputs are refused, temporary errors retried; no records look complete."""

import errno
import hashlib
import io
import os
import re
import socket
from pathlib import Path

import pytest
from PIL import Image

from tests.refusals import refused
from tests.trainer.data import killing
from tests.trainer.data.picture_folders import all_records, content, write, write_pictures
from trainer.data import storage
from trainer.data.tables import csv_text
from trainer.data.write import writer
from trainer.data.write.output import OutputFolder
from trainer.data.write.record_options import RecordOptions
from vertex.errors import InputError


def _bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


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


@pytest.mark.parametrize(
    ("data", "ending"),
    [(b"", "jpg"), (b"\xff\xd8\xff broken", "jpg"), (b"\0\0\0\x18ftypheic", "HEIC")],
)
def test_unusable_images_are_refused_beyond_the_limit(photos, tmp_path, data, ending):
    for number in range(15):
        (photos / "cat" / f"bad{number:02}.{ending}").write_bytes(data)
    message = refused(write, photos, tmp_path / "out", max_rejected_fraction=0.1)
    assert "15 of 95 images (15.8%)" in message
    assert re.search(rf"cat/bad09\.{ending}: (?:empty file|damaged|not a JPEG, PNG, B)", message)
    assert re.findall(rf"cat/bad(\d\d)\.{ending}", message) == [
        f"{number:02}" for number in range(10)
    ]
    assert not content(tmp_path / "out")
    assert write(photos, tmp_path / "out", max_rejected_fraction=0.2).rejected["count"] == 15
    (photos / "eel").mkdir()
    (photos / "eel" / "1.jpg").write_bytes(data)
    message = refused(write, photos, tmp_path / "other", max_rejected_fraction=0.5)
    assert "class 'eel' has no usable images" in message
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
    assert f"no space left to write to {tmp_path}/out" in errors
    partial = [name for name in content(tmp_path / "out") if "partial" in name]
    assert threshold == killing.POOL or not partial  # A process is ended in the middle of a file.
    assert not (tmp_path / "out" / "dataset.json").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a Linux device")
def test_error_of_a_full_disk_is_quoted():
    with (
        pytest.raises(InputError, match=os.strerror(errno.ENOSPC)),
        storage.catch_write_errors("out"),
    ):
        Path("/dev/full").write_bytes(b"x")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("csv:{}/a.csv", "a.csv"),
        ("csv:{}/*.csv.gz", "a.csv.gz"),
        ("jsonl:{}", "a.jsonl"),
        ("excel:{}", "a.xlsx"),
        ("parquet:{}/a.parquet", "a.parquet"),
        ("images:{}", "labels.csv"),
    ],
)
@pytest.mark.parametrize(
    "make", [os.mkfifo, _bind_socket, lambda path: path.symlink_to(os.devnull)]
)
def test_source_of_another_kind_than_a_file_is_refused(tmp_path, monkeypatch, make, source, file):
    monkeypatch.chdir(tmp_path)
    write_pictures(Path("in"), 2)
    make(Path("in", file))
    options = {"columns": [{"name": "x", "type": "numeric"}]} if "images" not in source else {}
    label = {"column": "y", "classes": ["a", "b"]}
    record_options = RecordOptions(source=source.format("in"), label=label, **options)
    message = refused(writer.create_tfrecords, record_options, "out")
    assert re.search(rf"in/{file} (is |can't be read \()not a regular file", message)


def test_unprepared_tfds_name_is_refused_without_a_request(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("a name must be enough")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    missing = refused(write, "tfds:mnist", tmp_path / "out", data_dir=str(tmp_path))
    assert f"tfds build mnist --data_dir={tmp_path}" in missing


@pytest.fixture
def no_pauses(monkeypatch):
    """Retry at once."""
    monkeypatch.setattr(storage, "_PAUSES", (0.0, 0.0, 0.0))


@pytest.mark.parametrize("name", ["EIO", "ESTALE", "EMFILE", "ENOMEM", "EACCES", "ETIMEDOUT"])
def test_error_of_opening_a_picture_is_retried(photos, tmp_path, monkeypatch, no_pauses, name):
    reason = os.strerror(getattr(errno, name))
    left = 3

    def flaky(path, *arguments, **options):
        nonlocal left
        if str(path).endswith("cat/003.png") and left > 0:
            left -= 1
            raise OSError(getattr(errno, name), reason, path)
        return open(path, *arguments, **options)  # noqa: PTH123

    monkeypatch.setattr(storage, "open", flaky, raising=False)
    dataset = write(photos, tmp_path / "out")
    assert "cat/003.png" in all_records(dataset)
    assert dataset.rejected["count"] == left == 0
    left = 1000
    message = refused(write, photos, tmp_path / "none")
    assert re.search(rf"003.png can't be read \({reason}\), after 4 attempts; .*again", message)
    assert not (tmp_path / "none" / "dataset.json").exists()


@pytest.mark.parametrize("times", [3, 4])
@pytest.mark.parametrize("function", [csv_text.read_header, storage.sha256])
def test_error_of_a_table_or_digest_is_retried(tmp_path, monkeypatch, no_pauses, function, times):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n")
    left = [OSError(errno.ESTALE, os.strerror(errno.ESTALE))] * times

    def flaky(path, *arguments, **options):
        if left:
            raise left.pop()
        return open(path, *arguments, **options)  # noqa: PTH123

    class Flaky(io.FileIO):
        def read(self, size=-1):
            if left:
                raise left.pop()
            return super().read(size)

    if function is storage.sha256:
        monkeypatch.setattr(storage, "open_file", lambda uri, _: Flaky(uri))
    else:
        monkeypatch.setattr(storage, "open", flaky, raising=False)
    if times == 3:
        assert function(str(path)) in (["a", "b"], hashlib.sha256(b"a,b\n").hexdigest())
    else:
        message = refused(function, str(path))
        assert re.search(r"t.csv can't be read .*, after 4 attempts", message)


def test_too_little_memory_ends_the_step(photos, tmp_path):
    Image.new("L", (9400, 9400)).save(photos / "cat" / "large.png", compress_level=1)
    limit = (
        "import cv2, resource\n"
        "from trainer.data.images import pixels\n"
        "from trainer.data.write import writer\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (70 << 20), -1))\n"
    )
    options = RecordOptions(source=f"images:{photos}", image_size=16)
    errors = killing.run(options, tmp_path / "out", before=limit, code=2)
    assert re.fullmatch(r"error: cat/large.png: this machine has too little memory.*\n", errors)
    assert not (tmp_path / "out" / "dataset.json").exists()


def change(path: Path) -> None:
    path.write_bytes((path.parents[1] / "cat" / "003.png").read_bytes())


@pytest.mark.parametrize(
    ("meddle", "words", "pool"),
    [
        (change, "has changed since it was listed; leave the source alone", 0.0),
        (change, "has changed since it was listed; leave the source alone", 1e9),
        (Path.unlink, "was listed but can no longer be read", 1e9),
    ],
)
def test_picture_that_changes_is_named(photos, tmp_path, monkeypatch, meddle, words, pool):
    begin = OutputFolder.begin

    def meddling(*arguments):
        meddle(photos / "dog" / "003.png")
        begin(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(writer, "POOL_MIN_SECONDS", pool)
        patched.setattr(OutputFolder, "begin", meddling)
        assert f"dog/003.png {words}" in refused(write, photos, tmp_path / "out")
    assert not (tmp_path / "out" / "dataset.json").exists()
    write(photos, tmp_path / "out")
    write(photos, tmp_path / "fresh")
    assert content(tmp_path / "out") == content(tmp_path / "fresh")
