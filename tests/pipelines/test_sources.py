"""A local folder is found, made absolute, and recognized when its content has changed."""

import os

import pytest

from pipelines import recipe
from pipelines.sources import on_this_machine
from trainer.errors import InputError


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("photos/rose/a.jpg", "photos/tulip/b.jpg"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"photo")
    return tmp_path / "photos"


def changes(**values):
    return on_this_machine(recipe.load("flowers").with_values(values, place="test"))


def test_a_local_folder_becomes_absolute_and_its_content_the_version(photos):
    changed = changes(source="images:photos")
    assert changed["source"] == f"images:{photos}"
    assert changed == changes(source=f"images:{photos}")


def test_the_version_follows_what_the_folder_holds(photos):
    versions = [changes(source="images:photos")["source_version"]]
    (photos / "rose" / "c.jpg").write_bytes(b"photo")
    versions.append(changes(source="images:photos")["source_version"])
    (photos / "rose" / "c.jpg").write_bytes(b"another")
    versions.append(changes(source="images:photos")["source_version"])
    (photos / "rose" / "c.jpg").rename(photos / "tulip" / "c.jpg")
    versions.append(changes(source="images:photos")["source_version"])
    os.utime(photos / "tulip" / "c.jpg", (1, 1))
    versions.append(changes(source="images:photos")["source_version"])
    assert len(set(versions)) == 5


def test_a_version_that_was_given_stands(photos):
    assert "source_version" not in changes(source="images:photos", source_version="mine")


@pytest.mark.parametrize("source", ["digits", "tfds:mnist", "images:gs://bucket/photos"])
def test_other_sources_are_left_as_they_are(source):
    assert changes(source=source) == {}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source": "images:nowhere"}, "source: there is no folder 'nowhere'"),
        ({"source": "images:photos/rose/a.jpg"}, "is a file; give the folder"),
        ({"source": "tfds:mnist", "data_dir": "nowhere"}, "data_dir: there is no folder"),
    ],
)
def test_a_folder_that_is_not_there_is_refused(photos, values, message):
    with pytest.raises(InputError) as raised:
        changes(**values)
    assert message in str(raised.value)
