"""A place of this machine is found and made absolute."""

import contextlib
import importlib.util
import os
import shutil
import socket
from pathlib import Path

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
    store = changes(source="digits", records_store="made/later")
    assert store == {"records_store": str(photos.parent / "made" / "later")}
    (photos / "a.csv").write_text("a,b\n1,2\n")
    for place in ("photos", "photos/a.csv", "pho*/*.csv"):
        assert changes(source=f"csv:{place}", **TABLE) == {"source": f"csv:{photos.parent}/{place}"}


def test_a_local_file_of_weights_becomes_absolute(photos):
    (photos / "mine.weights.h5").touch()

    def options(weights):
        values = {"model": "transfer", "model_options": {"dropout": 0.1, "weights": weights}}
        return changes(source="digits", **values)

    absolute = {"dropout": 0.1, "weights": str(photos / "mine.weights.h5")}
    assert options("photos/mine.weights.h5") == {"model_options": absolute}
    for elsewhere in ("none", "gs://bucket/mine.weights.h5"):
        assert options(elsewhere) == {}
    with pytest.raises(InputError, match=r"weights: there is no file 'photos/nowhere.h5'; give"):
        options("photos/nowhere.h5")


def test_imagenet_weights_out_of_reach_are_found_before_the_start(photos, monkeypatch, in_one_line):
    # A port of this machine that answers nobody stands for a network that is not there.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{closed.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.setenv("KERAS_HOME", str(photos.parent / "keras"))
        settings = "source=images:photos", "model=transfer", 'model_options={"backbone":"ResNet50"}'
        error = in_one_line(*settings)
        assert "weights='imagenet': those of ResNet50 are not in" in error
        assert "use weights=none" in error
        models = photos.parent / "keras" / "models"
        models.mkdir(parents=True)
        (models / "resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5").touch()
        options = {"backbone": "ResNet50"}
        assert changes(source="digits", model="transfer", model_options=options) == {}


def test_weights_to_start_from_become_absolute(photos):
    (photos / "model.keras").touch()
    start = {"source": "digits", "warm_start": "photos/model.keras"}
    assert changes(**start) == {"warm_start": str(photos / "model.keras")}
    for elsewhere in ("champion", "", "gs://bucket/run/model"):
        assert changes(**{**start, "warm_start": elsewhere}) == {}
    with pytest.raises(InputError, match="warm_start: there is no 'champoin'; give champion, a"):
        changes(**{**start, "warm_start": "champoin"})
    with pytest.raises(InputError, match="warm_start='champion' needs a registered model; give"):
        changes(source="digits", warm_start="champion", model_name="")


@pytest.mark.parametrize("source", ["digits", "images:gs://bucket/photos"])
def test_other_sources_are_left_as_they_are(source):
    assert changes(source=source) == {}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source": "images:nowhere"}, "/nowhere does not exist; use <class>/<image>"),
        ({"source": "images:photos/rose/a.jpg"}, "a.jpg is not a folder; use <class>"),
        ({"source": "images:~nobody-here/photos"}, "/~nobody-here/photos does not exist"),
        ({"source": f"images:{'x' * 300}"}, "x can't be read (File name too long)"),
        ({"source": "csv:nowhere.csv", **TABLE}, "nowhere.csv does not exist; give a file"),
        ({"source": "csv:nowhere-*.csv", **TABLE}, "no file with content that ends in .csv or"),
        ({"source": "tfds:mnist", "data_dir": "nowhere"}, "data_dir: there is no folder"),
    ],
)
def test_a_folder_that_is_not_there_is_refused(photos, values, message):
    with pytest.raises(InputError) as raised:
        changes(**values)
    assert message in str(raised.value)


@pytest.fixture
def in_one_line(refused):
    """The message that a local run with those settings ends with before it starts."""

    def run(*settings):
        flags = [word for setting in settings for word in ("--set", setting)]
        error = refused("run", "flowers", "--local", *flags)
        assert not Path("runs").exists()
        assert not Path("build").exists()
        return error

    return run


