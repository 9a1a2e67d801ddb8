"""python -m pipelines as a process: imports, streams and exit codes."""

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.typed import RUNTIME
from pipelines.parameters import GROUPS
from tests.child_processes import ROOT
from tests.components import plans
from trainer.fields import default_of
from vertex import checked_json

INTERRUPTS_IMPORT = """
# Sends Ctrl-C when a module is imported.
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

# A process in the background ignores it by default.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
"""

pytestmark = pytest.mark.usefixtures("elsewhere")


def python(*arguments, stdout=subprocess.PIPE, cwd=None, **environment):
    """Run this Python in the project; return the ended process."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def imported_by(result):
    """Return the modules that a process under -X importtime has imported."""
    return {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}


SOURCES = """'
from trainer.data.sources import describe_sources, parse_source
parse_source("csv:a.csv")
print(describe_sources())'"""
LIBRARIES = "kfp tensorflow google.protobuf numpy pyarrow scipy sklearn PIL jinja2"
GOOGLE = "kfp google.cloud.aiplatform google.cloud.aiplatform_v1"


@pytest.mark.parametrize(
    ("arguments", "code", "words", "slow"),
    [
        ("-m pipelines recipes", 0, "digits", LIBRARIES),
        (f"-c {SOURCES}", 0, "images:URI (a folder", LIBRARIES),
        ("-m pipelines run digits --local --set source=images:no", 2, "/no does not", "kfp grpc"),
        ("-m pipelines compile digits", 0, "digits.yaml", "tensorflow google.cloud.aiplatform"),
        ("-m pipelines status one --project my-project", 1, "none.json was not found; cor", GOOGLE),
    ],
    ids=["recipes", "sources", "a missing source", "compile", "missing credentials"],
)
def test_quick_command_imports_no_slow_library(arguments, code, words, slow):
    credentials = {"GOOGLE_APPLICATION_CREDENTIALS": "none.json"}
    result = python("-X", "importtime", *shlex.split(arguments), **credentials)
    assert (result.returncode, words in result.stdout + result.stderr) == (code, True)
    assert imported_by(result).isdisjoint(slow.split())


def artifact(kind, uri):
    return {"artifacts": [{"name": "a", "type": {"schemaTitle": f"system.{kind}"}, "uri": uri}]}


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
"""Inputs, outputs, and libraries that a step does not need."""


@pytest.mark.parametrize("step", STEPS)
def test_step_imports_only_the_libraries_it_uses(tmp_path, step):
    inputs, outputs, unused = STEPS[step]
    folder = plans.describe(tmp_path / "in")
    (folder / "metrics.json").write_text(json.dumps(checked_json.with_checksum({})))
    (folder / "history.csv").write_text("epoch,loss\n1,0.5\n")
    declared = [field for group in GROUPS for field in dataclasses.fields(group)]
    values = {field.name: default_of(field) for field in declared} | plans.DEFAULTS
    values |= {"project": "local", "location": "local", "source": "digits"}
    values |= {"source_digest": "", "image": ""}
    read = {name: artifact(kind, str(folder)) for name, kind in inputs.items()}
    written = {name: artifact(kind, str(tmp_path / name)) for name, kind in outputs.items()}
    task = {
        "inputs": {"parameterValues": values, "artifacts": read},
        "outputs": {"outputFile": str(tmp_path / "outputs.json"), "artifacts": written},
    }
    arguments = ["--executor_input", json.dumps(task), "--function_to_execute", step]
    arguments += ["--component_module_path", f"{ROOT}/components/{step}.py"]
    result = python("-X", "importtime", "-m", "kfp.dsl.executor_main", *arguments, **RUNTIME)
    assert (tmp_path / "outputs.json").exists(), result.stderr[-2000:]
    imported = imported_by(result)
    assert "vertex.errors" in imported
    too_many = (*unused, "tensorflow", "scipy", "pydantic", "kfp.client", "jinja2")
    assert not imported.intersection(too_many)


def test_launcher_imports_neither_the_local_runner_nor_the_sdk():
    imported = imported_by(python("-X", "importtime", "-m", "vertex.emulator.engine.launcher"))
    assert "grpc" in imported
    unused = "pipelines.local.execution pydantic_core rich.console google.cloud.aiplatform "
    unused += "google.cloud.aiplatform_v1beta1 google.cloud.aiplatform_v1.services.model_service"
    assert imported.isdisjoint(unused.split())


def test_ascii_terminal_shows_all_output():
    result = python("-m", "pipelines", "parameters", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    assert "Cloud KMS key" in result.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full:
        result = python("-m", "pipelines", "recipes", stdout=full)
    message = "error: the output can't be written: No space left on device\n"
    assert (result.returncode, result.stderr) == (1, message)


@pytest.mark.parametrize("command", [["-m", "pipelines", "recipes"], [str(ROOT / "compile.py")]])
def test_missing_package_is_one_line(command):
    result = python("-S", *command)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: {sys.executable} has no package 'typer'; activate the environment that has it "
        "(. .venv/bin/activate), which `make run` sets up\n"
    )


