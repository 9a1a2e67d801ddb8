"""Sources: a user's module, by its own name or by that of an entry point; tfds:NAME; real data."""

import re
import sys

import numpy as np
import pytest

from tests.refusals import refused
from tests.trainer.data.picture_folders import all_records, write
from trainer.data.sources import Example
from trainer.data.write.fingerprint import fingerprint
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.writer import open_source

SHADES = """
import io

from PIL import Image

from trainer.data.sources import Example, ImageSource, Reference, digest


class Shades(ImageSource):
    place = "COUNT"
    help = "a number of gray images"
    name = "shades"
    classes = ["dark", "light"]

    def __init__(self, place, options):
        super().__init__(place, options)
        self._count = int(place)

    @classmethod
    def takes(cls, place):
        return place.isdigit()

    def examples(self, mapped=map, /):
        for number in range(self._count):
            reference = Reference(f"{number}.png", number)
            yield Example(reference, number % 2, digest(self.fetch(reference)), "")

    def fetch(self, reference):
        file = io.BytesIO()
        Image.new("L", (8, 8), reference.position).save(file, "PNG")
        return file.getvalue()
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "shades.py").write_text(SHADES)
    (tmp_path / "single.py").write_text(SHADES)
    (tmp_path / "shop" / "nothing.py").write_text("from trainer.data.sources import ImageSource")
    (tmp_path / "shop" / "program.py").write_text("raise SystemExit('usage: program')")
    place = tmp_path / "shop-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (place / "entry_points.txt").write_text("[vertex_training.sources]\nshades = shop.shades\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("shop", "single")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["shades", "shop.shades", "single"])
def test_users_module_is_a_source(package, name):
    made = write(f"{name}:200", package / "out", image_size=8)
    assert made.classes == ["dark", "light"]
    assert made.creation["given"] == sum(split.examples for split in made.splits.values()) == 200
    assert made.creation["source"] == f"{name}:200"


def test_fingerprint_follows_the_code_of_a_users_source(package):
    first = fingerprint("shop.shades:200", "")
    assert fingerprint("shop.shades:200", "") == first
    del sys.modules["shop.shades"]
    (package / "shop" / "shades.py").write_text(f"{SHADES}\n# changed")
    assert fingerprint("shop.shades:200", "") != first


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("shades:many", "is malformed; use shades:COUNT, a number of gray images"),
        ("shop.nothing:1", "module shop.nothing defines no subclass of ImageSour"),
        ("shop.program:1", "module shop.program can't be imported: SystemExit: usage: program"),
        ("/data/photos", " digits, excel:URI, images:URI, jsonl:URI, "),
        ("./photos", " digits, excel:URI, images:URI, jsonl:URI, "),
        ("trips.csv", "'trips.csv' is not a source; did you mean 'csv:trips.csv'?"),
        ("https://a.b/trips.csv", "'https://a.b/trips.csv' is not a source; use one of bigquery:P"),
        ("gs://b/t.parquet", "is not a source; did you mean 'parquet:gs://b/t.parquet'?"),
    ],
)
def test_module_that_is_no_source_is_refused(package, source, message):
    assert message in refused(RecordOptions, source=source)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"dark", "light"', "0, 1", "its classes, [0, 1], are not texts that all differ"),
        ('"dark", "light"', '"dark", "dark"', "['dark', 'dark'], are not texts that all differ"),
        ('"dark", "light"', '"dark"', "has only one class, 'dark'; a classifier needs two"),
        ('classes = ["dark", "light"]', "", "Shades does not set classes; set name and classes"),
        ("super().__init__(place, options)", "", "features; set name and classes, and call"),
        ("number % 2", "number % 3", ".png the label 2, but its 2 classes have the labels 0 to 1"),
        ("number % 2", "number % 2 - 1", ".png the label -1, but its 2 classes have the labels"),
        ("number % 2", '"dark"', "lists a malformed example: Could not convert 'dark' with type"),
        ('reference)), "")', 'reference))[:8], "")', "to be length 16 was 8; an example has a key"),
        ('reference)), "")', 'reference)), "val")', "malformed example: 'val'; an example has a"),
    ],
)
def test_mistake_of_a_users_source_is_refused(package, old, new, message):
    assert old in SHADES
    (package / "shop" / "shades.py").write_text(SHADES.replace(old, new))
    assert message in refused(write, "shop.shades:60", package / "out", image_size=8)


def prepare(folder, features, data, splits=("train",), version="1.0.0"):
    """Write a dataset "tiny" as TensorFlow Datasets prepares it."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    tfds.dataset_builders.store_as_tfds_dataset(
        "tiny",
        version=version,
        features=tfds.features.FeaturesDict(features(tfds.features)),
        split_datasets=dict.fromkeys(splits, tf.data.Dataset.from_tensor_slices(data)),
        data_dir=folder,
        disable_shuffling=True,
    )


