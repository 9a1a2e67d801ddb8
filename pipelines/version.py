"""The version and the commit of the code that runs."""

import functools
import importlib.metadata
import pathlib
import subprocess
import tomllib

PROJECT_NAME = "vertex-tensorflow-training"
_ROOT = pathlib.Path(__file__).parents[1]
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
    """Return the first 12 digits of the current commit; empty outside a repository.

    Uses this checkout's repository or, for an installed package, the working folder's.
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
