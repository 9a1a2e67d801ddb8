"""A model of the user's own is checked by its signature; docs/models.md's example is one."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.child_processes import ROOT
from tests.containers import container_files
from tests.refusals import refused
from trainer.models import open_model, open_model_for

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
def pixels(dataset):
    return keras.Sequential([keras.Input([8, 8, 1]), keras.layers.Flatten()])


class Scaling(keras.layers.Layer):
    def __init__(self, table):
        super().__init__()
        self.factor = table["factor"]

    def call(self, images):
        return keras.ops.cast(images, "float32") * self.factor


class Tenth(keras.layers.Layer):
    def call(self, images):
        return keras.ops.cast(images, "float32") / 10


def chain(*layers, shape=(8, 8, 1)):
    return keras.Sequential([keras.Input(shape, dtype="uint8"), *layers])


def dense(**options):
    return keras.layers.Flatten(), keras.layers.Dense(10, **options)


def other_size(dataset):
    return chain(*dense(), shape=(32, 32, 3))
def two_images(dataset):
    images = [keras.Input((8, 8, 1), name=name) for name in ("left", "right")]
    return keras.Model(images, chain(*dense())(keras.layers.Add()(images)))
def two_heads(dataset):
    image = keras.Input((8, 8, 1))
    return keras.Model(image, {"logits": chain(*dense())(image)})
def subclass(dataset):
    class Own(keras.Model):
        pass
    return Own()
def half(dataset):
    return chain(*dense(dtype="float16"))
def probabilities(dataset):
    return chain(*dense(activation="softmax"))
def normalized(dataset):
    return chain(*dense(), keras.layers.Softmax())
def misnamed(dataset):
    return chain(*dense(), shape=dataset.feature("img").shape)
def frozen(dataset):
    return chain(*dense(trainable=False))
def unsaved(dataset):
    return chain(Scaling({"factor": 1 / 255, "of": object()}), *dense())
def scaled(dataset):
    return chain(Tenth(), *dense())
def with_lambda(dataset):
    return chain(keras.layers.Lambda(lambda images: images / 255), *dense())
def unused(dataset):
    image = keras.Input((8, 8, 1))
    model = keras.Model(image, chain(*dense())(image))
    model.extra = keras.layers.Dense(3)
    model.extra.build((None, 3))
    return model
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
    model = open_model_for("mine:build", digit_records, options).build(digit_records)
    assert (model.name, model.layers[2].units) == ("mine", 24)
    assert model.output_shape == (None, 10)


def test_entry_point_of_a_package_names_its_model(module, tmp_path, digit_records):
    folder = tmp_path / "mine-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[vertex_training.models]\nshop = mine:build\n")
    model = open_model_for("shop", digit_records, {"units": 24}).build(digit_records)
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
        ("mine:", {}, "model='mine:' is not MODULE:NAME, such as 'my.module:build'"),
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
        ("mine:pixels", "has the output shape (None, 64), but logits of 10 classes are"),
        ("mine:other_size", "expected shape=(None, 32, 32, 3), found shape=(None, 8, 8)"),
        ("mine:two_images", "does not accept the records' inputs: Layer \"functional"),
        ("mine:two_heads", "model='mine:two_heads' returns a dict; return one tensor, the logits"),
        ("mine:subclass", "returned a Own that has no inputs yet; return keras.Model(inputs"),
        ("mine:half", "returns logits in float16; give its last layer dtype='float32'"),
        ("mine:probabilities", "ends with softmax, but the loss takes logits; end with Dense(10)"),
        ("mine:normalized", "model='mine:normalized' ends with softmax, but the loss takes"),
        ("mine:misnamed", "dataset.json describes no img feature; did you mean 'image'?"),
        ("mine:frozen", "has no trainable weights; leave a layer trainable"),
        ("mine:unsaved", "can't be saved by Keras: Object Scaling was created by passing non-"),
    ],
)
def test_model_that_can_not_be_trained_or_saved_is_refused(module, digit_records, name, message):
    assert message in refused(open_model_for(name, digit_records, {}).build, digit_records)


def test_weights_that_do_not_affect_the_logits_keep_their_values(module, digit_records, tmp_path):
    import keras

    from tests.trainer.training_runs import train

    run = train(digit_records, tmp_path, model="mine:unused", epochs=1)
    keras.utils.set_random_seed(0)
    start = open_model("mine:unused", {}).build(digit_records)
    changed = [
        not np.array_equal(after, before)
        for after, before in zip(run.model.get_weights(), start.get_weights(), strict=True)
    ]
    assert changed == [True, True, False, False]


def test_saved_model_is_loaded_with_the_layers_of_its_module(module, digit_records, tmp_path):
    from trainer.exported import keras_file

    model = open_model("mine:scaled", {}).build(digit_records)
    keras_file.save(model, str(tmp_path / keras_file.FILE_NAME))
    loaded = keras_file.load_model(str(tmp_path), "mine:scaled")
    images = np.full((2, 8, 8, 1), 7, np.uint8)
    np.testing.assert_array_equal(loaded(images), model(images))


def test_lambda_in_a_saved_model_is_refused_with_the_remedy(module, digit_records, tmp_path):
    from trainer.exported import keras_file

    model = open_model("mine:with_lambda", {}).build(digit_records)
    keras_file.save(model, str(tmp_path / keras_file.FILE_NAME))
    message = refused(keras_file.load_model, str(tmp_path), "mine:with_lambda")
    assert message.endswith("call keras.config.enable_unsafe_deserialization() first")


PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
USES = """
import json, sys
from pipelines.commands import command_line
for line in json.loads(sys.argv[2]):
    print("exit code", command_line.run(command_line.app, line), flush=True)
