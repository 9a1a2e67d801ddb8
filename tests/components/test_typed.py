"""Test components as typed functions: inputs, command, and code in the image."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import yaml
from kfp import compiler, dsl

from components import typed
from components.create_tfrecords import create_tfrecords
from components.plan_training import plan_training
from trainer.training.config import TrainingConfig

COMPONENTS = Path(typed.__file__).parent


def test_config_class_becomes_one_input_per_field():
    inputs = plan_training.component_spec.inputs
    assert inputs["epochs"].type == "Integer"
    assert inputs["epochs"].description.startswith("Passes over the training split.")
    assert inputs["model_options"].type == "Dict"
    assert inputs["class_floors"].description.startswith("Least recall of")
    assert not {"config", "machines", "options"} & inputs.keys()
    assert all(spec.description for spec in inputs.values())


def test_compiled_component_holds_no_source(tmp_path):
    path = tmp_path / "component.yaml"
    compiler.Compiler().compile(create_tfrecords, str(path))
    (executor,) = yaml.safe_load(path.read_text())["deploymentSpec"]["executors"].values()
    container = executor["container"]
    assert container["command"] == ["python3", "-m", "kfp.dsl.executor_main"]
    assert container["args"][-2:] == ["--function_to_execute", "create_tfrecords"]
    assert set(container) == {"image", "command", "args"}


def test_executor_finds_each_component_by_its_name(tmp_path):
    # A working directory like the image's /app.
    (tmp_path / "components").symlink_to(COMPONENTS)
    for name in ("trainer", "vertex"):
        (tmp_path / name).symlink_to(COMPONENTS.parent / name)
    (tmp_path / "kfp_config.ini").symlink_to(COMPONENTS / "kfp_config.ini")
    decision = {
        "name": "decision",
        "type": {"schemaTitle": "system.Artifact"},
        "uri": str(tmp_path / "decision"),
        "metadata": {},
    }
    inputs = {
        "inputs": {"parameterValues": {"reason": "nothing changed", "version": "digits@1"}},
        "outputs": {
            "artifacts": {"decision": {"artifacts": [decision]}},
            "parameters": {"verdict": {"outputFile": str(tmp_path / "verdict")}},
            "outputFile": str(tmp_path / "output.json"),
        },
    }
    command = [sys.executable, "-m", "kfp.dsl.executor_main", "--executor_input"]
    command += [json.dumps(inputs), "--function_to_execute", "skip_training"]
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    place = {"cwd": tmp_path, "env": environment}
    ended = subprocess.run(command, **place, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "\nskipped: nothing changed\n" in ended.stdout
    why = {"reason": "nothing changed", "version": "digits@1"}
    recorded = {"verdict": "skipped", "role": "none", **why}
    assert json.loads((tmp_path / "decision").read_text()) == recorded
    outputs = json.loads((tmp_path / "output.json").read_text())
    assert outputs["parameterValues"] == {"verdict": "skipped"}
    index = (COMPONENTS / "kfp_config.ini").read_text()
    named = re.findall(r"^(\w+) = components/\1.py$", index, re.MULTILINE)
    files = [file.stem for file in COMPONENTS.glob("*.py") if "\n@component\n" in file.read_text()]
    assert sorted(named) == sorted(files)


def test_user_error_in_a_component_is_one_line_and_exit_2(refused):
    seen = []

    @typed.component
    def shown(config: TrainingConfig, run: str, page: dsl.Output[dsl.Markdown]):
        """Show a page.

        Args:
            run: A name.
        """
        seen.append((config, run))

    shown.python_func(epochs=3.0, run="a", page=None)
    assert seen == [(TrainingConfig(epochs=3), "a")]
    error = refused(shown.python_func, epochs=0, run="a", page=None)
    assert error == "epochs=0 is out of range: it must be at least 1\n"
