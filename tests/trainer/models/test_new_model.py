"""The example of docs/models.md becomes a model of the project by its file alone."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
BUILDS = """
import sys
from trainer.data import schema
from trainer.models import check_model
dataset = schema.load_dataset(sys.argv[1])
model = check_model("two_layers", dataset, {"units": 3}).build(dataset)
print(model.output_shape, model.count_params())
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Copy the project's packages and add the example's file."""
    folder = tmp_path_factory.mktemp("project")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("components", "pipelines", "trainer"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    (path, text), *others = re.findall(r"^`(\S+\.py)`:\n\n```python\n(.*?)^```", PAGE, re.M | re.S)
    assert not others and path == "trainer/models/two_layers.py"
    (folder / path).write_text(text)
    return folder


def run(project, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(project), "COLUMNS": "200"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


def test_commands_check_the_new_models_options(project):
    plan = ["-m", "pipelines", "plan", "digits", "--set=model=two_layers"]
    assert run(project, *plan, '--set=model_options={"units": 48}').returncode == 0
    for setting, message in (
        ('model_options={"units": 0}', "model_options: units=0 is out of range"),
        ('model_options={"unit": 1}', "two_layers takes no 'unit'; did you mean 'units'?"),
        ("image_size=65", "image_size=65 is too large for two_layers; use 64 or less"),
        ("source=csv:gs://b/x.csv", "columns=[] gives the model nothing"),
    ):
        result = run(project, *plan, f"--set={setting}")
        assert (result.returncode, message in result.stderr) == (2, True), result.stderr
    shown = run(project, "-m", "pipelines", "parameters", "model_options").stdout
    assert "with model=two_layers" in shown and "Units of the first layer. At least 1." in shown


def test_new_model_is_built(project, digit_records):
    result = run(project, "-c", BUILDS, digit_records.uri)
    assert result.stdout.split("\n")[-2] == f"(None, 10) {64 * 3 + 3 + 3 * 10 + 10}", result.stderr