from trainer.data import schema
from trainer.models import open_model_for
dataset = schema.load_dataset(sys.argv[1])
model = open_model_for("two_layers", dataset, {"units": 3}).build(dataset)
print(model.output_shape, model.count_params())
"""
PLAN = ["plan", "digits", "--set=model=two_layers"]
REFUSED = {
    'model_options={"units": 0}': "model_options: units=0 is out of range",
    'model_options={"unit": 1}': "two_layers takes no 'unit'; did you mean 'units'?",
    "image_size=65": "image_size=65 is too large for two_layers; use 64 or less",
    "source=csv:gs://b/x.csv": "columns=[] gives the model nothing",
}
"""Settings of a run, and their errors."""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Copy the project's packages and add the example's file."""
    folder = tmp_path_factory.mktemp("project")
    container_files.copy_folders(("components", "pipelines", "trainer"), folder)
    (path, text), *others = re.findall(r"^`(\S+\.py)`:\n\n```python\n(.*?)^```", PAGE, re.M | re.S)
    assert not others and path == "trainer/models/two_layers.py"
    (folder / path).write_text(text)
    return folder


@pytest.mark.slow
def test_new_model_is_built_and_its_options_are_checked(project, digit_records):
    lines = [
        [*PLAN, '--set=model_options={"units": 48}'],
        ["parameters", "model_options"],
        *([*PLAN, f"--set={setting}"] for setting in REFUSED),
    ]
    command = [sys.executable, "-c", USES, digit_records.uri, json.dumps(lines)]
    environment = {**os.environ, "PYTHONPATH": str(project), "COLUMNS": "200"}
    result = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    codes = re.findall("^exit code (.*)$", result.stdout, re.MULTILINE)
    assert codes == ["0", "0", *["2"] * len(REFUSED)], result.stderr
    errors = re.findall("^error: (.*)$", result.stderr, re.MULTILINE)
    assert all(message in error for message, error in zip(REFUSED.values(), errors, strict=True))
    assert "with model=two_layers" in result.stdout
    assert "Units of the first layer. At least 1." in result.stdout
    assert result.stdout.split("\n")[-2] == f"(None, 10) {64 * 3 + 3 + 3 * 10 + 10}"
