"""A place of this machine is found and made absolute."""

import pytest

from pipelines import recipe
from pipelines.sources import on_this_machine
from trainer.errors import InputError

TABLE = {
    "model": "wide_and_deep",
    "columns": [{"name": "a", "type": "numeric"}],
    "label": {"column": "b"},
}


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


def test_a_local_place_becomes_absolute(photos):
    assert changes(source="images:photos") == {"source": f"images:{photos}"}
    assert changes(source=f"images:{photos}") == {"source": f"images:{photos}"}
    store = changes(source="tfds:mnist", records_store="made/later")
    assert store == {"records_store": str(photos.parent / "made" / "later")}
    for place in ("photos/rose", "photos/*/*.jpg"):
        assert changes(source=f"csv:{place}", **TABLE) == {"source": f"csv:{photos.parent}/{place}"}


@pytest.mark.parametrize("source", ["digits", "tfds:mnist", "images:gs://bucket/photos"])
def test_other_sources_are_left_as_they_are(source):
    assert changes(source=source) == {}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source": "images:nowhere"}, "source: there is no folder 'nowhere'"),
        ({"source": "images:photos/rose/a.jpg"}, "is a file; give the folder"),
        ({"source": "csv:nowhere-*.csv", **TABLE}, "source: there is no file 'nowhere-*.csv'"),
        ({"source": "tfds:mnist", "data_dir": "nowhere"}, "data_dir: there is no folder"),
    ],
)
def test_a_folder_that_is_not_there_is_refused(photos, values, message):
    with pytest.raises(InputError) as raised:
        changes(**values)
    assert message in str(raised.value)
