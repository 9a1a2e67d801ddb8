"""python -m pipelines as a process: its imports, its streams and its exit code."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.typed import RUNTIME
from pipelines import recipe
from pipelines.parameters import GROUPS
from tests.components import plans
from trainer.fields import default_of

ROOT = recipe.DIRECTORY.parents[1]
INTERRUPTS_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

# Who runs in the background is deaf to it from the start.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
"""
"""Ctrl-C at the moment when a module is imported."""
RUN = "from pipelines.commands.command_line import app, run; print(run(app, "


pytestmark = pytest.mark.usefixtures("elsewhere")


def python(*arguments, stdout=subprocess.PIPE, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


@pytest.mark.parametrize(
    ("code", "words", "slow"),
    [
        (
            f"{RUN}['recipes']))",
            "digits",
            ("kfp", "tensorflow", "google.protobuf", "scipy", "jinja2", "numpy"),
        ),
        (
            "from trainer.data.sources import described, kind_of; kind_of('csv:a.csv'); "
            "print(described())",
            "images:URI (a folder",
            ("numpy", "pyarrow", "PIL", "sklearn", "google.protobuf", "tensorflow"),
        ),
        (f"{RUN}['run', 'digits', '--local', '--set', 'source=images:no']))", "2", ("kfp", "grpc")),
        (
            f"{RUN}['status', 'one', '--project', 'my-project']))",
            "1",
            ("kfp", "google.cloud.aiplatform", "google.cloud.aiplatform_v1"),
        ),
    ],
    ids=["recipes", "sources", "a missing source", "missing credentials"],
)
def test_a_quick_answer_imports_no_slow_library(code, words, slow):
    shows = f"; import sys; print([name for name in {slow} if name in sys.modules])"
    result = python("-c", code + shows, GOOGLE_APPLICATION_CREDENTIALS="none.json")
    assert words in result.stdout
    assert result.stdout.splitlines()[-1] == "[]", result.stderr


def artifact(kind, uri):
    return {"artifacts": [{"name": "a", "type": {"schemaTitle": f"system.{kind}"}, "uri": uri}]}


def imported_by(result):
    """The modules that a process under -X importtime has imported."""
    return {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}


STEPS = {
    "fingerprint_source": ({}, {}, ("numpy", "PIL", "pydantic_core")),
    "create_tfrecords": ({}, {"records": "Dataset"}, ()),
    "plan_training": ({"records": "Dataset"}, {"training": "Artifact"}, ("numpy", "PIL")),
    "collect_training": (
        {"training": "Artifact"},
        {"model": "Model", "metrics": "Metrics"},
        ("numpy", "PIL", "pydantic_core", "google.api_core", "tomllib"),
    ),
}
"""Inputs, outputs, and libraries that a step has no use for."""


@pytest.mark.parametrize("step", STEPS)
def test_a_step_imports_no_library_that_it_does_not_use(tmp_path, step):
    inputs, outputs, unused = STEPS[step]
    folder = plans.describe(tmp_path / "in")
    (folder / "metrics.json").write_text("{}")
    (folder / "history.csv").write_text("epoch,loss\n1,0.5\n")
    values = {
        field.name: default_of(field) for group in GROUPS for field in dataclasses.fields(group)
    }
    values |= {"project": "local", "location": "local", **plans.DEFAULTS}
    task = {
        "inputs": {
            "parameterValues": {**values, "source": "digits", "source_digest": "", "image": ""},
            "artifacts": {name: artifact(kind, str(folder)) for name, kind in inputs.items()},
        },
        "outputs": {
            "outputFile": str(tmp_path / "outputs.json"),
            "artifacts": {
                name: artifact(kind, str(tmp_path / name)) for name, kind in outputs.items()
            },
        },
    }
    arguments = ["--executor_input", json.dumps(task), "--function_to_execute", step]
    arguments += ["--component_module_path", f"{ROOT}/components/{step}.py"]
    result = python("-X", "importtime", "-m", "kfp.dsl.executor_main", *arguments, **RUNTIME)
    assert (tmp_path / "outputs.json").exists(), result.stderr[-2000:]
    imported = imported_by(result)
    assert "trainer.errors" in imported
    too_many = (*unused, "tensorflow", "scipy", "pydantic", "kfp.client", "jinja2")
    assert not imported.intersection(too_many)


def test_the_launcher_imports_nothing_of_the_run_that_started_it():
    imported = imported_by(python("-X", "importtime", "-m", "pipelines.local.launcher"))
    assert "grpc" in imported
    assert imported.isdisjoint(("pipelines.local.execution", "pydantic_core", "rich.console"))


def test_the_module_exits_with_the_commands_code():
    result = python("-m", "pipelines", "plan", "nope")
    assert result.returncode == 2
    assert result.stderr.startswith("error: no recipe 'nope'")


def test_a_terminal_of_few_signs_is_no_obstacle():
    result = python("-m", "pipelines", "parameters", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    assert "Cloud KMS key" in result.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_output_that_takes_no_more_is_one_line():
    with Path("/dev/full").open("w") as full:
        result = python("-m", "pipelines", "recipes", stdout=full)
    assert (result.returncode, result.stderr) == (
        1,
        "error: the output can't be written: No space left on device\n",
    )


@pytest.mark.parametrize("command", [["-m", "pipelines", "recipes"], [str(ROOT / "compile.py")]])
def test_a_python_without_the_packages_is_named_in_one_line(command):
    result = python("-S", *command)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: {sys.executable} has no package 'typer'; activate the environment that has it "
        "(. .venv/bin/activate), which `make run` sets up\n"
    )


@pytest.mark.parametrize("module", ["typer", "pipelines.parameters", "rich.table"])
def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(tmp_path, module):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS_IMPORT.format(module=module))
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    result = python("-m", "pipelines", "recipes", PYTHONPATH=path)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_a_broken_recipe_does_not_hide_the_others(tmp_path):
    others = recipe.names()
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "broken.toml").write_text("epochs = 0")
    result = python("-m", "pipelines", "recipes")
    assert result.returncode == 2
    assert result.stderr.startswith("error: broken.toml: epochs=0 is out of range")
    assert result.stderr.count("\n") == 1
    assert all(name in result.stdout for name in others)


def test_streams_that_the_caller_has_closed_are_no_obstacle():
    for closed in (">&-", ">&- 2>&-", "<&- >&- 2>&-"):
        command = f'exec "$0" -m pipelines recipes {closed}'
        result = subprocess.run(
            ["/bin/sh", "-c", command, sys.executable], capture_output=True, text=True, cwd=ROOT
        )
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
