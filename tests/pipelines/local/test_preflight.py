"""Local sources are checked, and substitutes of accelerators named, before a run starts."""

import contextlib
import importlib.util
import os
import shutil
import socket
from pathlib import Path

import pytest

from components.planning.worker_pools import MachineOptions
from pipelines import recipe
from pipelines.local.preflight import check_local_sources, describe_substitutes
from tests import refusals
from vertex.errors import InputError

TABLE = {"model": "wide_and_deep", "columns": [{"name": "a", "type": "numeric"}]}
TABLE |= {"label": {"column": "b"}}


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("photos/rose/a.jpg", "photos/tulip/b.jpg"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"photo")
    return tmp_path / "photos"


def changes(in_containers=False, **values):
    parameters = recipe.load("flowers").with_values(values, origin="test")
    return check_local_sources(parameters, in_containers=in_containers)


@pytest.fixture
def refused_run(refused, photos):
    """Run on photos/ with settings, which must be refused before it starts; return the error."""

    def run(**settings):
        settings = {"source": "images:photos", **settings}
        flags = [f"--set={name}={value}" for name, value in settings.items()]
        error = refused("run flowers --local", *flags)
        assert not Path("runs").exists()
        assert not Path("build").exists()
        return error

    return run


def test_local_path_becomes_absolute(photos):
    assert changes(source="images:photos") == {"source": f"images:{photos}"}
    assert changes(source=f"images:{photos}") == {"source": f"images:{photos}"}
    store = changes(source="digits", records_store="made/later")
    assert store == {"records_store": str(photos.parent / "made" / "later")}
    (photos / "a.csv").write_text("a,b\n1,2\n")
    for place in ("photos", "photos/a.csv", "pho*/*.csv"):
        assert changes(source=f"csv:{place}", **TABLE) == {"source": f"csv:{photos.parent}/{place}"}
    for source in ("digits", "images:gs://bucket/photos"):
        assert changes(source=source) == {}


def test_local_weights_become_absolute(photos):
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


def test_imagenet_weights_are_cached_or_reachable(photos, monkeypatch, refused_run):
    # A port of this machine that answers nobody stands for a network that is not there.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{closed.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.setenv("KERAS_HOME", str(photos.parent / "keras"))
        error = refused_run(model="transfer", model_options='{"backbone":"ResNet50"}')
        assert "weights='imagenet': the weights of ResNet50 are not in" in error
        assert "use weights=none" in error
        models = photos.parent / "keras" / "models"
        models.mkdir(parents=True)
        (models / "resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5").touch()
        options = {"backbone": "ResNet50"}
        assert changes(source="digits", model="transfer", model_options=options) == {}


def test_model_to_start_from_becomes_absolute(photos):
    def change(warm_start, **others):
        return changes(source="digits", warm_start=warm_start, **others)

    (photos / "model.keras").touch()
    assert change("photos/model.keras") == {"warm_start": str(photos / "model.keras")}
    for elsewhere in ("champion", "", "gs://bucket/run/model"):
        assert change(elsewhere) == {}
    with pytest.raises(InputError, match="warm_start: there is no 'champoin'; give champion, a"):
        change("champoin")
    with pytest.raises(InputError, match="warm_start='champion' needs a registered model; give"):
        change("champion", model_name="")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source": "images:nowhere"}, "/nowhere does not exist; use <class>/<image>"),
        ({"source": "images:photos/rose/a.jpg"}, "a.jpg is not a folder; use <class>"),
        ({"source": "images:~nobody-here/photos"}, "/~nobody-here/photos does not exist"),
        ({"source": f"images:{'x' * 300}"}, "x can't be read (File name too long); correct its"),
        ({"source": "csv:nowhere.csv", **TABLE}, "nowhere.csv does not exist; use a file"),
        (
            {"source": "csv:nowhere-*.csv", **TABLE},
            "/nowhere-*.csv ends in .csv, .csv.gz, ",
        ),
        ({"source": "tfds:mnist", "data_dir": "nowhere"}, "data_dir: there is no folder"),
    ],
)
def test_missing_source_is_refused(photos, values, message):
    assert message in refusals.refused(changes, **values)


def test_classes_without_images_are_refused(photos, refused_run):
    (photos / "empty").mkdir()
    assert "class 'empty' is empty: empty/ contains no file; add images" in refused_run()
    (photos / "empty" / "inner").mkdir()
    (photos / "empty" / "inner" / "c.jpg").touch()
    assert "class 'empty' is empty: empty/ contains only folders (inner)" in refused_run()
    (photos / "empty" / "d.jpg").touch()
    assert changes(source="images:photos")
    shutil.copytree(photos, photos.parent / "parts" / "train")
    (photos.parent / "parts" / "val" / "rose").mkdir(parents=True)
    error = refused_run(source="images:parts")
    assert "class 'rose' is empty: val/rose/ contains no file; add images, remove" in error
    for name in ("empty", "tulip"):
        shutil.rmtree(photos / name)
    assert "has only one class, 'rose'; a classifier needs two or more" in refused_run()
    shutil.rmtree(photos / "rose")
    assert "has no classes; a classifier needs two or more" in refused_run()


