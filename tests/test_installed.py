"""docs/extending.md, in an installed wheel, and docs/running-here.md as they are written."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import yaml

from tests.child_processes import ROOT
from tests.containers import container_files

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^vertex-training .*$", PAGE, re.MULTILINE)
PLACEHOLDER = "REGION-docker.pkg.dev/PROJECT/images/shop@sha256:DIGEST"
IMAGE = "europe-docker.pkg.dev/project/images/shop@sha256:" + "0" * 64

# The page's Python lines, without the second run.
(CELL,) = re.findall(r"^```python\n(from pipelines import api\n.*?)^```$", PAGE, re.M | re.S)
NOTEBOOK = re.sub(r"api\.run\(.*?\)", 'api.results("latest")', CELL).replace(PLACEHOLDER, IMAGE)


@pytest.fixture(scope="module")
def installed(shared):
    """The folder of commands of an environment in which a wheel of the project is installed."""
    return shared("installed", install) / "environment" / "bin"


def install(folder):
    container_files.copy_folders(
        ("components", "pipelines", "trainer", "vertex"), folder / "source"
    )
    for name in ("pyproject.toml", "vertex_training.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    alone = ["--quiet", "--no-deps", "--no-index"]
    wheel = ["wheel", *alone, "--no-build-isolation", "--wheel-dir", str(folder)]
    run(*pip, *wheel, str(folder / "source"), str(folder / "source" / "vertex"))
    environment = folder / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", str(environment))
    python = environment / "bin" / "python"
    site = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    # It falls back to the packages of this environment.
    Path(site.strip(), "base.pth").write_text(sysconfig.get_path("purelib"))
    wheels = [*map(str, folder.glob("*.whl"))]
    run(*pip, "--python", str(python), "install", *alone, *wheels)
    shutil.rmtree(folder / "source")


def run(*command, cwd=None, code=0):
    """Run a command that exits with `code`; return its output, or its errors if that is not 0."""
    settings = ("GOOGLE_", "CLOUDSDK_", "VERTEX_", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    result = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True)
    assert result.returncode == code, f"{command}: {result.stdout}\n{result.stderr}"
    return result.stderr if code else result.stdout


def test_two_wheels_have_every_file_once_and_the_version(installed):
    owned = {}
    for wheel in installed.parents[1].glob("*.whl"):
        names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
        owned[wheel.name.partition("-")[0]] = set(names)
    here = {"vertex_emulator": ["vertex"]}
    here["vertex_tensorflow_training"] = [
        "components",
        "pipelines",
        "trainer",
        "vertex_training.py",
    ]
    for distribution, names in here.items():
        paths = [path for name in names for path in [ROOT / name, *(ROOT / name).rglob("*.*")]]
        files = {str(path.relative_to(ROOT)) for path in paths if path.is_file()}
        outside = ("vertex/tests/", "vertex/pyproject.toml", "vertex/README.md")
        files = {name for name in files if not name.startswith(outside)}
        assert owned[distribution] == {name for name in files if not name.endswith(".pyc")}
    code = "from pipelines.version import project_version; print(project_version())"
    shown = run(str(installed / "python"), "-c", code, cwd=installed).strip()
    assert f'version = "{shown}"' in (ROOT / "pyproject.toml").read_text()


def write_page(folder):
    """Write the files of the page, and the scans that one of them makes."""
    assert set(FILES) >= {"shop/model.py", "shop/labels.py", "shop/steps.py", "recipes/scans.toml"}
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    run(sys.executable, "make_scans.py", cwd=folder)


@pytest.fixture
def repository(shared, tmp_path):
    """A copy of the page's files."""
    return shutil.copytree(shared("page", write_page), tmp_path, dirs_exist_ok=True)


@pytest.mark.slow
def test_page_trains_locally_and_compiles(installed, repository):
    shown = {}
    for command in dict.fromkeys(COMMANDS):
        name, *arguments = command.replace(PLACEHOLDER, IMAGE).split()
        if command != "vertex-training run scans":  # In the cloud.
            shown[command] = run(str(installed / name), *arguments, cwd=repository)
    assert "shop.model:build" in shown["vertex-training recipes"]
    assert "n1-standard-4" in shown["vertex-training plan scans"]
    assert "SUCCEEDED" in shown["vertex-training run scans --local"]
    card = (repository / "runs/latest/artifacts/card/page").read_text()
    assert re.match(r"# accepted: accuracy 0\.[89]\d\d after 8 epochs\n", card)
    run(str(installed / "python"), "-c", NOTEBOOK, cwd=repository)
    document = yaml.safe_load((repository / "build" / "scans.yaml").read_text())
    executors = document["deploymentSpec"]["executors"]
    for name in ("exec-card", "exec-plan-training"):
        assert executors[name]["container"]["image"] == IMAGE
    inputs = document["root"]["inputDefinitions"]["parameters"]
    assert inputs["model"]["defaultValue"] == "shop.model:build"
    program = ["--set=model=shop.train:main", '--set=model_options={"epochs": 2}']
    command = [str(installed / "vertex-training"), "run", "scans", "--local", *program]
    assert "(epoch 2)" in run(*command, cwd=repository)


def test_mistake_in_the_recipe_is_one_line(installed, repository):
    recipe = repository / "recipes" / "scans.toml"
    recipe.write_text(recipe.read_text().replace("labels:scans", "labels:recipes"))
    command = str(installed / "vertex-training")
    error = run(command, "run", "scans", "--local", cwd=repository, code=2)
    assert "(No such file or directory); correct its path" in error and error.count("\n") == 1
    assert not (repository / "runs").exists()


def test_lines_of_the_page_predict(trained, tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "running-here.md").read_text()
    (lines,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    place = tmp_path / re.findall(r'"(runs/.*)/model"', lines)[0]
    place.parent.mkdir(parents=True)
    place.symlink_to(trained)
    matplotlib.image.imsave(tmp_path / "photo.png", np.eye(8))
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    shown = capsys.readouterr().out
    assert "'label': <tf.Tensor: shape=(1,), dtype=string" in shown
    assert "'probabilities': <tf.Tensor: shape=(1, 10), dtype=float32" in shown
