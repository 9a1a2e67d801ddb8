"""A task that installs packages does so in an environment of its own."""

import json
import sys
import zipfile
from pathlib import Path

import pytest
from kfp import dsl

from tests.pipelines.local.package_runs import compile_to, run_package
from tests.refusals import refused

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@dsl.component(base_image=f"python:{VERSION}-slim", packages_to_install=["tiny-package==1.0"])
def look(file: dsl.Output[dsl.Artifact]):
    import importlib.util
    import json
    import os
    import pathlib

    import tiny_package

    found = [name for name in ("numpy", "kfp") if importlib.util.find_spec(name)]
    secret = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
    seen = [tiny_package.VALUE, found, secret, str(pathlib.Path.cwd()), str(pathlib.Path.home())]
    pathlib.Path(file.path).write_text(json.dumps(seen))


@dsl.pipeline(name="installs")
def installs():
    look().set_caching_options(False)


@dsl.component(base_image="python:3.2")
def old() -> str:
    return "never"


@dsl.pipeline(name="old")
def old_python() -> str:
    return old().output


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of packages, the only one that pip knows."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_package-1.0-py3-none-any.whl", "w") as wheel:
        information = "tiny_package-1.0.dist-info"
        wheel.writestr("tiny_package.py", "VALUE = 7\n")
        wheel.writestr(f"{information}/METADATA", "Name: tiny-package\nVersion: 1.0\n")
        wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{information}/RECORD", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/secret.json")
    return folder


def test_image_of_another_python_is_refused_before_anything_starts(tmp_path):
    error = refused(run_package, compile_to(tmp_path, old_python), tmp_path / "runs", {})
    assert "the image python:3.2 has Python 3.2, but python3.2 is not installed" in error


def test_packages_are_installed_once_and_nothing_is_inherited(index, tmp_path):
    for _ in range(2):
        ended, shown = run_package(compile_to(tmp_path, installs), tmp_path / "runs", {})
        assert ended.state == "SUCCEEDED", shown
        (file,) = [path for path in ended.directory.rglob("file") if path.is_file()]
        value, found, secret, folder, home = json.loads(file.read_text())
        assert (value, found, secret) == (7, ["kfp"], "")
        assert folder == home != str(Path.cwd())
        (index / "tiny_package-1.0-py3-none-any.whl").unlink(missing_ok=True)