def test_floor_of_an_unknown_class_is_refused(refused_run):
    error = refused_run(class_floors='{"rose": 0.5, "tulips": 0.5}')
    assert "class_floors names 'tulips', which is not a class of the records; did you mean" in error
    assert changes(source="images:photos", class_floors={"tulip": 0.5})


def test_only_the_first_file_of_a_class_is_listed(photos, monkeypatch):
    for number in range(100):
        (photos / "rose" / f"{number}.jpg").touch()
    listed, scandir = [], os.scandir

    @contextlib.contextmanager
    def counted(path):
        with scandir(path) as entries:
            yield (listed.append(entry.name) or entry for entry in entries)

    monkeypatch.setattr(os, "scandir", counted)
    changes(source="images:photos")
    assert sum(name.endswith(".jpg") for name in listed) == 2


def test_table_without_a_column_is_refused(photos, refused_run):
    settings = {"model": "wide_and_deep", "label": '{"column": "tips"}'}
    settings |= {"source": "csv:photos", "columns": '[{"name": "hour", "type": "numeric"}]'}
    (photos / "trips.csv").write_text("hours,tips\n1,2\n")
    error = refused_run(**settings)
    assert "photos/trips.csv has no column 'hour'; did you mean 'hours'?" in error
    (photos / "trips.csv").write_text("hour;tips\n1;2\n")
    error = refused_run(**settings)
    assert 'add dialect = { delimiter = ";" } to the recipe' in error


def test_unprepared_data_set_is_refused_outside_containers(photos, refused_run):
    error = refused_run(source="tfds:tf_flowers", data_dir=str(photos))
    assert f"no dataset 'tf_flowers' is prepared in data_dir='{photos}'; prepare it once" in error
    assert changes(in_containers=True) == {}


@pytest.mark.parametrize("store", ["photos/rose/a.jpg", "photos/rose/a.jpg/inner", "closed/inner"])
def test_unwritable_records_store_is_refused(photos, refused_run, monkeypatch, store):
    closed, access = photos.parent / "closed", os.access
    closed.mkdir(mode=0o500)
    # As to a user who is not root.
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed and access(path, mode))
    error = refused_run(records_store=store)
    assert f"records_store='{store}': " in error
    assert "give another" in error


def test_dataflow_needs_beam_outside_containers(refused_run, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "apache_beam" else find(name)
    )
    error = refused_run(records_engine="dataflow")
    assert "make dataflow" in error
    assert ".venv/dataflow/bin/python -m pipelines" in error
    assert changes(in_containers=True, source="digits", records_engine="dataflow") == {}


GPUS = MachineOptions(accelerator_type="NVIDIA_TESLA_T4", accelerator_count=2)


def test_cpu_or_gpus_of_this_machine_stand_in(tmp_path):
    start = "instead of 2 x NVIDIA_TESLA_T4, a replica uses "
    divided = f"{start}the CPU of this machine, divided into 2 devices"
    assert list(describe_substitutes(GPUS, "", tmp_path)) == [divided]
    assert list(describe_substitutes(MachineOptions(), "NVIDIA_L4", tmp_path)) == [
        "instead of 1 x NVIDIA_L4, the evaluation uses the CPU of this machine"
    ]
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / name).touch()
    assert list(describe_substitutes(GPUS, "", tmp_path)) == [f"{start}2 GPUs of this machine"]


SOURCE = """
from trainer.data.sources import ImageSource


class Photos(ImageSource):
    place = "URI"
    help = "a folder of photos"

    def __init__(self, place, options):
        super().__init__(place, options)
        self.name, self.classes = place, [label for _, label in [line.split(",") for line in LINES]]


LINES = ["a.jpg,rose", "b.jpg"]
"""


def test_error_of_a_users_source_is_one_line(refused_run, photos, monkeypatch):
    (photos.parent / "own_photos.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(photos.parent)
    error = refused_run(source="own_photos:photos")
    reason = "(ValueError: not enough values to unpack (expected 2, got 1)); correct own_photos, or"
    assert f"source='own_photos:photos': Photos can't be opened {reason}" in error


def test_run_can_not_be_resumed_from_a_folder_that_is_missing(refused_run, photos):
    (photos / "file").touch()
    for given, words in (
        ("nowhere", "there is no folder"),
        ("photos/file", "'photos/file' is a file"),
    ):
        assert f"resume_from: {words}" in refused_run(source="digits", resume_from=given)
    assert changes(source="digits", resume_from="photos") == {"resume_from": str(photos)}
