"""The distribution holds the package, which imports what it declares, and runs its README."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FORBIDDEN = ("components", "kfp", "pipelines", "tensorflow", "trainer")
DECLARED = ("google", "google_crc32c", "grpc", "pydantic", "urllib3", "certifi", "cryptography")
"""Modules of the dependencies in pyproject.toml."""
FOR_PIPELINES = ("kfp", "google_cloud_pipeline_components")
FOR_TUNING = ("numpy", "optuna", "scipy", "sklearn")
"""Packages of the extras of these names."""

CONTAINER = {"image": "alpine", "command": ["sh", "-c", "echo trained"]}
PIPELINE = {
    "schemaVersion": "2.1.0",
    "sdkVersion": "kfp-2.17.3",
    "pipelineInfo": {"name": "train"},
    "components": {"comp-train": {"executorLabel": "exec-train"}},
    "deploymentSpec": {"executors": {"exec-train": {"container": CONTAINER}}},
    "root": {
        "dag": {
            "tasks": {
                "train": {
                    "componentRef": {"name": "comp-train"},
                    "taskInfo": {"name": "train"},
                    "cachingOptions": {},
                }
            }
        }
    },
}

IMPORTS = f"""
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({FORBIDDEN!r}))  # An import of one raises ImportError.
import vertex
for module in pkgutil.walk_packages(vertex.__path__, "vertex."):
    importlib.import_module(module.name)
    print(module.name)
print(vertex.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder)]
    run(sys.executable, "-m", "pip", "wheel", *options, str(folder / "source"))
    (path,) = folder.glob("vertex_emulator-*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """An interpreter that has the wheel, and the dependencies of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    (site / "base.pth").write_text(sysconfig.get_path("purelib"))
    return str(folder / "bin" / "python")


def run(*command, cwd=None, variables=()):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= dict(variables)
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def list_files(pattern):
    """Return the files of the package, without its tests."""
    return [path for path in ROOT.rglob(pattern) if not path.is_relative_to(ROOT / "tests")]


def list_imports():
    """Return the names of the packages that the package's files import, anywhere in them."""
    trees = [ast.parse(path.read_text()) for path in list_files("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def test_wheel_holds_the_package(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    paths = [*list_files("*.py"), *list_files("*/*.toml")]
    assert names == {path.relative_to(ROOT.parent).as_posix() for path in paths}


def test_only_declared_packages_are_imported():
    assert list_imports() <= {"vertex", "pytest", *DECLARED, *FOR_PIPELINES, *FOR_TUNING}


def test_every_module_imports_without_tensorflow_and_the_project(python, tmp_path):
    *names, place = run(python, "-c", IMPORTS, cwd=tmp_path).split()
    assert len(names) > 40
    assert not Path(place).is_relative_to(ROOT)


def test_readme_runs(python, tmp_path):
    client, test, service = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert run(python, "-c", service, cwd=tmp_path) == "JOB_STATE_SUCCEEDED trained\n\n"
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(PIPELINE))
    (tmp_path / "test_training.py").write_text(test)
    assert "1 passed" in run(python, "-m", "pytest", "-q", cwd=tmp_path)
    with subprocess.Popen(
        [python, "-u", "-m", "vertex.emulator", "up"], cwd=tmp_path, stdout=subprocess.PIPE
    ) as emulator:
        try:
            assert any(line.startswith(b"Ready") for line in emulator.stdout)
            content = json.loads((tmp_path / "emulated" / "environment.json").read_text())
            variables = content["environment"]
            shown = run(
                python, "-c", f"{client}print(job.state.name)", cwd=tmp_path, variables=variables
            )
            assert shown.endswith("PIPELINE_STATE_SUCCEEDED\n")
        finally:
            emulator.terminate()
