"""Proves, as the last step of a build, that an image can do what it is for.

Every module of trainer/ and components/ imports, KFP's executor is there, the training task
answers, CUDA's libraries load where TensorFlow was built for them, nothing of the development
environment came along, and the user is not root.
"""

import ctypes
import importlib
import importlib.util
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("trainer", "components")
UNWANTED = ("mypy", "pip", "pipelines", "pytest", "ruff", "tests", "uv")
DRIVER = "libcuda.so.1"
"""Comes with the machine, which mounts it into the container."""


def import_modules() -> list[str]:
    """Imports every module of `PACKAGES`; returns their names."""
    names = []
    for package in map(importlib.import_module, PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
            names.append(module.name)
    return names


def load_cuda() -> list[str]:
    """Loads CUDA's libraries, if TensorFlow uses them; returns why some can't be loaded.

    TensorFlow itself only warns, and then trains on the CPU.
    """
    import tensorflow

    if not tensorflow.sysconfig.get_build_info()["is_cuda_build"]:
        return []
    packages = Path(tensorflow.__file__).parents[1]
    libraries = sorted(packages.glob("nvidia/*/lib/*.so*"))
    failures = [] if libraries else [f"there are no CUDA libraries in {packages}/nvidia"]
    for library in libraries:
        try:
            ctypes.CDLL(str(library))
        except OSError as error:
            if not str(error).startswith(f"{DRIVER}:"):
                failures.append(str(error))
    return failures


def main() -> str | None:
    """Returns what is wrong, in one line; None: nothing."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if os.geteuid() == 0:
        return "the image runs as root"
    found = [name for name in UNWANTED if importlib.util.find_spec(name)]
    if found:
        return f"the image holds what only development needs: {', '.join(found)}"
    # First, and beside this process' own imports: importing TensorFlow takes seconds.
    task = subprocess.Popen(
        [sys.executable, "-m", "trainer.task", "--help"], stdout=subprocess.PIPE, text=True
    )
    executor = subprocess.Popen(
        [sys.executable, "-m", "kfp.dsl.executor_main", "--help"],
        stdout=subprocess.PIPE,
        text=True,
    )
    import_modules()
    if failures := load_cuda():
        return f"CUDA's libraries don't load: {'; '.join(failures)}"
    for process, expected in ((task, "--base_output_directory"), (executor, "--executor_input")):
        output, _ = process.communicate(timeout=120)
        if process.returncode or expected not in output:
            return f"{' '.join(process.args)} ended with {process.returncode}: {output[-500:]}"
    return None


if __name__ == "__main__":
    sys.exit(main())
