"""A step of the user's own gets the inputs that it names; an unusable one is refused."""

import importlib
import sys

import pytest
import yaml

from pipelines import compilation, recipe
from pipelines.package import Package
from tests.trainer.models.test_own import MODEL

STEPS = """
from kfp import dsl


@dsl.component(base_image="vertex-tensorflow-training:latest", install_kfp_package=False)
def announce(model: dsl.Input[dsl.Model], score: float, epochs: int, team: str = "ours"):
    print(model.uri, score, epochs, team)


@dsl.component
def greedy(modle: dsl.Input[dsl.Model], xyzzyxyzzy: str): ...


@dsl.component
def mistyped(score: dsl.Input[dsl.Model]): ...


@dsl.component(base_image="python:3.11-slim")
def brag(score: float): ...


def plain(model): ...
"""


PIPELINE = """
from kfp import dsl


@dsl.pipeline
def build():
    dsl.importer(artifact_uri="gs://bucket/model", artifact_class=dsl.Model)
"""


@pytest.fixture
def write(tmp_path, own_recipe, monkeypatch):
    """Write the recipe `mine` with a step."""
    (tmp_path / "own_steps.py").write_text(STEPS)
    (tmp_path / "own_pipeline.py").write_text(PIPELINE)
    (tmp_path / "own_model.py").write_text(MODEL)
    (tmp_path / "failing.py").write_text("import absent_package\n")
    (tmp_path / "program.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = 'source = "digits"\nimage_size = 8\nchannels = 1\nmodel = "own_model:build"\n'
    yield lambda step: own_recipe(f'{text}steps = ["{step}"]\n')
    for name in ("own_steps", "own_pipeline", "own_model", "failing"):
        sys.modules.pop(name, None)


def test_step_gets_the_inputs_that_it_names_and_the_image(write):
    write("own_steps:announce")
    text = compilation.compile_yaml(recipe.load("mine"), "europe-docker.pkg.dev/p/r/training:1")
    document = yaml.safe_load(text)
    dags = [
        component["dag"]["tasks"]
        for component in document["components"].values()
        if "dag" in component
    ]
    (step,) = (tasks["announce"] for tasks in dags if "announce" in tasks)
    assert {"collect-training", "evaluate-model"} <= set(step["dependentTasks"])
    assert set(step["inputs"]["parameters"]) == {"score", "epochs"}
    assert set(step["inputs"]["artifacts"]) == {"model"}
    container = document["deploymentSpec"]["executors"]["exec-announce"]["container"]
    assert container["image"] == "europe-docker.pkg.dev/p/r/training:1"


def test_step_may_have_an_image_of_its_own(write, tmp_path):
    write("own_steps:brag")
    path = compilation.write_yaml(recipe.load("mine"), tmp_path / "build", "p/training:1")
    assert "python:3.11-slim" in path.read_text()
    assert Package(path).image == "p/training:1"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("absent:announce", "mine.toml: steps='absent:announce': there is no module absent; put"),
        ("announce", "mine.toml: steps='announce' is not MODULE:NAME"),
        ("components.mine:announce", "are packages of this project, which hide yours"),
        ("failing:announce", "can't be imported (ModuleNotFoundError: No module named 'absent_"),
        ("program:announce", "program.py can't be imported (SystemExit: 3)"),
        ("own_steps:anounce", "has no KFP component 'anounce'; did you mean 'announce'?"),
        ("own_steps:plain", "has no KFP component 'plain'; decorate its function"),
        ("own_steps:greedy", "no value for input 'modle'; did you mean 'model'?"),
        ("own_steps:mistyped", "steps='own_steps:mistyped': "),
    ],
)
def test_unusable_step_is_refused_before_the_run(write, refused, tmp_path, step, message):
    write(step)
    assert message in refused("run mine --local")
    assert not (tmp_path / "runs").exists()


def test_pipeline_is_no_step(write, refused):
    write("own_pipeline:build")
    importlib.import_module("own_pipeline")
    assert "has no KFP component 'build'; decorate" in refused("run mine --local")
