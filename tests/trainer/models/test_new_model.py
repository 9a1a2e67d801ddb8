"""The example of docs/models.md becomes a model of the project by its file alone."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.child_processes import ROOT

PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
USES = """
import json, sys
from pipelines.commands import command_line
for line in json.loads(sys.argv[2]):
    print("exit code", command_line.run(command_line.app, line), flush=True)
from trainer.data import schema
from trainer.models import check_model
dataset = schema.load_dataset(sys.argv[1])
model = check_model("two_layers", dataset, {"units": 3}).build(dataset)
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
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("components", "pipelines", "trainer"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    (path, text), *others = re.findall(r"^`(\S+\.py)`:\n\n```python\n(.*?)^```", PAGE, re.M | re.S)
    assert not others and path == "trainer/models/two_layers.py"
    (folder / path).write_text(text)
    return folder


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
