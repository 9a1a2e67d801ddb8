"""Read the files that deliver the project, and run their scripts, for the tests of this folder."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.child_processes import ROOT

FOLDER = ROOT / "terraform"
CODE = "\n".join(path.read_text() for path in sorted(FOLDER.glob("*.tf")))
DECLARED = set(re.findall(r'^resource "(\w+)" "(\w+)"', CODE, re.MULTILINE))


def body(kind: str, name: str) -> str:
    start = CODE.index(f'resource "{kind}" "{name}" {{')
    return CODE[start : CODE.index("\n}\n", start)]


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def run_stubbed(
    script: str, folder: Path, variables: Mapping[str, str] | None = None, **stubs: str
) -> list[str]:
    """Run a shell script with commands that only log their arguments; return the log's lines.

    `stubs` are scripts that such a command then runs, instead of `echo 123`.
    """
    for name in ("gcloud", "curl", "sleep", "make", "git"):
        path = folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho {name} "$@" >> "$LOG"\n{stubs.get(name, "echo 123")}\n')
        path.chmod(0o755)
    log = folder / "log"
    log.touch()
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environment = {"PATH": path, "LOG": str(log), **(variables or {})}
    command = ["bash", "-euo", "pipefail", "-c", script]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return log.read_text().splitlines()
