"""Run beam_run.py by the interpreter that has Apache Beam, and read its answers."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
LAYER = Path(sys.prefix) / "dataflow" / "bin" / "python"


def interpreter() -> str:
    """Return the one that has Apache Beam, or skip the test."""
    if LAYER.exists():
        return str(LAYER)
    if importlib.util.find_spec("apache_beam"):
        return sys.executable
    pytest.skip("Apache Beam is not installed: make dataflow")


def start(python: str, folder: Path, cases: list[dict[str, Any]]) -> subprocess.Popen:
    """Start a process that runs `cases` (beam_run.py), with its files in `folder`."""
    path = folder / f"cases-{len(list(folder.glob('cases-*')))}.json"
    path.write_text(json.dumps(cases))
    return subprocess.Popen(
        [python, "-m", "tests.trainer.data.beam_run", str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def run(
    python: str, folder: Path, cases: list[dict[str, Any]], seconds: float = 60
) -> list[dict[str, Any]]:
    """Return the answers to `cases`, with the lines of progress before each."""
    process = start(python, folder, cases)
    try:
        output, _ = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == 0
    return answers_of(output)


def answers_of(output: str) -> list[dict[str, Any]]:
    answers, lines = [], []
    for message in map(json.loads, output.splitlines()):
        if "line" in message:
            lines.append(message["line"])
        else:
            answers.append({**message["answer"], "lines": lines})
            lines = []
    return answers
