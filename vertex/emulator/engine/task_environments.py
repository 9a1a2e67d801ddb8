"""Virtual environments of tasks whose command installs packages, as KFP's components do.

A set of requirements gets an environment of its own for each version of Python, which is kept for
later tasks and runs. The first task that needs it installs the packages; others wait for that.
Nothing is installed into the environment of this process, and its variables are not inherited.
"""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence

from vertex.emulator.engine import bucket_executor
from vertex.emulator.environment import Program
from vertex.errors import InputError

_REST = '"$0" "$@"'
"""End of the script with which KFP installs packages: the component's own command."""
_PYTHON_IMAGE = re.compile(r"(?:.*/)?python:(3\.[0-9]+)(?:[.-].*)?")
_THIS_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_INHERITED = re.compile(
    r"(PIP|UV|LC)_.*|LANG|TMPDIR|TZ|SSL_CERT_FILE|\w+_CA_BUNDLE|\w+_proxy", re.I
)
_EXECUTOR = pathlib.Path(bucket_executor.__file__)
_READY = "ready"
"""File of an environment into which everything has been installed."""
_CREATE = """set -e
"$PYTHON" -m venv --clear "$VIRTUAL_ENV"
site=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
for path in $SEEDS; do cp -R "$path" "$site"; done
[ -z "$BASE" ] || echo "$BASE" > "$site/base.pth"
"""


@dataclasses.dataclass(frozen=True)
class TaskEnvironment:
    """The environment of the tasks that run one script of installations in one image.

    An image of Python has that version, and only what the task installs. Other images have
    packages that are not known here: those of this process stand in for them.
    """

    installs: str  # shell script
    image: str

    @property
    def folder(self) -> pathlib.Path:
        key = "\0".join([self.installs, self.python, self._base, _EXECUTOR.read_text()])
        cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        return pathlib.Path(cache) / "vertex-emulator" / name

    def check(self) -> None:
        """Raise InputError if this machine lacks the image's Python."""
        _ = self.python

    @property
    def python(self) -> str:
        """Return the interpreter of the image's version; raise InputError if there is none."""
        match = _PYTHON_IMAGE.fullmatch(self.image)
        if not match or match[1] == _THIS_VERSION:
            return sys.executable
        if path := _find_python(match[1]):
            return path
        raise InputError(
            f"the image {self.image} has Python {match[1]}, but python{match[1]} is not installed "
            "on this machine; install it, or use containers"
        )

    @property
    def _base(self) -> str:
        """Return the folder of packages that stand in for the image's; empty for none."""
        return "" if _PYTHON_IMAGE.fullmatch(self.image) else sysconfig.get_path("purelib")

    @property
    def is_ready(self) -> bool:
        return (self.folder / _READY).exists()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock under which the environment is created."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def creation(self) -> Program:
        """Return the program that creates the environment and installs the packages."""
        seeds = _find_kfp() if not self._base and self.python == sys.executable else []
        words = " ".join([str(_EXECUTOR), *seeds])
        settings = {"PYTHON": self.python, "SEEDS": words, "BASE": self._base}
        return Program(["sh", "-c", _CREATE + self.installs], {**self._variables(), **settings})

    def mark_ready(self) -> None:
        (self.folder / _READY).touch()

    def program(self, command: Sequence[str]) -> Program:
        """Return the program that runs a command in the environment."""
        return Program(list(command), self._variables())

    def _variables(self) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)
        }
        paths = [str(self.folder / "bin"), os.defpath, "/usr/local/bin"]
        return {
            "PIP_CACHE_DIR": str(self.folder.parent / "pip"),
            **inherited,
            "PATH": os.pathsep.join(paths),
            "VIRTUAL_ENV": str(self.folder),
            "PYTHONUNBUFFERED": "1",
            # Google's libraries look for no credentials of this machine.
            "NO_GCE_CHECK": "true",
        }


def split_installs(command: Sequence[str]) -> tuple[str, list[str]]:
    """Return the script with which a command installs packages, or "", and the rest of it."""
    if list(command[:2]) == ["sh", "-c"] and len(command) > 3:
        script = command[2].rstrip()
        if "pip install" in script and script.endswith(_REST):
            return f"{script.removesuffix(_REST)} true", list(command[3:])
    return "", list(command)


@functools.cache
def _find_python(version: str) -> str:
    path = shutil.which(f"python{version}")
    # Version managers have a file for each version that they know.
    works = path and not subprocess.run([path, "-c", ""], capture_output=True).returncode
    return path if path and works else ""


def _find_kfp() -> list[str]:
    """Return the files of this process's KFP, which nearly every task would download."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        installed = importlib.metadata.distribution("kfp")
        tops = dict.fromkeys(
            path.parts[0] for path in installed.files or () if path.parts[0] != ".."
        )
        return [str(installed.locate_file(top)) for top in tops]
    return []
