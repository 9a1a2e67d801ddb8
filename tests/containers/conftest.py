"""Build images by `make image` with the container engine of this machine.

IMAGE_BUILD_FLAGS is passed on to the engine, such as the flags that a machine behind a proxy
needs; IMAGE_BASE names another base image, with Python 3.11, than Docker Hub's.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.child_processes import ROOT
from tests.containers import container_files

NAME = "localhost/vertex-tensorflow-training-test"


def run(arguments, **options):
    return subprocess.run(arguments, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def engine() -> str:
    """Return docker or podman, whichever works and has the base image or can pull it."""
    base = os.environ.get("IMAGE_BASE", "docker.io/library/python:3.11-slim")
    reasons = []
    for name in ("docker", "podman"):
        if not shutil.which(name):
            reasons.append(f"{name} is not installed")
        elif run([name, "info"], timeout=60).returncode:
            reasons.append(f"{name} info fails")
        elif (
            run([name, "image", "inspect", base]).returncode
            and run([name, "pull", "--quiet", base], timeout=600).returncode
        ):
            reasons.append(f"{name} has no image {base} and can't pull it")
        else:
            return name
    pytest.skip("; ".join(reasons))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """Return a clone of the commit, with the files of the image as they are here."""
    folder = tmp_path_factory.mktemp("checkout") / "project"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    folders = ("containers", *container_files.copied_folders())
    for name in folders:
        shutil.rmtree(folder / name, ignore_errors=True)
    container_files.copy_folders(folders, folder)
    for name in ("Makefile", ".dockerignore", "pyproject.toml"):
        shutil.copy2(ROOT / name, folder / name)
    return folder


def build(engine: str, checkout: Path, tag: str, target: str = "cpu") -> tuple[float, str]:
    """Build an image; return the seconds, and the output if the build failed."""
    flags = os.environ.get("IMAGE_BUILD_FLAGS", "")
    if os.environ.get("IMAGE_BASE"):
        flags += f" --build-arg BASE={os.environ['IMAGE_BASE']}"
    start = time.monotonic()
    settings = [f"ENGINE={engine}", f"IMAGE={NAME}", f"TAG={tag}", f"TARGET={target}"]
    command = ["make", "image", *settings, f"BUILD_FLAGS={flags}"]
    result = run(command, cwd=checkout, timeout=1500)
    seconds = time.monotonic() - start
    return seconds, result.stdout + result.stderr if result.returncode else ""


def in_container(engine, image, *command):
    return run([engine, "run", "--rm", "--network=none", image, *command], timeout=300)