def prepare_images(folder, **options):
    """Prepare 60 images of three classes; return their pixels."""

    def features(kinds):
        label = kinds.ClassLabel(names=["ant", "bee", "cow"])
        return {"image": kinds.Image(shape=(12, 10, 3)), "label": label}

    images = np.random.default_rng(0).integers(0, 256, (60, 12, 10, 3), np.uint8)
    prepare(folder, features, {"image": images, "label": np.arange(60) % 3}, **options)
    return images


def write_tiny(folder, **options):
    return write("tfds:tiny", folder / "out", data_dir=str(folder / "in"), **options)


def test_prepared_data_set_keeps_its_classes_and_pixels(tmp_path):
    images = prepare_images(tmp_path / "in")
    dataset = write_tiny(tmp_path, image_size=10, resize_method="nearest")
    assert dataset.name == "tiny/1.0.0"
    assert dataset.classes == ["ant", "bee", "cow"]
    written = all_records(dataset)
    assert len(written) == 60
    assert all(split.examples for split in dataset.splits.values())
    label, image = written["tiny-train.tfrecord-00000-of-00001__7"]
    assert label == 1
    rows = (np.arange(10) + 0.5) * 12 // 10
    expected = images[7][rows.astype(int)]
    np.testing.assert_array_equal(np.frombuffer(image, np.uint8).reshape(10, 10, 3), expected)


def test_digest_of_prepared_data_follows_version_and_files(tmp_path):
    def digest(source="tfds:tiny"):
        return fingerprint(source, str(tmp_path)).digest

    prepare_images(tmp_path)
    first = digest()
    assert digest() == first
    (shard,) = (tmp_path / "tiny" / "1.0.0").glob("*.tfrecord-*")
    shard.write_bytes(shard.read_bytes() * 2)
    second = digest()
    prepare_images(tmp_path, version="1.0.1")
    assert len({first, second, digest()}) == 3
    assert digest("tfds:tiny:1.0.0") == second
    assert "no dataset 'other' is prepared" in refused(digest, "tfds:other")


def test_prepared_data_set_without_images_is_refused(tmp_path):
    data = {"text": ["a", "b"], "score": [0.5, 0.1]}
    prepare(
        tmp_path / "in",
        lambda kinds: {"text": kinds.Text(), "score": kinds.Scalar(np.float32)},
        data,
    )
    message = refused(write_tiny, tmp_path)
    assert re.search("not a dataset of images.*score: Scalar, text: Text", message)


def test_damaged_file_of_a_prepared_data_set_is_named(tmp_path):
    prepare_images(tmp_path / "in", splits=["train", "test"])
    (file,) = (tmp_path / "in").rglob("*test.tfrecord*")
    file.write_bytes(file.read_bytes()[:-100])
    assert f"{file.name} is damaged or cut off" in refused(write_tiny, tmp_path)


def test_real_mnist_is_listed_completely(real_data):
    options = RecordOptions(
        source="tfds:mnist", data_dir=str(real_data / "tfds"), image_size=28, channels=1
    )
    source = open_source(options).opened
    listed = list(source.examples())
    assert all(isinstance(example, Example) for example in listed)
    sizes = [sum(example.split == split for example in listed) for split in ("train", "test")]
    assert sizes == [60_000, 10_000]
    assert source.classes == list("0123456789")


def test_real_flowers_are_all_accepted(real_data, tmp_path):
    dataset = write(real_data / "flowers", tmp_path, image_size=64, encoding="jpeg")
    assert dataset.classes == ["daisy", "dandelion", "roses", "sunflowers", "tulips"]
    assert dataset.creation["given"] == dataset.creation["accepted"] == 300
    assert len(all_records(dataset)) == 300
    totals = np.sum([split.class_counts for split in dataset.splits.values()], axis=0)
    assert totals.tolist() == [60] * 5
