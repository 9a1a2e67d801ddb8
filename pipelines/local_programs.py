"""The programs of this checkout that run in place of the project's images on this machine."""

import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from trainer.serving import VERSION_VARIABLE
from vertex.emulator.environment import Program, child_environment, run_command

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_CHECKOUT = str(_ROOT) if (_ROOT / "pyproject.toml").exists() else ""
"""Empty if the project is installed: its packages are then on the import path."""
_FUNCTION = "--function_to_execute"

PRELOADED = ("tensorflow", "kfp.dsl", "scipy.stats", "pyarrow", "matplotlib.figure")
"""Modules that components and replicas import, and which take long."""
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "ERROR", "GLOG_minloglevel": "2"}
"""Defaults: the user's own values win."""


def component_environment() -> dict[str, str]:
    """Return the environment of a component's process.

    On PYTHONPATH, which stands in for the container's image, a checkout of the project comes
    first, and the working folder, which may hold the user's own models and steps, last.
    """
    paths = [_CHECKOUT, os.environ.get("PYTHONPATH"), str(pathlib.Path.cwd())]
    return {**QUIET, **child_environment(), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def component_program(image: str, command: Sequence[str]) -> Program:
    """Return the program of a component or replica, with the code of this checkout."""
    words = run_command(image, command).command
    if file := component_file(words):
        words += ["--component_module_path", str(file)]
    return Program(words, component_environment())


def server_program(model: Any) -> Program:
    """Return the model server, which serves a Model of any image."""
    version = {VERSION_VARIABLE: f"{model.display_name}@{model.version_id}"}
    command = [sys.executable, "-m", "trainer.serving"]
    return Program(command, {**component_environment(), **version})


def component_file(command: Sequence[str]) -> pathlib.Path | None:
    """Return the file of the component that a command names; None if it contains the source."""
    if command[1:2] != ["-m"] or _FUNCTION not in command:
        return None
    return _ROOT / "components" / f"{command[list(command).index(_FUNCTION) + 1]}.py"
