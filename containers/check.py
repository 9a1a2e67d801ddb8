"""Check an image as the last step of its build.

    check.py             in an image for components and replicas
    check.py serving     in the image that serves predictions

Checks that every module of `PACKAGES` imports, that KFP's executor finds the
components, that the training task starts, that CUDA's libraries load if TensorFlow was built with
CUDA, that no development package is installed, and that the user is not root. In the serving image
it checks trainer/serving instead.
"""

import ctypes
import importlib
import importlib.util
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("trainer", "components", "vertex")
SERVING = "trainer.serving"
"""Imported only in the serving image; the other images have no web server."""
BEAM = "trainer.data.write.beam_pipeline"
"""Needs Apache Beam, which Dockerfile.dataflow adds."""
COMMANDS = {
    "": {"trainer.task": "--base_output_directory", "kfp.dsl.executor_main": "--executor_input"},
    "serving": {SERVING: "--host"},
}
"""For each target, modules and a word that `python -m MODULE --help` must print."""
UNWANTED = ("mypy", "pip", "pipelines", "pytest", "ruff", "tests", "uv", "vertex.emulator")
DRIVER = "libcuda.so.1"
"""The machine's driver, which is mounted into the container."""


def import_modules(*, serving: bool = False) -> list[str]:
    """Import every module of `PACKAGES` except `SERVING`, or only `SERVING`; return the names.

    `BEAM` is imported only if Apache Beam is installed.
    """
    names = []
    importlib.import_module("cv2")  # Modules import it in functions.
    for package in map(importlib.import_module, [SERVING] if serving else PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name == BEAM and not importlib.util.find_spec("apache_beam"):
                continue
            if serving or not module.name.startswith(SERVING):
                importlib.import_module(module.name)
                names.append(module.name)
    return names


def load_cuda() -> list[str]:
    """Load CUDA's libraries if TensorFlow was built with CUDA; return the errors.

    TensorFlow itself only warns about them and then trains on the CPU.
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


def main(target: str = "") -> str | None:
    """Return the first error as one line, or None if there is none."""
    commands = COMMANDS[target]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if os.geteuid() == 0:
        return "the image runs as root"
    unwanted = [name for name in UNWANTED if importlib.util.find_spec(name)]
    if unwanted:
        return f"the image contains development packages: {', '.join(unwanted)}"
    # Start them first, in parallel with the imports of this process: TensorFlow takes seconds.
    started = [
        subprocess.Popen([sys.executable, "-m", name, "--help"], stdout=subprocess.PIPE, text=True)
        for name in commands
    ]
    import_modules(serving=target == "serving")
    if target != "serving":
        from kfp.dsl.kfp_config import KFPConfig

        files = KFPConfig().get_components().values()
        if not files or not all(file.is_file() for file in files):
            return f"kfp_config.ini in {Path.cwd()} lists no components or files that don't exist"
    if failures := load_cuda():
        return f"CUDA's libraries don't load: {'; '.join(failures)}"
    for process, expected in zip(started, commands.values(), strict=True):
        output, _ = process.communicate(timeout=120)
        if process.returncode or expected not in output:
            return f"{' '.join(process.args)} ended with {process.returncode}: {output[-500:]}"
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
