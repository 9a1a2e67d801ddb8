"""The environment and the command of every child process."""

import os
import pathlib
import sys
from collections.abc import Mapping, Sequence

from components.vertex.vertex_client import LOCAL_PROJECT

PROJECT = LOCAL_PROJECT
LOCATION = "local"
LOCAL_PARENT = f"projects/{PROJECT}/locations/{LOCATION}"
"""The parent of the resources of runs on this machine."""

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_CHECKOUT = str(_ROOT) if (_ROOT / "pyproject.toml").exists() else ""
"""Empty if the project is installed: its packages are then on the import path."""
_VERTEX_PREFIXES = ("AIP_", "CLOUD_ML_")
_VERTEX_NAMES = ("CLUSTER_SPEC", "TF_CONFIG")
_FUNCTION = "--function_to_execute"
_THIS_MACHINE = ("127.0.0.1", "localhost")

# Defaults: the user's own values win.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "ERROR", "GLOG_minloglevel": "2"}


def component_environment() -> dict[str, str]:
    """Return the environment of a component's process.

    This interpreter comes first on PATH. On PYTHONPATH, which stands in for the container's
    image, a checkout of the project comes first, and the working folder, which may hold the
    user's own models and steps, last. Variables that mark a replica are dropped, and processes of
    this machine reach each other without a proxy.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in _VERTEX_NAMES and not name.startswith(_VERTEX_PREFIXES)
    }
    return {
        **QUIET,
        **inherited,
        **bypass_proxies(inherited),
        "PATH": _join_paths(str(pathlib.Path(sys.executable).parent), inherited.get("PATH")),
        "PYTHONPATH": _join_paths(_CHECKOUT, inherited.get("PYTHONPATH"), str(pathlib.Path.cwd())),
        "PYTHONUNBUFFERED": "1",
    }


def bypass_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that exclude this machine from the proxies of `environment`."""
    excluded = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    hosts = excluded if excluded == "*" else ",".join(filter(None, [excluded, *_THIS_MACHINE]))
    return {"no_proxy": hosts, "NO_PROXY": hosts}


def local_command(command: Sequence[str]) -> list[str]:
    """Return a container's command with this interpreter and code instead of the image's."""
    words = list(command)
    if words and pathlib.PurePath(words[0]).name in ("python", "python3"):
        words[0] = sys.executable
    if file := component_file(words):
        words += ["--component_module_path", str(file)]
    return words


def component_file(command: Sequence[str]) -> pathlib.Path | None:
    """Return the file of the component that a command names; None if it contains the source."""
    if command[1:2] != ["-m"] or _FUNCTION not in command:
        return None
    return _ROOT / "components" / f"{command[list(command).index(_FUNCTION) + 1]}.py"


def _join_paths(*paths: str | None) -> str:
    return os.pathsep.join(filter(None, paths))
