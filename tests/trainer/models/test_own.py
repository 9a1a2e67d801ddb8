"""A model of the user's own is checked by its signature, and a mistake in it is one line."""

import re
import sys

import pytest

from tests.refusals import refused
from trainer.models import check_model, open_model

MODEL = """
import keras


def build(dataset, *, units: int = 16, rates: list[float] = (0.1,), name: str = "mine"):
    image = dataset.feature("image")
    return keras.Sequential([
        keras.Input(image.shape, dtype=image.dtype),
        keras.layers.Rescaling(1 / 255),
        keras.layers.Flatten(),
        keras.layers.Dense(units, activation="relu"),
        keras.layers.Dense(len(dataset.classes), dtype="float32"),
    ], name=name)


def needs(dataset, *, units: int): ...
def without_dataset(): ...
def of_anything(dataset, **options): ...
def untyped(dataset, units=3): ...
def nothing(dataset): ...
def probabilities(dataset):
    return keras.Sequential([keras.Input([8, 8, 1]), keras.layers.Flatten()])
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / "broken.py").write_text("def build(dataset:\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("mine", None)


def test_model_is_built_with_the_types_it_declares(module, digit_records):
    options = {"units": 24.0, "rates": [1]}
    assert open_model("mine:build", options).units == 24
    assert "mine" not in sys.modules  # Checking its options runs none of its code.
    model = check_model("mine:build", digit_records, options).build(digit_records)
    assert (model.name, model.layers[2].units) == ("mine", 24)
    assert model.output_shape == (None, 10)


def test_entry_point_of_a_package_names_its_model(module, tmp_path, digit_records):
    folder = tmp_path / "mine-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[vertex_training.models]\nshop = mine:build\n")
    model = check_model("shop", digit_records, {"units": 24}).build(digit_records)
    assert model.layers[2].units == 24
    assert "shop takes no 'unit'; did you mean 'units'" in refused(open_model, "shop", {"unit": 24})
    assert re.search("'shopp' is neither .*did you mean 'shop'", refused(open_model, "shopp", {}))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("absent.model:build", {}, "model='absent.model:build': there is no module absent.model"),
        ("mine.deeper:build", {}, "there is no module mine.deeper"),
        ("mine:biuld", {}, "mine.py defines no function 'biuld'; did you mean 'build'?"),
        ("trainer.mine:build", {}, "are packages of this project, which hide yours; rename"),
        ("mine:", {}, "model='mine:' is not MODULE:FUNCTION, such as 'my.module:build'"),
        ("broken:build", {}, "broken.py can't be read: '(' was never closed"),
        ("mine:build", {"unit": 1}, "mine:build takes no 'unit'; did you mean 'units'?"),
        ("mine:build", {"units": "many"}, 'model_options: units = "many" is text; give a whole'),
        ("mine:needs", {}, "model_options: mine:needs needs 'units', which has no default"),
        ("mine:without_dataset", {}, "without_dataset() must take the dataset and then options"),
        ("mine:of_anything", {}, "of_anything() must take the dataset and then options by name"),
        ("mine:untyped", {}, "untyped(): option 'units' has the type none; annotate it with one"),
    ],
)
def test_mistake_is_refused_in_one_line(module, name, options, message):
    assert message in refused(open_model, name, options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine:nothing", "model='mine:nothing' returned NoneType; return a keras.Model"),
        ("mine:probabilities", "has the output shape (None, 64), but logits of 10 classes are"),
    ],
)
def test_result_that_is_no_model_of_the_classes_is_refused(module, digit_records, name, message):
    assert message in refused(check_model(name, digit_records, {}).build, digit_records)
