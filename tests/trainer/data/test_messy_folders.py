"""Whatever lies in a folder of images is accepted, or rejected with its reason."""

import os
from pathlib import Path

import pytest

from tests.trainer.data.folders import all_records, picture, rejected, two_classes, write
from tests.trainer.data.test_source_errors import refused


@pytest.fixture
def messy(tmp_path) -> Path:
    """80 good pictures among everything that a folder can hold."""
    source = two_classes(tmp_path / "in")
    cat = source / "cat"
    picture(50).save(cat / "really_a_png.jpg", "PNG")
    picture(51).save(cat / "no_extension", "PNG")
    (cat / "empty.jpg").write_bytes(b"")
    (cat / "text.jpg").write_text("not an image")
    picture(53).resize((64, 64)).save(cat / "cut.jpg")
    (cat / "cut.jpg").write_bytes((cat / "cut.jpg").read_bytes()[:-200])
    (cat / "README.txt").write_text("about cats")
    (cat / ".DS_Store").write_bytes(b"\0\1")
    (cat / "Thumbs.db").write_bytes(b"\0\1")
    (source / "LICENSE.txt").write_text("by")
    (source / ".git").mkdir()
    (source / ".git" / "config").write_text("")
    picture(52).save(source / "stray.png")
    os.mkfifo(cat / "pipe.png")
    return source


def test_everything_in_a_messy_folder_is_accepted_or_rejected_with_its_reason(messy, tmp_path):
    dataset = write(messy, tmp_path / "out", max_rejected_fraction=0.1)
    reasons = rejected(tmp_path / "out")
    assert "truncated" in reasons.pop("cat/cut.jpg")
    assert reasons == {
        ".git/config": "hidden or system file",
        "LICENSE.txt": "not an image, by name and by content",
        "cat/.DS_Store": "hidden or system file",
        "cat/README.txt": "not an image, by name and by content",
        "cat/Thumbs.db": "hidden or system file",
        "cat/empty.jpg": "empty file",
        "cat/pipe.png": "can't be read: not a regular file",
        "cat/text.jpg": "not a JPEG, PNG, BMP, GIF, WEBP or TIFF image",
        "stray.png": "outside the folders of classes",
    }
    found = all_records(dataset)
    assert len(found) == 82
    assert found["cat/really_a_png.jpg"][1] == picture(50).tobytes()
    assert found["cat/no_extension"][1] == picture(51).tobytes()
    assert dataset.rejected["count"] == 10
    assert dataset.rejected["reasons"]["damaged image"] == 1
    given = sum(1 for path in messy.rglob("*") if not path.is_dir())
    assert dataset.creation["given"] == given == 82 + 10


def test_photos_of_formats_that_are_not_read_count(tmp_path):
    source = two_classes(tmp_path / "in")
    for number in range(60):
        (source / "cat" / f"{number}.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    message = refused(source, tmp_path / "out")
    assert "60 of 140 images (42.9%) can't be used" in message
    assert "cat/0.HEIC, " in message
    assert ".HEIC: not a JPEG, PNG, BMP, GIF, WEBP or TIFF image" in message


@pytest.mark.parametrize(("kind", "suffix"), [("WEBP", "webp"), ("TIFF", "tif"), ("WEBP", "jpg")])
def test_photos_in_webp_and_tiff_are_read(tmp_path, kind, suffix):
    source = two_classes(tmp_path / "in")
    for number in range(60):
        picture(5000 + number).save(source / "cat" / f"w{number}.{suffix}", kind, lossless=True)
    dataset = write(source, tmp_path / "out", max_rejected_fraction=0)
    found = all_records(dataset)
    assert len(found) == 140
    assert found[f"cat/w7.{suffix}"][1] == picture(5007).tobytes()


def test_stray_files_do_not_count_against_the_limit(tmp_path):
    source = two_classes(tmp_path / "in")
    for number in range(20):
        (source / "cat" / f"notes{number}.txt").write_text("x")
    assert write(source, tmp_path / "out", max_rejected_fraction=0).rejected["count"] == 20
