"""Errors that may be temporary reject no picture: reading is retried, then ends the step."""

import errno
import hashlib
import io
import os
import re
from pathlib import Path

import pytest
from PIL import Image

from tests.trainer.data import killing
from tests.trainer.data.folders import all_records, content, refused, write
from trainer.data import storage
from trainer.data.record_options import RecordOptions
from trainer.data.tables import rows
from trainer.data.write import writer


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(storage, "_PAUSES", (0.0, 0.0, 0.0))


@pytest.mark.parametrize("name", ["EIO", "ESTALE", "EMFILE", "ENOMEM", "EACCES", "ETIMEDOUT"])
def test_error_of_opening_a_picture_is_retried(photos, tmp_path, monkeypatch, name):
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
    assert re.search(
        rf"cat/003.png can't be read \({reason}\), tried 4 times; .*run again", message
    )
    assert not (tmp_path / "none" / "dataset.json").exists()


@pytest.mark.parametrize("times", [3, 4])
@pytest.mark.parametrize("function", [rows.read_header, storage.sha256])
def test_error_of_a_table_or_a_digest_is_retried(tmp_path, monkeypatch, function, times):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n")
    left = [OSError(errno.ESTALE, os.strerror(errno.ESTALE))] * times
    opened = Path.open

    def flaky(path, *arguments):
        if left:
            raise left.pop()
        return opened(path, *arguments)

    class Flaky(io.FileIO):
        def read(self, size=-1):
            if left:
                raise left.pop()
            return super().read(size)

    if function is storage.sha256:
        monkeypatch.setattr(storage, "open_file", lambda uri, _: Flaky(uri))
    else:
        monkeypatch.setattr(Path, "open", flaky)
    if times == 3:
        assert function(str(path)) in (["a", "b"], hashlib.sha256(b"a,b\n").hexdigest())
    else:
        message = refused(function, str(path))
        assert re.search(r"t.csv can't be read .*, tried 4 times", message)


def test_too_little_memory_ends_the_step(photos, tmp_path):
    Image.new("L", (9400, 9400)).save(photos / "cat" / "large.png", compress_level=1)
    limit = (
        "import cv2, resource\n"
        "from trainer.data.write import pixels, writer\n"
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
def test_picture_changed_between_the_passes_is_named(
    photos, tmp_path, monkeypatch, meddle, words, pool
):
    remove_stale = writer.output.remove_stale

    def meddling(*arguments):
        meddle(photos / "dog" / "003.png")
        remove_stale(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(writer, "POOL_MIN_SECONDS", pool)
        patched.setattr(writer.output, "remove_stale", meddling)
        assert f"dog/003.png {words}" in refused(write, photos, tmp_path / "out")
    assert not (tmp_path / "out" / "dataset.json").exists()
    write(photos, tmp_path / "out")
    write(photos, tmp_path / "fresh")
    assert content(tmp_path / "out") == content(tmp_path / "fresh")
