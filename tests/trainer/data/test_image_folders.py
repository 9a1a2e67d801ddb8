"""Folders of images as people have them: each file is read, or rejected with its reason."""

import os
import random
import re

import pytest
from PIL import Image

from tests.refusals import mutated, refused
from tests.trainer.data.picture_folders import (
    all_records,
    content,
    picture,
    records,
    rejected,
    two_classes,
    write,
    write_pictures,
)


@pytest.mark.parametrize(
    "names",
    ["training_set validation_set test_set", "Train val Testing", "train-set valid testset"],
)
def test_splits_under_other_names_are_kept(tmp_path, names):
    for number, name in enumerate(names.split()):
        two_classes(tmp_path / "in" / name, 10, seed=2 * number)
    dataset = write(tmp_path / "in", tmp_path / "out")
    assert dataset.classes == ["cat", "dog"]
    written = records(dataset)
    for split, name in zip(("train", "validation", "test"), names.split(), strict=True):
        assert [key.partition("/")[0] for key in written[split]] == [name] * 20


@pytest.mark.parametrize(
    "folders",
    [
        ("single_prediction", "test_set/cats", "test_set/dogs", "training_set/cats"),
        ("archive/cats", "archive/dogs", "notes"),
        ("test/cats", "test/dogs", "val/cats", "val/dogs"),
    ],
)
def test_class_folder_with_only_folders_is_refused(tmp_path, folders):
    for number, folder in enumerate(folders):
        write_pictures(tmp_path / "in" / folder, 5, seed=number)
    inner = folders[1].partition("/")[0]
    (tmp_path / "in" / inner / ".DS_Store").write_bytes(b"\0")
    message = refused(write, tmp_path / "in", tmp_path / "out")
    assert re.search(r"class '\w+' is empty: \w+/ contains only folders \(cats", message)
    assert "use <class>/<image>, or <split>/<class>/<image>" in message
    assert "training_set, test_set" in message
    assert not content(tmp_path / "out")


@pytest.mark.parametrize("inner", [("cats", "dogs"), ("train", "test"), ("photos",)])
def test_folder_above_the_classes_is_refused_with_the_folder_to_use(tmp_path, inner):
    for number, folder in enumerate(inner):
        two_classes(tmp_path / "in" / "data" / folder, 5, seed=number)
    message = refused(write, tmp_path / "in", tmp_path / "out")
    assert f"data/ contains only folders ({', '.join(sorted(inner))})" in message
    assert f"if these are the classes, use images:{tmp_path}/in/data, or use <class>" in message


def test_every_file_of_a_messy_folder_is_read_or_rejected(photos, tmp_path):
    cat = photos / "cat"
    unusual = {
        "really_a_png.jpg": "PNG",
        "no_extension": "PNG",
        "photo.webp": "WEBP",
        "photo.tif": "TIFF",
        "really_a_webp.jpg": "WEBP",
        "more/deep/photo.png": "PNG",
    }
    (cat / "more" / "deep").mkdir(parents=True)
    for seed, (name, kind) in enumerate(unusual.items()):
        picture(seed).save(cat / name, kind, lossless=True)
    (cat / "empty.jpg").write_bytes(b"")
    (cat / "text.jpg").write_text("not an image")
    picture(53).resize((64, 64)).save(cat / "cut.jpg")
    (cat / "cut.jpg").write_bytes((cat / "cut.jpg").read_bytes()[:-200])
    (cat / "README.txt").write_text("about cats")
    (cat / ".DS_Store").write_bytes(b"\0\1")
    (cat / "Thumbs.db").write_bytes(b"\0\1")
    (cat / "link.png").symlink_to("nowhere.png")
    (cat / "itself.png").symlink_to("itself.png")
    (photos / "LICENSE.txt").write_text("by")
    (photos / ".git").mkdir()
    (photos / ".git" / "config").write_text("")
    picture(52).save(photos / "stray.png")
    os.mkfifo(cat / "pipe.png")
    # Seven images can't be used; the other rejected files do not count against the limit.
    dataset = write(photos, tmp_path / "out", max_rejected_fraction=0.08)
    reasons = rejected(tmp_path / "out")
    assert "truncated" in reasons.pop("cat/cut.jpg")
    assert reasons == {
        ".git/config": "hidden or system file",
        "LICENSE.txt": "not an image, neither by name nor by content",
        "cat/.DS_Store": "hidden or system file",
        "cat/README.txt": "not an image, neither by name nor by content",
        "cat/Thumbs.db": "hidden or system file",
        "cat/empty.jpg": "empty file",
        "cat/itself.png": "can't be read: Too many levels of symbolic links",
        "cat/link.png": "can't be read: No such file or directory",
        "cat/pipe.png": "can't be read: not a regular file",
        "cat/text.jpg": "not a JPEG, PNG, BMP, GIF, WEBP or TIFF image",
        "stray.png": "not in the folder of a class",
    }
    written = all_records(dataset)
    assert len(written) == 86
    for seed, name in enumerate(unusual):
        assert written[f"cat/{name}"] == (0, picture(seed).tobytes())
    assert dataset.rejected["count"] == 12
    assert dataset.rejected["reasons"]["damaged image"] == 1
    assert dataset.rejected["reasons"]["can't be read"] == 3
    count = sum(1 for path in photos.rglob("*") if not path.is_dir())
    assert dataset.creation["given"] == count == 86 + 12


def test_link_to_a_folder_that_contains_it_is_refused(photos, tmp_path):
    link = photos / "cat" / "all"
    link.symlink_to(photos)
    message = refused(write, photos, tmp_path / "out")
    assert message == f"{link} is a link to a folder that contains it; remove the link"
    link.unlink()
    (photos / "cat" / "more").symlink_to("../dog")
    assert write(photos, tmp_path / "out").creation["accepted"]
    (photos / "dog" / "more").symlink_to("../cat")
    message = refused(write, photos, tmp_path / "other")
    assert "cat/more/more is a link to a folder that contains it" in message


def test_randomly_damaged_images_are_accepted_or_rejected(tmp_path):
    dice = random.Random(20)
    originals = []
    for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF"):
        for seed in range(3):
            path = tmp_path / f"original.{kind}"
            picture(seed).resize((90, 70), Image.Resampling.BICUBIC).save(path, kind)
            originals.append((kind.lower(), path.read_bytes()))
    for label in range(2):
        (tmp_path / "in" / f"class{label}").mkdir(parents=True)
    for number in range(1000):
        kind, data = originals[number % len(originals)]
        path = tmp_path / "in" / f"class{number % 2}" / f"{number:04}.{kind}"
        path.write_bytes(mutated(dice, data))
    dataset = write(tmp_path / "in", tmp_path / "out", max_rejected_fraction=1.0)
    accepted, keys = all_records(dataset), rejected(tmp_path / "out").keys()
    assert accepted.keys().isdisjoint(keys)
    assert len(accepted) + len(keys) == dataset.creation["given"] == 1000
    assert len(keys) == dataset.rejected["count"]
    # Both happen often: else the mutations would prove little.
    assert len(accepted) > 100 and len(keys) > 300