def test_an_empty_class_and_a_single_one_are_found_before_the_start(photos, in_one_line):
    (photos / "empty" / "inner").mkdir(parents=True)
    assert "class 'empty' is empty: no file in" in in_one_line("source=images:photos")
    (photos / "empty" / "inner" / "c.jpg").touch()
    error = in_one_line("source=images:photos")
    assert "has empty/, rose/, tulip/ for classes, but empty/ holds only folders (inner)" in error
    (photos / "empty" / "d.jpg").touch()
    assert changes(source="images:photos")
    shutil.copytree(photos, photos.parent / "parts" / "train")
    (photos.parent / "parts" / "val" / "rose").mkdir(parents=True)
    error = in_one_line("source=images:parts")
    assert "class 'rose' is empty: no file in" in error
    assert "parts/val/rose; add images or remove the folder" in error
    for name in ("empty", "tulip"):
        shutil.rmtree(photos / name)
    error = in_one_line("source=images:photos")
    assert "has only one class, 'rose'; a classifier needs two or more" in error
    shutil.rmtree(photos / "rose")
    assert "has no classes; a classifier needs two or more" in in_one_line("source=images:photos")


def test_a_floor_of_no_class_is_found_before_the_start(photos, in_one_line):
    floor = 'class_floors={"rose": 0.5, "tulips": 0.5}'
    error = in_one_line("source=images:photos", floor)
    assert "class_floors names 'tulips', which is not a class of the records; did you mean" in error
    assert changes(source="images:photos", class_floors={"tulip": 0.5})


def test_looking_for_an_empty_class_lists_none_beyond_its_first_file(photos, monkeypatch):
    for number in range(100):
        (photos / "rose" / f"{number}.jpg").touch()
    parameters = recipe.load("flowers").with_values({"source": "images:photos"}, place="test")
    listed, scandir = [], os.scandir

    @contextlib.contextmanager
    def counted(path):
        with scandir(path) as entries:
            yield (listed.append(entry.name) or entry for entry in entries)

    monkeypatch.setattr(os, "scandir", counted)
    on_this_machine(parameters)
    assert sum(name.endswith(".jpg") for name in listed) == 2


def test_a_table_without_a_column_is_found_before_the_start(photos, in_one_line):
    (photos / "trips.csv").write_text("hours,tips\n1,2\n")
    settings = (
        "source=csv:photos", "model=wide_and_deep", 'label={"column": "tips"}',
        'columns=[{"name": "hour", "type": "numeric"}]',
    )  # fmt: skip
    error = in_one_line(*settings)
    assert "photos/trips.csv has no column 'hour'; did you mean 'hours'?" in error
    (photos / "trips.csv").write_text("hour;tips\n1;2\n")
    error = in_one_line(*settings)
    assert "has no column 'hour'; its fields are separated by ';': convert it to commas" in error


def test_a_data_set_that_is_not_prepared_is_found_before_the_start(photos, in_one_line):
    error = in_one_line(f"data_dir={photos}")
    assert f"no data set 'tf_flowers' is prepared in data_dir='{photos}'; prepare it once" in error
    given = recipe.load("flowers").with_values({}, place="test")
    assert on_this_machine(given, in_containers=True) == {}


@pytest.mark.parametrize("store", ["photos/rose/a.jpg", "photos/rose/a.jpg/inner", "closed/inner"])
def test_a_store_of_records_that_can_not_be_one_is_found_before_the_start(
    photos, in_one_line, monkeypatch, store
):
    closed, access = photos.parent / "closed", os.access
    closed.mkdir(mode=0o500)
    # As to a user who is not root.
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed and access(path, mode))
    error = in_one_line("source=images:photos", f"records_store={store}")
    assert f"records_store='{store}': " in error
    assert "give another" in error


def test_dataflow_without_beam_is_found_before_the_start(photos, in_one_line, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "apache_beam" else find(name)
    )
    error = in_one_line("source=images:photos", "records_engine=dataflow")
    assert "make dataflow" in error
    assert ".venv/dataflow/bin/python -m pipelines" in error
    parameters = recipe.load("digits").with_values({"records_engine": "dataflow"}, place="test")
    assert on_this_machine(parameters, in_containers=True) == {}
