"""The programs on this machine that run in place of containers, and their environment.

A service asks a function of its caller for the program that stands in for an image. By default,
the container's own command runs here: `run_command` and `run_server`.
"""

import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vertex.errors import InputError
from vertex.facts.emulation import LOCATION, PROJECT

LOCAL_PARENT = f"projects/{PROJECT}/locations/{LOCATION}"
"""The parent of the resources of runs on this machine."""

_VERTEX_PREFIXES = ("AIP_", "CLOUD_ML_")
_VERTEX_NAMES = ("CLUSTER_SPEC", "TF_CONFIG")
_THIS_MACHINE = ("127.0.0.1", "localhost")


class Program(NamedTuple):
    """A command on this machine, and the environment that it starts with."""

    command: list[str]
    environment: dict[str, str]


def run_command(image: str, command: Sequence[str]) -> Program:
    """Return a container's own command, with this interpreter in place of the image's."""
    words = list(command)
    if words and pathlib.PurePath(words[0]).name in ("python", "python3"):
        words[0] = sys.executable
    return Program(words, child_environment())


def run_server(model: Any) -> Program:
    """Return the command of a Model's container; raise InputError if it names none."""
    container = model.container_spec
    command = [*container.command, *container.args]
    if not command:
        raise InputError(
            f"no program on this machine stands in for {container.image_uri}; give "
            "container_spec.command"
        )
    return run_command(container.image_uri, command)


def child_environment() -> dict[str, str]:
    """Return the environment of a process that stands in for a container.

    This interpreter comes first on PATH. Variables that mark a replica are dropped, and processes
    of this machine reach each other without a proxy.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in _VERTEX_NAMES and not name.startswith(_VERTEX_PREFIXES)
    }
    paths = [str(pathlib.Path(sys.executable).parent), inherited.get("PATH")]
    return {
        **inherited,
        **bypass_proxies(inherited),
        "PATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
    }


def importing_vertex(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which another folder's process can import this package."""
    paths = [environment.get("PYTHONPATH"), str(pathlib.Path(__file__).parents[2])]
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def bypass_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that exclude this machine from the proxies of `environment`."""
    excluded = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    hosts = excluded if excluded == "*" else ",".join(filter(None, [excluded, *_THIS_MACHINE]))
    return {"no_proxy": hosts, "NO_PROXY": hosts}
