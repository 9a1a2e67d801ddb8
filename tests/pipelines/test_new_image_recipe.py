"""Proposed recipes for folders of photos: what they set, what they tell, and a run."""

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from PIL import Image

from pipelines import recipe
from pipelines.new_image_recipe import draft_images
from pipelines.parameters import check_parameters
from tests.refusals import refused
from tests.tables import write_csv
from tests.trainer.data.picture_folders import picture, two_classes, write_pictures


@pytest.fixture(autouse=True)
def no_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))


def texts(draft):
    return "\n".join(f"{title}: {text}" for title, text in draft.facts)


def enlarge(folder, side):
    for path in folder.rglob("*.png"):
        Image.open(path).resize((side, side * 2)).save(path)


def test_small_pictures_are_learned_as_they_are(tmp_path):
    draft = draft_images(f"images:{two_classes(tmp_path / 'in', 60)}", "", {})
    assert list(draft.options)[:2] == ["source", "model"]
    chosen = {name: draft.options[name] for name in ("model", "image_size", "channels")}
    assert chosen == {"model": "small_cnn", "image_size": 16, "channels": 3}
    check_parameters(draft.options, origin="it")
    assert draft.facts[:2] == [
        ("photos", "120: PNG, 16x16 pixels, in a sample of 120"),
        ("label", "2 classes: cat 60, dog 60"),
    ]
    assert re.fullmatch("at most .+ s here: 40 epochs of 120 photos", dict(draft.facts)["time"])


def test_photos_get_a_network_that_needs_no_download_unless_its_weights_are_here(tmp_path):
    photos = two_classes(tmp_path / "in", 5)
    enlarge(photos, 200)
    draft = draft_images(f"images:{photos}", "", {})
    assert (draft.options["model"], draft.options["image_size"]) == ("flowers_cnn", 180)
    comment = draft.comments["model"]
    alternative = tomllib.loads("\n".join(line for line in comment if " = " in line))
    assert alternative["model"] == "transfer" and "0.77" in comment[0]
    for options in (draft.options, {**draft.options, **alternative}):
        check_parameters(options, origin="it")
    (tmp_path / "keras" / "models").mkdir(parents=True)
    (tmp_path / "keras" / "models" / "mobilenet_v2_weights_1.0_224_no_top.h5").touch()
    draft = draft_images(f"images:{photos}", "", {})
    assert draft.options["model"] == "transfer" and not draft.comments
    check_parameters(draft.options, origin="it")


def test_what_is_wrong_with_photos_is_told(tmp_path):
    photos = two_classes(tmp_path / "in", 40)
    write_pictures(photos / "rare", 2, seed=9)
    shutil.copy(photos / "cat" / "000.png", photos / "dog" / "same.png")
    shutil.copy(photos / "cat" / "001.png", photos / "cat" / "twin.png")
    (photos / "cat" / "bad.png").write_bytes(b"x")
    (photos / "cat" / "phone.heic").write_bytes(b"y")
    (photos / "cat" / "notes.txt").touch()
    draft = draft_images(f"images:{photos}", "", {})
    told = texts(draft)
    for fact in (
        "2 of the sample can't be read; convert or remove them: cat/",
        "cat/bad.png: not a JPEG",
        "cat/phone.heic: not a JPEG",
        "1 not an image, neither by name nor by content (first: cat/notes.txt)",
        "3 classes: cat 43, dog 41, rare 2",
        "cat has 22 times as many photos as rare",
        "class 'rare' has no image in the test split: it is not evaluated",
        "duplicates: 2, such as cat/000.png = dog/same.png, cat/001.png = cat/twin.png",
        "duplicates with different labels: 1, such as cat/000.png (cat) = dog/same.png (dog)",
    ):
        assert fact in told
    assert draft.options["max_rejected_fraction"] == pytest.approx(0.04)


def test_splits_of_a_folder_are_told(tmp_path):
    for split, count in (("train", 10), ("test", 4)):
        write_pictures(tmp_path / "in" / split / "cat", count, seed=count)
        write_pictures(tmp_path / "in" / split / "dog", count, seed=count + 1)
    draft = draft_images(f"images:{tmp_path / 'in'}", "", {})
    assert dict(draft.facts)["splits"] == "train 19, validation 1, test 8"


def test_large_folder_is_examined_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.new_image_recipe.MOST_FILES", 50)
    draft = draft_images(f"images:{two_classes(tmp_path / 'in', 60)}", "", {})
    part = "in a sample of 40; labels and duplicates of one in 3 files"
    assert draft.facts[:2] == [
        ("photos", f"120: PNG, 16x16 pixels, {part}"),
        ("label", "2 classes: cat 20, dog 20"),
    ]
    assert "splits" not in dict(draft.facts)


