import errno
import os
import re
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.data.folders import content, two_classes, write, write_pictures
from trainer.data.write import process_pool, writer
from trainer.errors import InputError


def refused(source, output, **options) -> str:
    """The one line that create_tfrecords refuses with."""
    with pytest.raises(InputError) as raised:
        write(source, output, **options)
    message = str(raised.value)
    assert "\n" not in message
    return message


def nothing_to_trust(folder: Path) -> bool:
    return not content(folder)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("digit", "did you mean 'digits'"),
        ("image:/tmp", "did you mean 'images'"),
        ("digits:8", "does not fit; use digits, 1,797 scans"),
        ("images:", "does not fit; use images:URI, a folder"),
        ("images:/no/such/folder", "/no/such/folder does not exist"),
        ("tfds:", "does not fit; use tfds:NAME"),
    ],
)
def test_a_source_that_is_none_is_named_with_the_remedy(tmp_path, source, words):
    assert words in refused(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_is_not_a_folder_of_images(tmp_path):
    (tmp_path / "in").write_text("")
    assert "is not a folder" in refused(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize(
    ("pictures", "words"),
    [
        ({"": 3}, "has no classes"),
        ({"cat": 30}, "only one class, 'cat'"),
        ({"cat": 40, "dog": 40, "eel": 0}, "class 'eel' is empty"),
        (
            {"train/cat": 9, "train/dog": 9, "test/cat": 9, "test/dog": 9, "test/eel": 3},
            "class 'eel' has no folder in train/",
        ),
    ],
)
def test_a_folder_that_lacks_a_class_is_refused(tmp_path, pictures, words):
    for seed, (place, count) in enumerate(pictures.items()):
        write_pictures(tmp_path / "in" / place, count, seed=seed)
    assert words in refused(tmp_path / "in", tmp_path / "out")
    assert nothing_to_trust(tmp_path / "out")


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff broken"])
def test_a_class_of_which_nothing_can_be_used_is_refused(tmp_path, data):
    source = two_classes(tmp_path / "in")
    (source / "eel").mkdir()
    (source / "eel" / "1.jpg").write_bytes(data)
    message = refused(source, tmp_path / "out", max_rejected_fraction=0.5)
    assert "class 'eel' has no images that can be used" in message
    assert nothing_to_trust(tmp_path / "out")


def test_a_split_without_an_example_is_refused(tmp_path):
    message = refused(two_classes(tmp_path / "in", 1), tmp_path / "out")
    assert re.search(r"none of its 2 images falls into (train|test)", message)


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff broken"])
def test_too_much_rejected_is_refused_with_the_first_ten_named(tmp_path, data):
    source = two_classes(tmp_path / "in")
    for number in range(15):
        (source / "cat" / f"bad{number:02}.jpg").write_bytes(data)
    message = refused(source, tmp_path / "out", max_rejected_fraction=0.1)
    assert "15 of 95 images (15.8%)" in message
    assert re.search(r"cat/bad09\.jpg: (?:empty file|damaged|not a)", message)
    assert re.findall(r"cat/bad(\d\d)\.jpg", message) == [f"{number:02}" for number in range(10)]
    assert nothing_to_trust(tmp_path / "out")
    assert write(source, tmp_path / "out", max_rejected_fraction=0.2).rejected["count"] == 15


def test_processes_stop_as_soon_as_too_much_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "POOL_MIN_SECONDS", 0.0)
    source = two_classes(tmp_path / "in", 100)
    for number in range(100):
        (source / "cat" / f"bad{number:02}.jpg").write_bytes(b"\xff\xd8\xff" + bytes([number]))
    message = refused(source, tmp_path / "out", image_size=64)
    assert message.count("cat/bad") == 10
    assert nothing_to_trust(tmp_path / "out")


def test_output_under_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    message = refused(two_classes(tmp_path / "in", 10), tmp_path / "file" / "out")
    assert f"can't write to {tmp_path}/file/out" in message


def test_output_within_the_source_is_refused(tmp_path):
    source = two_classes(tmp_path / "in", 10)
    assert "overlap; write to another folder" in refused(source, source / "out")
    assert "overlap; write to another folder" in refused(source, tmp_path)


def test_augmented_records_without_operations_are_refused(tmp_path):
    options = {"augmentation": "records", "augmentation_operations": []}
    assert "augmentation_operations=[]" in refused("digits", tmp_path, **options)


def run_with_little_room(source: Path, output: Path) -> subprocess.CompletedProcess:
    """A run whose files may not outgrow 100 kB, a stand-in for a full disk."""
    code = (
        "from trainer.data.record_options import RecordOptions\n"
        "from trainer.data.write.writer import create_tfrecords\n"
        "from trainer.errors import exit_on_input_error\n"
        "with exit_on_input_error():\n"
        f"    create_tfrecords(RecordOptions(source='images:{source}', encoding='raw',\n"
        f"        image_size=64), '{output}')\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(writer.__file__).parents[3],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_a_disk_without_room_is_one_clear_line_and_leaves_no_partial_file(tmp_path):
    done = run_with_little_room(two_classes(tmp_path / "in"), tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"no room to write to {tmp_path}/out" in done.stderr
    assert not [name for name in content(tmp_path / "out") if "partial" in name]
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_a_process_without_room_says_so_too(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "POOL_MIN_SECONDS", 0.0)
    monkeypatch.setattr(writer, "available_cores", lambda: 2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        message = refused(two_classes(tmp_path / "in", 100), tmp_path / "out", image_size=32)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "no room to write" in message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a Linux device")
def test_a_full_disk_keeps_its_name(tmp_path):
    from trainer.data import storage

    with pytest.raises(InputError, match=os.strerror(errno.ENOSPC)), storage.writing("out"):
        Path("/dev/full").write_bytes(b"x")


def test_a_process_that_is_killed_is_named_and_the_others_end(tmp_path, monkeypatch):
    import psutil

    source = two_classes(tmp_path / "in", 200)
    monkeypatch.setattr(writer, "POOL_MIN_SECONDS", 0.0)
    monkeypatch.setattr(writer, "available_cores", lambda: 2)
    start = process_pool._start

    def start_and_kill(*modules):
        connection, process = start(*modules)
        process.kill()
        return connection, process

    monkeypatch.setattr(process_pool, "_start", start_and_kill)
    with pytest.raises(RuntimeError, match=r"killed by SIGKILL.*run again"):
        write(source, tmp_path / "out")
    assert not [p for p in psutil.Process().children() if "processes" in " ".join(p.cmdline())]


def test_a_tfds_name_that_is_not_prepared_asks_no_server(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("a name must be enough")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    missing = refused("tfds:mnist", tmp_path / "out", data_dir=str(tmp_path))
    assert f"tfds build mnist --data_dir={tmp_path}" in missing
