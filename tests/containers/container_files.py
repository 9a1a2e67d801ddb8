"""Read the files that build and deliver the images, for the tests of this folder."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from tests.child_processes import ROOT

DOCKERFILE = ROOT / "containers" / "Dockerfile"
LOCKS = ("build", "cpu", "gpu", "serving")


def instructions() -> list[str]:
    """Return the Dockerfile's instructions, each on one line."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    return [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def copied_folders() -> list[str]:
    """Return the folders of this repository that the image contains."""
    stage = instructions()
    start = stage.index("FROM scratch AS code") + 1
    end = next(n for n in range(start, len(stage)) if stage[n].startswith("FROM "))
    copied = [line.split()[1] for line in stage[start:end] if line.startswith("COPY ")]
    return [name for name in copied if (ROOT / name).is_dir()]


def copied_packages() -> list[str]:
    """Return the Python packages that the image contains."""
    return [Path(name).name for name in copied_folders()]


def copy_folders(names: Iterable[str], target: Path) -> None:
    for name in names:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, target / name, ignore=ignore, dirs_exist_ok=True)


def ignored_folders() -> list[str]:
    """Return the folders that .dockerignore leaves out of those that the image contains."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return [line for line in lines if not line.startswith(("#", "!", "*"))]


def copy_code(target: Path) -> None:
    """Copy the folders of this repository that the image contains."""
    copy_folders(copied_folders(), target)
    for name in ignored_folders():
        shutil.rmtree(target / name)


def locked(name: str) -> dict[str, str]:
    """Return the versions in <name>.lock, of packages that Python 3.11 on Linux installs."""
    from packaging.requirements import Requirement

    environment = {"python_version": "3.11", "python_full_version": "3.11.14"}
    environment |= {"sys_platform": "linux", "platform_system": "Linux"}
    environment |= {"platform_machine": "x86_64", "implementation_name": "cpython"}
    environment["platform_python_implementation"] = "CPython"
    versions = {}
    for line in (ROOT / f"{name}.lock").read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            requirement = Requirement(line.rstrip("\\").strip())
            if not requirement.marker or requirement.marker.evaluate(environment):
                versions[requirement.name] = str(requirement.specifier).removeprefix("==")
    return versions
