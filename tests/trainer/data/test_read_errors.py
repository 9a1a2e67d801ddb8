"""A picture that can't be read now is no unusable one: the step tries again, then ends."""

import errno
import hashlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.trainer.data.folders import all_records, content, two_classes, write
from tests.trainer.data.test_source_errors import refused
from trainer.data import storage
from trainer.data.tables import rows
from trainer.data.write import writer
from trainer.errors import InputError

SHA256 = hashlib.sha256(b"a,b\n").hexdigest()


@pytest.fixture
def failing(monkeypatch):
    """Makes the next `times` openings of cat/003.png fail with an errno."""
    monkeypatch.setattr(storage, "_PAUSES", (0.0, 0.0, 0.0), raising=False)
    left = {}

    def flaky(path, *arguments, **options):
        if str(path).endswith("cat/003.png") and left["times"] > 0:
            left["times"] -= 1
            raise OSError(left["code"], os.strerror(left["code"]), path)
        return open(path, *arguments, **options)  # noqa: PTH123

    monkeypatch.setattr(storage, "open", flaky, raising=False)
    return lambda times, code: left.update(times=times, code=code)


@pytest.mark.parametrize("name", ["EIO", "ESTALE", "EMFILE", "ENOMEM", "EACCES", "ETIMEDOUT"])
def test_an_error_that_passes_costs_no_picture(tmp_path, failing, name):
    failing(3, getattr(errno, name))
    dataset = write(two_classes(tmp_path / "in"), tmp_path / "out")
    assert "cat/003.png" in all_records(dataset)
    assert dataset.rejected["count"] == 0


@pytest.mark.parametrize("name", ["EIO", "EACCES"])
def test_an_error_that_stays_ends_the_step(tmp_path, failing, name):
    code = getattr(errno, name)
    failing(1000, code)
    message = refused(two_classes(tmp_path / "in"), tmp_path / "out")
    expected = rf"cat/003.png can't be read \({os.strerror(code)}\), tried 4 times; .*run again"
    assert re.search(expected, message)
    assert not (tmp_path / "out" / "dataset.json").exists()


@pytest.mark.parametrize("times", [3, 4])
def test_an_error_of_opening_or_digesting_is_tried_again(tmp_path, monkeypatch, times):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n")
    error = OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    monkeypatch.setattr(storage, "_PAUSES", (0.0, 0.0, 0.0))
    opened, left = Path.open, [error] * times

    class Flaky(io.FileIO):
        def read(self, size=-1):
            if left:
                raise left.pop()
            return super().read(size)

    def flaky(self, *arguments, **options):
        if left and self == path:
            raise left.pop()
        return opened(self, *arguments, **options)

    for name, found in ((rows.read_header, ["a", "b"]), (storage.sha256, SHA256)):
        left[:] = [error] * times
        with monkeypatch.context() as patched:
            if name is storage.sha256:
                patched.setattr(storage, "open_file", lambda uri, _: Flaky(uri))
            else:
                patched.setattr(Path, "open", flaky)
            if times == 3:
                assert name(str(path)) == found
            else:
                with pytest.raises(InputError, match=r"t.csv can't be read .*, tried 4 times"):
                    name(str(path))


def test_a_link_that_leads_nowhere_is_rejected(tmp_path):
    source = two_classes(tmp_path / "in")
    (source / "cat" / "link.png").symlink_to("nowhere.png")
    (source / "cat" / "itself.png").symlink_to("itself.png")
    dataset = write(source, tmp_path / "out", max_rejected_fraction=0.1)
    assert dataset.rejected["reasons"] == {"can't be read": 2}


def test_a_link_to_a_folder_that_contains_it_is_refused(tmp_path):
    source = two_classes(tmp_path / "in")
    (source / "cat" / "all").symlink_to(source)
    message = refused(source, tmp_path / "out")
    assert message == f"{source}/cat/all is a link to a folder that contains it; remove the link"
    (source / "cat" / "all").unlink()
    (source / "cat" / "more").symlink_to("../dog")
    assert write(source, tmp_path / "out").creation["accepted"]
    (source / "dog" / "more").symlink_to("../cat")
    assert "cat/more/more is a link to a folder that contains it" in refused(source, tmp_path / "o")


def test_too_little_memory_rejects_no_picture(tmp_path):
    source = two_classes(tmp_path / "in")
    Image.new("L", (9400, 9400)).save(source / "cat" / "large.png", compress_level=1)
    code = (
        "import cv2, resource\n"
        "from trainer.data.write import pixels\n"
        "from trainer.data.record_options import RecordOptions\n"
        "from trainer.data.write.writer import create_tfrecords\n"
        "from trainer.errors import exit_on_input_error\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (70 << 20), -1))\n"
        "with exit_on_input_error():\n"
        f"    create_tfrecords(RecordOptions(source='images:{source}', image_size=16),\n"
        f"        '{tmp_path / 'out'}', progress=lambda line: None)\n"
    )
    root = Path(storage.__file__).parents[2]
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert re.fullmatch(
        r"error: cat/large.png: this machine has too little memory.*\n", done.stderr
    )
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
def test_a_picture_changed_between_the_passes_is_named(tmp_path, monkeypatch, meddle, words, pool):
    monkeypatch.setattr(writer, "POOL_MIN_SECONDS", pool)
    source, remove_stale = two_classes(tmp_path / "in"), writer.output.remove_stale

    def meddling(*arguments):
        meddle(source / "dog" / "003.png")
        remove_stale(*arguments)

    monkeypatch.setattr(writer.output, "remove_stale", meddling)
    message = refused(source, tmp_path / "out")
    assert f"dog/003.png {words}" in message
    assert not (tmp_path / "out" / "dataset.json").exists()
    monkeypatch.undo()
    write(source, tmp_path / "out")
    write(source, tmp_path / "fresh")
    assert content(tmp_path / "out") == content(tmp_path / "fresh")
