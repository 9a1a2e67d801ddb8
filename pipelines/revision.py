"""The version and the commit of the code that a pipeline is compiled from."""

import functools
import importlib.metadata
import subprocess
from pathlib import Path

from trainer.toml_reader import tomllib

PROJECT_NAME = "vertex-tensorflow-training"
_ROOT = Path(__file__).parents[1]
_PROJECT_FILE = _ROOT / "pyproject.toml"


def project_version() -> str:
    """Return the version of this checkout, else of the installed package; empty if unknown."""
    try:
        project = tomllib.loads(_PROJECT_FILE.read_text(encoding="utf-8"))["project"]
        if project["name"] == PROJECT_NAME:
            return project["version"]
    except (OSError, KeyError, ValueError):
        pass
    try:
        return importlib.metadata.version(PROJECT_NAME)
    except importlib.metadata.PackageNotFoundError:
        return ""


@functools.cache
def git_commit() -> str:
    """Return the first 12 digits of the commit that is checked out; empty outside a repository.

    The repository is this checkout, else, for an installed package, that of the working folder,
    which has the recipes.
    """
    try:
        result = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=_ROOT if _PROJECT_FILE.exists() else None,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
