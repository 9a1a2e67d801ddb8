"""Proposed recipes for folders of photos: what they set, what they tell, and a run."""

import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from pipelines.new_image_recipe import list_label_columns, propose_images
from pipelines.parameters import check_parameters
from tests.refusals import refused
from tests.tables import write_csv
from tests.trainer.data.picture_folders import picture, two_classes, write_pictures


@pytest.fixture(autouse=True)
def no_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))


def enlarge(folder, side):
    for path in folder.rglob("*.png"):
        Image.open(path).resize((side, side * 2)).save(path)


def test_small_pictures_are_learned_as_they_are(tmp_path):
    proposal = propose_images(f"images:{two_classes(tmp_path / 'in', 60)}", "")
    assert list(proposal.options)[:2] == ["source", "model"]
    chosen = {name: proposal.options[name] for name in ("model", "image_size", "channels")}
    assert chosen == {"model": "small_cnn", "image_size": 16, "channels": 3}
    check_parameters(proposal.options, origin="it")
    assert proposal.facts[:2] == [
        "120 photos: PNG, 16x16 pixels, by a sample of 120",
        "2 classes: cat 60, dog 60",
    ]
    assert re.fullmatch("at most 40 epochs, about .+ on this machine's cores", proposal.facts[-1])


def test_photos_get_a_network_that_needs_no_download_unless_its_weights_are_here(tmp_path):
    photos = two_classes(tmp_path / "in", 5)
    enlarge(photos, 200)
    proposal = propose_images(f"images:{photos}", "")
    assert (proposal.options["model"], proposal.options["image_size"]) == ("flowers_cnn", 180)
    assert proposal.alternative["model"] == "transfer" and "0.77" in proposal.reason
    for options in (proposal.options, {**proposal.options, **proposal.alternative}):
        check_parameters(options, origin="it")
    (tmp_path / "keras" / "models").mkdir(parents=True)
    (tmp_path / "keras" / "models" / "mobilenet_v2_weights_1.0_224_no_top.h5").touch()
    proposal = propose_images(f"images:{photos}", "")
    assert proposal.options["model"] == "transfer" and not proposal.alternative
    check_parameters(proposal.options, origin="it")


def test_what_is_wrong_with_photos_is_told(tmp_path):
    photos = two_classes(tmp_path / "in", 40)
    write_pictures(photos / "rare", 2, seed=9)
    shutil.copy(photos / "cat" / "000.png", photos / "dog" / "same.png")
    shutil.copy(photos / "cat" / "001.png", photos / "cat" / "twin.png")
    (photos / "cat" / "bad.png").write_bytes(b"x")
    (photos / "cat" / "phone.heic").write_bytes(b"x")
    (photos / "cat" / "notes.txt").touch()
    proposal = propose_images(f"images:{photos}", "")
    told = "\n".join(proposal.facts)
    for fact in (
        "1 more of the sample can't be read: cat/bad.png: not a JPEG",
        "can't be used: 1 .heic files; convert them to JPEG",
        "left out: 1 files that do not end in .jpg",
        "3 classes: cat 42, dog 41, rare 2",
        "imbalance: cat has 21 times as many photos as rare",
        "no photo in the test split: rare; add photos",
        "equal photos: 2, cat/000.png = dog/same.png, cat/001.png = cat/twin.png",
        "equal photos, different labels: 1, cat/000.png = dog/same.png",
    ):
        assert fact in told
    assert proposal.options["max_rejected_fraction"] == pytest.approx(0.04)


def test_splits_of_a_folder_are_told(tmp_path):
    for split, count in (("train", 10), ("test", 4)):
        write_pictures(tmp_path / "in" / split / "cat", count, seed=count)
        write_pictures(tmp_path / "in" / split / "dog", count, seed=count + 1)
    facts = propose_images(f"images:{tmp_path / 'in'}", "").facts
    assert "given splits: train 20, test 8; validation will be drawn from train" in facts


@pytest.mark.parametrize(
    ("label", "described", "fact"),
    [
        ("price", {"column": "price", "type": "numeric"}, "price is a number: median 30, from 0 "),
        ("kind", {"column": "kind"}, "2 classes: a 30, b 30"),
        ("tags", {"column": "tags", "type": "multilabel"}, "3 labels, some of them together: x 4"),
    ],
)
def test_column_of_a_table_is_the_label(tmp_path, label, described, fact):
    write_pictures(tmp_path / "in" / "img", 60)
    tags = ("x", "x;y", "z")
    rows = [f"{n:03},{n + 0.5 * (n % 2)},{'ab'[n % 2]},{tags[n % 3]}" for n in range(60)]
    rows = [row.replace(",x;y", ",x;y" if n % 2 else ",x;z") for n, row in enumerate(rows)]
    write_csv(tmp_path / "in" / "labels.csv", rows, "image_id,price,kind,tags")
    source = f"images:{tmp_path / 'in'}"
    assert list_label_columns(source) == ["price", "kind", "tags"]
    proposal = propose_images(source, label)
    assert proposal.options["label"] == described
    assert fact in "\n".join(proposal.facts)
    check_parameters(proposal.options, origin="it")


def test_folders_without_labels_are_refused(tmp_path):
    write_pictures(tmp_path / "in", 5)
    source = f"images:{tmp_path / 'in'}"
    assert "has no classes" in refused(propose_images, source, "")
    assert "labels.csv does not exist" in refused(propose_images, source, "price")
    write_csv(tmp_path / "in" / "labels.csv", [f"{n:03}.png,{n},a" for n in range(5)], "file,p,q")
    assert refused(propose_images, source, "").endswith(
        "no folders of classes; give --label, a column of its labels.csv: p, q"
    )
    assert "no column 'r'" in refused(propose_images, source, "r")
    assert "is not a folder of photos" in refused(propose_images, "digits", "")
    for name in ("cat", "dog"):
        (tmp_path / "bad" / name).mkdir(parents=True)
        (tmp_path / "bad" / name / "1.png").write_bytes(b"x")
    message = refused(propose_images, f"images:{tmp_path / 'bad'}", "")
    assert "has no photo that can be read; " in message and "1.png: not a JPEG" in message


@pytest.mark.slow
def test_proposed_recipe_runs(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    two_classes(tmp_path / "photos", 20)
    picture(7).save(tmp_path / "photos" / "cat" / "other.jpg")
    options = {**propose_images("images:photos", "").options, "epochs": 1, "first_champion": "any"}
    options["model_options"] = {"filters": [4]}
    Path("recipes").mkdir()
    lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    text = "\n".join(lines).replace('{"filters": ', "{filters = ")
    Path("recipes", "photos.toml").write_text(text)
    code, shown, errors = command("run", "photos", "--local")
    assert code == 0, errors
    assert "registry  photos@1, champion" in shown
