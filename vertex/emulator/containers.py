"""Components and replicas of a run as containers of the pipeline's image, as on Vertex AI.

They use the image's user, interpreter, packages and code. Of this machine they see the folder of
runs and the paths that the sources name, and no environment variables. Replicas share a private
network, in which they reach each other by name. Components use this machine's network, which
the run's Model Registry listens on.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from vertex.emulator.processes import Guardian, Process
from vertex.errors import InputError
from vertex.facts.emulation import TOKEN_VARIABLE

LABEL = "vertex-emulator-run"
PORT = 2222
"""Port of every replica, as on Vertex AI."""
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
        if call(self._engine, "kill", self._name).returncode:
            super().kill()

    def _sample_memory(self) -> None:
        if time.monotonic() - self._sampled < _MEMORY_SECONDS:
            return
        self._sampled = time.monotonic()
        if not self._inner:
            shown = call(self._engine, "inspect", "--format", "{{.State.Pid}}", self._name)
            self._inner = int(shown.stdout) if shown.stdout.strip().isdigit() else 0
        self._note_memory_of(self._inner)


@dataclasses.dataclass
class Containers:
    """The containers of one run; a context manager that removes them on exit."""

    engine: str  # docker or podman
    image: str  # of the components
    _: dataclasses.KW_ONLY
    run_name: str  # unique on this machine
    mounts: Mapping[pathlib.Path, bool]  # folders that containers see, and whether they may write
    guardian: Guardian  # removes the containers if this process is killed
    # Variables of every container.
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        # Names of containers and networks allow only these characters.
        self._run = re.sub(r"[^a-zA-Z0-9_.-]", "-", self.run_name)
        self._label, self._count = f"{LABEL}={self._run}", 0

    def __enter__(self) -> "Containers":
        # A machine that went down has left the containers of the previous attempt.
        self.__exit__()
        created = call(self.engine, "network", "create", "--label", self._label, self._run)
        if created.returncode:
            reason = " ".join(created.stderr.split())
            raise InputError(f"{self.engine} can't create a network: {reason}")
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
        environment = {**self.environment, **environment}
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
        return inspect_image(self.engine, image, "{{.Id}}") or image

    def _removal_commands(self) -> str:
        """Return shell commands that remove the run's containers, then its network."""
        mine = f"{self.engine} ps --all --quiet --filter label={self._label}"
        return (
            f"for id in $({mine}); do {self.engine} rm --force $id; done; "
            f"{self.engine} network rm {self._run}"
        )


def inspect_image(engine: str, image: str, form: str) -> str:
    """Return an image's properties as a Go template formats them; empty if there is no image."""
    return call(engine, "image", "inspect", "--format", form, image).stdout.strip()


def call(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", "no answer")
