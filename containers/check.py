"""Proves, as the last step of a build, that an image can do what it is for.

    check.py             in an image for components and replicas
    check.py serving     in the image that serves predictions

Every module of trainer/ and components/ imports, KFP's executor finds the components, the training
task answers, CUDA's libraries load where TensorFlow was built for them, nothing of the development
environment came along, and the user is not root. In the serving image the same for trainer/serving.
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
SERVING = "trainer.serving"
"""Runs in the serving image alone; the other images have no web server."""
BEAM = "trainer.data.write.beam_pipeline"
"""Needs Apache Beam, which the layer of Dockerfile.dataflow adds."""
COMMANDS = {
    "": {"trainer.task": "--base_output_directory", "kfp.dsl.executor_main": "--executor_input"},
    "serving": {SERVING: "--host"},
}
"""By the image's target, modules and a word that `python -m MODULE --help` must show."""
UNWANTED = ("mypy", "pip", "pipelines", "pytest", "ruff", "tests", "uv")
DRIVER = "libcuda.so.1"
"""Comes with the machine, which mounts it into the container."""


def import_modules(*, serving: bool = False) -> list[str]:
    """Imports every module of `PACKAGES` but those of `SERVING`, or these alone; returns names.

    `BEAM` is imported where Apache Beam is installed.
    """
    names = []
    for package in map(importlib.import_module, [SERVING] if serving else PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name == BEAM and not importlib.util.find_spec("apache_beam"):
                continue
            if serving or not module.name.startswith(SERVING):
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


def main(target: str = "") -> str | None:
    """Returns what is wrong, in one line; None: nothing."""
    commands = COMMANDS[target]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if os.geteuid() == 0:
        return "the image runs as root"
    found = [name for name in UNWANTED if importlib.util.find_spec(name)]
    if found:
        return f"the image holds what only development needs: {', '.join(found)}"
    # First, and beside this process' own imports: importing TensorFlow takes seconds.
    started = [
        subprocess.Popen([sys.executable, "-m", name, "--help"], stdout=subprocess.PIPE, text=True)
        for name in commands
    ]
    import_modules(serving=target == "serving")
    if target != "serving":
        from kfp.dsl.kfp_config import KFPConfig

        files = KFPConfig().get_components().values()
        if not files or not all(file.is_file() for file in files):
            return f"kfp_config.ini in {Path.cwd()} names no components, or not their files"
    if failures := load_cuda():
        return f"CUDA's libraries don't load: {'; '.join(failures)}"
    for process, expected in zip(started, commands.values(), strict=True):
        output, _ = process.communicate(timeout=120)
        if process.returncode or expected not in output:
            return f"{' '.join(process.args)} ended with {process.returncode}: {output[-500:]}"
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
