"""The programs of this checkout that run in place of the project's images, and their code."""

import configparser
import contextlib
import hashlib
import os
import pathlib
import sys
from collections.abc import Sequence
from modulefinder import ModuleFinder
from typing import Any

from components.planning.code_digest import PACKAGES, ROOT
from trainer.serving import VERSION_VARIABLE
from vertex.emulator.environment import Program, child_environment, run_command
from vertex.errors import InputError

_CHECKOUT = str(ROOT) if (ROOT / "pyproject.toml").exists() else ""
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
    if file := _component_file(words):
        _check_listed(file.stem)
        words += ["--component_module_path", str(file)]
    return Program(words, component_environment())


def server_program(model: Any) -> Program:
    """Return the model server, which serves a Model of any image."""
    version = {VERSION_VARIABLE: f"{model.display_name}@{model.version_id}"}
    command = [sys.executable, "-m", "trainer.serving"]
    return Program(command, {**component_environment(), **version})


def _component_file(command: Sequence[str]) -> pathlib.Path | None:
    """Return the file of the component that a command names; None if it contains the source."""
    if command[1:2] != ["-m"] or _FUNCTION not in command:
        return None
    return ROOT / "components" / f"{command[list(command).index(_FUNCTION) + 1]}.py"


def _check_listed(name: str) -> None:
    """Raise InputError for a component that KFP would not find in the image."""
    listed = configparser.ConfigParser()
    listed.read(ROOT / "components" / "kfp_config.ini")
    if name not in listed["Components"]:
        raise InputError(
            f"components/kfp_config.ini, by which KFP finds components in the image, does not list "
            f"{name!r}; add the line: {name} = components/{name}.py"
        )


class _ProjectFinder(ModuleFinder):
    """Find the modules that code imports, even indirectly, of this project alone."""

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        """Find a module; raise ImportError for one of another project."""
        if path is None and name not in PACKAGES:
            raise ImportError(name)
        return super().find_module(name, path, parent)


def digest_code_of(command: Sequence[str]) -> str:
    """Return a digest of the modules of this repository that a component imports, even indirectly.

    The outputs of a step in the cache depend on it: after an edit of the trainer, records are
    written again only if the step that writes them uses the edited code. The digest covers the lock
    file of packages, since other versions may write other records. On Vertex AI the image
    determines both. A command names the component's function, or contains the source of a user's
    own component.
    """
    finder = _ProjectFinder(path=[str(ROOT)])
    for word in command:
        if "import" in word:
            with contextlib.suppress(SyntaxError):
                code = compile(word, "<component>", "exec")
                finder.scan_code(code, finder.add_module("__main__"))
    if file := _component_file(command):
        finder.import_hook(f"components.{file.stem}")
    modules: dict[str, Any] = finder.modules
    seen: set[str] = set()
    while packages := {name for name, module in modules.items() if module.__path__} - seen:
        seen |= packages
        for name in packages:
            # A package of plugins imports its modules by name at run time.
            if "plugins" in pathlib.Path(modules[name].__file__).read_text("utf-8"):
                finder.import_hook(name, fromlist=["*"])
    files = {pathlib.Path(module.__file__) for module in modules.values() if module.__file__}
    lock = ROOT / "requirements.lock"
    digest = hashlib.sha256(lock.read_bytes() if lock.is_file() else b"")
    for path in sorted(files):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
