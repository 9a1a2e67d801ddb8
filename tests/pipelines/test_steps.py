"""A step of the user's own gets what it names, and a mistake in it is one line before a run."""

import importlib
import sys

import pytest
import yaml

from pipelines import compilation, recipe
from pipelines.package import Package
from tests.trainer.models.test_own import MODEL

STEPS = '''
from kfp import dsl


@dsl.component(base_image="vertex-tensorflow-training:latest", install_kfp_package=False)
def announce(model: dsl.Input[dsl.Model], accuracy: float, epochs: int, team: str = "ours"):
    """Says what came of it."""
    print(model.uri, accuracy, epochs, team)


@dsl.component(base_image="vertex-tensorflow-training:latest", install_kfp_package=False)
def greedy(modle: dsl.Input[dsl.Model], xyzzyxyzzy: str):
    """Wants what there is not."""


@dsl.component(base_image="vertex-tensorflow-training:latest", install_kfp_package=False)
def mistyped(accuracy: dsl.Input[dsl.Model]):
    """Takes a number for a model."""


@dsl.component(base_image="python:3.11-slim")
def brag(accuracy: float):
    """Runs elsewhere."""


def plain(model): ...
'''

PIPELINE = """
from kfp import dsl


@dsl.pipeline
def build():
    dsl.importer(artifact_uri="gs://bucket/model", artifact_class=dsl.Model)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own_steps.py").write_text(STEPS)
    (tmp_path / "failing.py").write_text("import absent_package\n")
    (tmp_path / "own_model.py").write_text(MODEL)
    (tmp_path / "recipes").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("own_steps", "failing", "own_model"):
        sys.modules.pop(name, None)


def write(folder, step):
    text = f'# Mine\nimage_size = 8\nchannels = 1\nmodel = "own_model:build"\nsteps = ["{step}"]\n'
    (folder / "recipes" / "mine.toml").write_text(f'source = "digits"\n{text}')


def test_a_step_gets_what_it_names_and_the_image(folder):
    write(folder, "own_steps:announce")
    text = compilation.compiled(recipe.load("mine"), "europe-docker.pkg.dev/p/r/training:1")
    document = yaml.safe_load(text)
    branch = next(
        component["dag"]["tasks"]
        for component in document["components"].values()
        if "announce" in component.get("dag", {}).get("tasks", {})
    )
    step = branch["announce"]
    assert {"collect-training", "evaluate-model"} <= set(step["dependentTasks"])
    assert set(step["inputs"]["parameters"]) == {"accuracy", "epochs"}
    assert set(step["inputs"]["artifacts"]) == {"model"}
    container = document["deploymentSpec"]["executors"]["exec-announce"]["container"]
    assert container["image"] == "europe-docker.pkg.dev/p/r/training:1"


def test_a_steps_own_image_is_not_taken_for_the_pipelines(folder):
    write(folder, "own_steps:brag")
    path = compilation.write(recipe.load("mine"), folder / "build", "p/training:1")
    assert "python:3.11-slim" in path.read_text()
    assert Package(path).image == "p/training:1"


def test_a_pipeline_is_no_step(folder, refused):
    (folder / "own_steps.py").write_text(PIPELINE)
    write(folder, "own_steps:build")
    importlib.import_module("own_steps")
    assert "has no KFP component 'build'; decorate" in refused("run", "mine", "--local")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("absent:announce", "mine.toml: steps='absent:announce': there is no module absent; put"),
        ("announce", "mine.toml: steps='announce' is not MODULE:FUNCTION"),
        ("components.mine:announce", "are packages of this project, which hide yours"),
        ("failing:announce", "can't be imported (ModuleNotFoundError: No module named 'absent_"),
        ("own_steps:anounce", "has no KFP component 'anounce'; did you mean 'announce'?"),
        ("own_steps:plain", "has no KFP component 'plain'; decorate its function"),
        ("own_steps:greedy", "nothing for the input 'modle'; did you mean 'model'?"),
        ("own_steps:mistyped", "steps='own_steps:mistyped': "),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_nothing_is_started(folder, refused, step, message):
    write(folder, step)
    assert message in refused("run", "mine", "--local")
    assert not (folder / "runs").exists()
