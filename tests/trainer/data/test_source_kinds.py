"""A user's module is a source, by its own name or by that of an entry point."""

import sys

import pytest

from tests.refusals import refused
from tests.trainer.data.picture_folders import write
from trainer.data.record_options import RecordOptions
from trainer.data.write.fingerprint import fingerprint

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
    (tmp_path / "shop" / "nothing.py").write_text("from trainer.data.sources import ImageSource")
    place = tmp_path / "shop-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (place / "entry_points.txt").write_text("[vertex_training.sources]\nshades = shop.shades\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["shades", "shop.shades"])
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
        ("/data/photos", " digits, images:URI, parquet:URI, tfds:NAME"),
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