@pytest.mark.parametrize(
    ("label", "described", "fact"),
    [
        (
            "price",
            {"column": "price", "type": "numeric"},
            "price: a number, median 30, from 0 ",
        ),
        ("kind", {"column": "kind"}, "2 classes: a 30, b 30"),
        ("tags", {"column": "tags", "type": "multilabel"}, "3 labels, several per photo: x 4"),
    ],
)
def test_column_of_a_table_is_the_label(tmp_path, label, described, fact):
    write_pictures(tmp_path / "in" / "img", 60)
    tags = ("x", "x;y", "z")
    rows = [f"{n:03},{n + 0.5 * (n % 2)},{'ab'[n % 2]},{tags[n % 3]}" for n in range(60)]
    rows = [row.replace(",x;y", ",x;y" if n % 2 else ",x;z") for n, row in enumerate(rows)]
    write_csv(tmp_path / "in" / "labels.csv", rows, "image_id,price,kind,tags")
    source = f"images:{tmp_path / 'in'}"
    message = refused(draft_images, source, "", {})
    assert message.endswith("a column of its labels.csv: price, kind, tags")
    draft = draft_images(source, label, {})
    assert draft.options["label"] == described
    assert fact in texts(draft)
    check_parameters(draft.options, origin="it")


def test_folders_without_labels_are_refused(tmp_path):
    write_pictures(tmp_path / "in", 5)
    source = f"images:{tmp_path / 'in'}"
    assert "has no classes" in refused(draft_images, source, "", {})
    assert "labels.csv does not exist" in refused(draft_images, source, "price", {})
    write_csv(tmp_path / "in" / "labels.csv", [f"{n:03}.png,{n},a" for n in range(5)], "file,p,q")
    assert refused(draft_images, source, "", {}).endswith(
        "no folders of classes; give --label, a column of its labels.csv: p, q"
    )
    assert "no column 'r'" in refused(draft_images, source, "r", {})
    assert "is not a folder of photos" in refused(draft_images, "digits", "", {})
    for name in ("cat", "dog"):
        (tmp_path / "bad" / name).mkdir(parents=True)
        (tmp_path / "bad" / name / "1.png").write_bytes(b"x")
    message = refused(draft_images, f"images:{tmp_path / 'bad'}", "", {})
    assert "has no photo that can be read; " in message and "1.png: not a JPEG" in message


def test_class_folders_get_a_recipe_on_the_command_line(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    two_classes(tmp_path / "photos", 30)
    code, shown, errors = command("recipes", "new", "pets", "images:photos", "--set=epochs=3")
    assert (code, errors) == (0, "")
    assert "label     2 classes: cat 30, dog 30\n" in shown
    assert " s here: 3 epochs of 60 photos\n" in shown
    assert shown.endswith("next      python -m pipelines run pets --local\n")
    loaded = recipe.load("pets")
    assert loaded.summary == "Classes of images:photos"
    assert loaded.given["source"] == "images:photos" and loaded.given["model"] == "small_cnn"
    assert loaded.given["epochs"] == 3
    code, _, errors = command("recipes", "new", "more", "images:photos", "--column={}")
    assert code == 2 and "--column: source='images:photos' is not a table" in errors


def test_labels_with_semicolons_get_a_recipe_on_the_command_line(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path / "photos" / "img", 60)
    rows = [f"img\\{n:03}.png;{n},5;{'ab'[n % 2]}" for n in range(60)]
    write_csv(tmp_path / "photos" / "labels.csv", rows, "file;price;kind")
    arguments = ["recipes", "new", "homes", "images:photos"]
    code, _, errors = command(*arguments)
    assert code == 2 and errors.endswith("a column of its labels.csv: price, kind\n")
    dialect = '--set=dialect={"encoding": "cp1252"}'
    code, shown, errors = command(*arguments, "--label=price", "--search", dialect)
    assert (code, errors) == (0, "")
    assert "label     price: a number, median 30.5, from 0.5 to 59.5\n" in shown
    given = recipe.load("homes").given
    assert given["dialect"] == {"encoding": "cp1252", "delimiter": ";"}
    assert given["label"] == {"column": "price", "type": "numeric", "format": "1234,56"}
    assert "[search]" in Path("recipes", "homes.toml").read_text()


@pytest.mark.slow
def test_proposed_recipe_runs(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    two_classes(tmp_path / "photos", 20)
    picture(7).save(tmp_path / "photos" / "cat" / "other.jpg")
    options = {
        **draft_images("images:photos", "", {}).options,
        "epochs": 1,
        "first_champion": "any",
    }
    options["model_options"] = {"filters": [4]}
    Path("recipes").mkdir()
    lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    text = "\n".join(lines).replace('{"filters": ', "{filters = ")
    Path("recipes", "photos.toml").write_text(text)
    code, shown, errors = command("run", "photos", "--local")
    assert code == 0, errors
    assert "registry  photos@1, champion" in shown
