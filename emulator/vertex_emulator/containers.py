"""Components and replicas of a run as containers of the pipeline's image, as on Vertex AI.

They use the image's user, interpreter, packages and code. Of this machine they see the folder of
runs and the paths that the sources name, and no environment variables. Replicas share a private
network, in which they reach each other by name. Components use this machine's network, which
the run's Model Registry listens on.
"""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from components.vertex.vertex_client import TOKEN_VARIABLE
from trainer.errors import InputError, one_line
from vertex_emulator.processes import Guardian, Process

ENGINES = ("docker", "podman")
LABEL = "vertex-tensorflow-training-run"
PORT = 2222
"""Port of every replica, as on Vertex AI."""
_ROOT = pathlib.Path(__file__).parents[2]
_CODE = ("components", "trainer")
"""The project's packages that an image holds."""
_COMMAND_SECONDS = 60
_MEMORY_SECONDS = 0.5


class ContainerProcess(Process):
    """The engine's client process, which runs a container and forwards signals to it."""

    def __init__(self, engine: str, name: str, command: Sequence[str], **others: Any) -> None:
        self._engine, self._name = engine, name
        self._inner, self._sampled = 0, 0.0
        super().__init__(command, **others)

    def kill(self) -> None:
        # Killing only the client would leave the container running.
        if not _succeeds(self._engine, "kill", self._name):
            super().kill()

    def _sample_memory(self) -> None:
        if time.monotonic() - self._sampled < _MEMORY_SECONDS:
            return
        self._sampled = time.monotonic()
        if not self._inner:
            shown = _call(self._engine, "inspect", "--format", "{{.State.Pid}}", self._name)
            self._inner = int(shown.stdout) if shown.stdout.strip().isdigit() else 0
        self._note_memory_of(self._inner)


@dataclasses.dataclass
class Containers:
    """The containers of one run; a context manager that removes them on exit."""

    engine: str  # docker or podman, as returned by `find_engine`
    image: str  # of the components
    _: dataclasses.KW_ONLY
    run_name: str  # unique on this machine
    mounts: Mapping[pathlib.Path, bool]  # folders that containers see, and whether they may write
    guardian: Guardian  # removes the containers if this process is killed

    def __post_init__(self) -> None:
        # Names of containers and networks allow only these characters.
        self._run = re.sub(r"[^a-zA-Z0-9_.-]", "-", self.run_name)
        self._label, self._count = f"{LABEL}={self._run}", 0

    def __enter__(self) -> "Containers":
        # A machine that went down has left the containers of the previous attempt.
        self.__exit__()
        created = _call(self.engine, "network", "create", "--label", self._label, self._run)
        if created.returncode:
            raise InputError(f"{self.engine} can't create a network: {one_line(created.stderr)}")
        self.guardian.run_after_death(["/bin/sh", "-c", self._removal_commands()])
        return self

    def __exit__(self, *_: Any) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["/bin/sh", "-c", self._removal_commands()],
                capture_output=True,
                timeout=_COMMAND_SECONDS,
            )

    def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: pathlib.Path,
        replica_of: str = "",
    ) -> Process:
        """Start a component of the pipeline, or a replica of the image `replica_of`.

        The other replicas reach it at `<name>:PORT`.
        """
        self._count += 1
        unique = f"{self._run}-{name}-{self._count}"
        # Every user of the machine can read a command line.
        secret = {key: value for key, value in environment.items() if key == TOKEN_VARIABLE}
        public = [f"--env={k}={v}" for k, v in environment.items() if k not in secret]
        arguments = [self.engine, "run", "--rm", "--log-driver=none", f"--name={unique}"]
        arguments += [f"--label={self._label}"]
        for path, writable in self.mounts.items():
            arguments.append(f"--volume={path}:{path}:{'rw' if writable else 'ro'}")
        arguments += [*(f"--env={key}" for key in secret), *public]
        if replica_of:
            arguments += [f"--network={self._run}", f"--network-alias={name}", f"--hostname={name}"]
        else:
            arguments += ["--network=host"]
        # The command replaces the image's entry point, as on Vertex AI.
        image = replica_of or self.image
        arguments += ["--entrypoint", command[0], image, *command[1:]]
        variables = {**os.environ, **secret}
        others = {"environment": variables, "log": log, "guardian": self.guardian}
        return ContainerProcess(self.engine, unique, arguments, **others)

    def image_id(self, image: str) -> str:
        """Return the ID of an image, which changes when it is rebuilt under its name."""
        return _inspect_image(self.engine, image, "{{.Id}}") or image

    def _removal_commands(self) -> str:
        """Return shell commands that remove the run's containers, then its network."""
        mine = f"{self.engine} ps --all --quiet --filter label={self._label}"
        return (
            f"for id in $({mine}); do {self.engine} rm --force $id; done; "
            f"{self.engine} network rm {self._run}"
        )


def list_mounts(runs_directory: pathlib.Path, arguments: Iterable[Any]) -> dict[pathlib.Path, bool]:
    """Return the folders that a run's containers mount, and whether each is writable.

    These are the folder of runs, writable, and the local paths among the arguments.
    """
    mounts = {runs_directory.resolve(): True}
    # The model's options may name a file of weights.
    values = itertools.chain.from_iterable(
        argument.values() if isinstance(argument, dict) else [argument] for argument in arguments
    )
    for value in values:
        location = value.rpartition(":")[2] if isinstance(value, str) else ""
        if location.startswith("/") and not location.startswith(("//", "/gcs/")):
            # For a pattern, mount the nearest folder that exists.
            path = pathlib.Path(location)
            path = next(folder for folder in (path, *path.parents) if folder.exists())
            if path != pathlib.Path("/"):
                mounts.setdefault(path, False)
    return mounts


def find_engine(image: str) -> str:
    """Return docker or podman, the first that works and has `image`; raise InputError for none."""
    reasons = []
    for name in ENGINES:
        if not shutil.which(name):
            reasons.append(f"{name} is not installed")
        elif not _succeeds(name, "info"):
            reasons.append(f"{name} info fails")
        elif not _succeeds(name, "image", "inspect", image):
            raise InputError(f"{name} has no {image!r}; run make image or compile.py --image=IMAGE")
        else:
            return name
    raise InputError(f"--in-containers needs docker or podman: {', '.join(reasons)}")


def find_outdated_commit(engine: str, image: str, root: pathlib.Path = _ROOT) -> str:
    """Return the commit that an image was built from, if its code differs from that in `root`.

    Return "" if the code is the same, the image names no commit or git doesn't know the commit.
    """
    label = '{{index .Config.Labels "org.opencontainers.image.revision"}}'
    shown = _inspect_image(engine, image, label)
    commit = shown.removesuffix("-dirty")
    if not re.fullmatch("[0-9a-f]{40}", commit) or not shutil.which("git"):
        return ""
    difference = _call("git", "-C", str(root), "diff", "--quiet", commit, "--", *_CODE)
    return shown if difference.returncode == 1 else ""


def _inspect_image(engine: str, image: str, form: str) -> str:
    """Return an image's properties as a Go template formats them; empty if there is no image."""
    return _call(engine, "image", "inspect", "--format", form, image).stdout.strip()


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", "no answer")


def _succeeds(*command: str) -> bool:
    return _call(*command).returncode == 0