@pytest.mark.parametrize("program", ["import vertex_training as v; v.main()", "import compile"])
def test_old_python_is_one_line(program):
    result = python("-c", f"import sys; sys.version_info = (3, 10, 18); {program}", cwd=ROOT)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: {sys.executable} is Python 3.10.18, but the project needs 3.11 to 3.13; "
        "run `make run PYTHON=python3.11`, or activate an environment of a newer Python\n"
    )


@pytest.mark.parametrize("module", ["typer", "pipelines.parameters", "rich.table"])
def test_ctrl_c_during_imports_ends_without_a_traceback(tmp_path, module):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS_IMPORT.format(module=module))
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    result = python("-m", "pipelines", "recipes", PYTHONPATH=path)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed):
    shell = ["/bin/sh", "-c", f'exec "$0" -m pipelines recipes {closed}', sys.executable]
    result = subprocess.run(shell, capture_output=True, text=True, cwd=ROOT)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_deleted_working_folder_is_one_line(tmp_path):
    shell = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" -m pipelines recipes'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = ["/bin/sh", "-c", shell, sys.executable]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    message = "error: no working folder (No such file or directory); cd to another\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", message)


START = "import vertex_training; vertex_training.main()"


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("trainer/task.py", "package trainer in {}"),
        ("pipelines/__init__.py", "package pipelines in {}"),
        ("components.py", "package components in {}"),
        ("shop-1.0.dist-info/top_level.txt", "shop-1.0.dist-info installed a package trainer "),
    ],
)
@pytest.mark.parametrize("place", ["working folder", "import path"])
def test_another_package_with_a_name_of_the_projects_is_one_line(tmp_path, place, file, line):
    (folder := tmp_path / "theirs").mkdir()
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text("shop\ntrainer\n" if file.endswith(".txt") else "")
    if file.endswith(".txt"):  # Both are installed into one folder.
        shutil.copy(ROOT / "vertex_training.py", folder)
    inside = place == "working folder"
    path = str(ROOT) if inside else os.pathsep.join([str(folder), str(ROOT)])
    result = python("-c", START, "recipes", cwd=folder if inside else tmp_path, PYTHONPATH=path)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert line.format(folder) in result.stderr and "; rename " in result.stderr


def test_data_in_a_folder_with_the_name_of_a_package_is_no_conflict(tmp_path):
    for name in ("components", "pipelines", "trainer"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "button.js").touch()
    assert python("-m", "pipelines", "recipes").returncode == 0


SERVICES = """
import sys
import components
from google.cloud.aiplatform_v1 import types
few = [name for name in sys.modules if name.endswith("_service.client")]
import google.cloud.aiplatform_v1
assert google.cloud.aiplatform_v1.CustomJob is types.CustomJob
try:
    google.cloud.aiplatform_v1.absent
except AttributeError as error:
    print(len(few), error)
"""


def test_package_is_complete_once_another_name_is_used():
    expected = "0 module 'google.cloud.aiplatform_v1' has no attribute 'absent'\n"
    assert python("-c", SERVICES).stdout == expected


STUB = """#!/bin/sh
# A Python whose environments are stubs of the same version.
test "$1" = --version && echo "Python {version}" && exit
echo "$@" >> "$LOG"
test "$2" = venv || exit 0
rm -rf .venv && mkdir -p .venv/bin .venv/lib/python3/site-packages/pip && cp "$0" .venv/bin/python
"""


@pytest.fixture
def make_run(tmp_path, monkeypatch):
    """Return make_run(version): `make run` with a stub of that Python; (code, commands, errors)."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.lock").touch()
    log = tmp_path / "log"

    def run(version):
        log.write_text("")
        (tmp_path / "python").write_text(STUB.format(version=version))
        (tmp_path / "python").chmod(0o755)
        environment = {**os.environ, "LOG": str(log), "MAKEFLAGS": ""}
        result = subprocess.run(
            ["make", "run", f"PYTHON={tmp_path / 'python'}"],
            env=environment,
            capture_output=True,
            text=True,
        )
        return result.returncode, log.read_text().splitlines(), result.stderr

    return run


@pytest.mark.parametrize("version", ["3.10.18", "3.14.0"])
def test_unsupported_python_is_one_line_and_leaves_nothing(make_run, version):
    code, commands, error = make_run(version)
    assert (code, commands, error.count("\n")) == (2, [], 1)
    assert f"is Python {version}, but the project needs Python 3.11 to 3.13: " in error
    assert "make run PYTHON=python3.11" in error
    assert not Path(".venv").exists()


def test_environment_is_set_up_once_and_replaced_if_it_is_unusable(make_run):
    created, ran = "-m venv --clear .venv", "-m pipelines run digits --local"
    code, (venv, pip, run), error = make_run("3.11.2")
    assert (code, venv, run, error) == (0, created, ran, "")
    assert "pip install" in pip
    assert make_run("3.9.18") == (0, [ran], "")
    shutil.rmtree(".venv/lib")  # An interrupted creation leaves an environment without pip.
    assert make_run("3.11.2")[1][0] == created
    Path(".venv/bin/python").write_text(STUB.format(version="3.9.18"))
    assert make_run("3.11.2")[1] == [created, pip, run]
    Path(".venv/bin/python").unlink()
    assert make_run("3.11.2")[1] == [created, pip, run]
