"""Processes of the interpreter that has Apache Beam, and what they answer (beam_run.py)."""

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
    """The one that has Apache Beam; skips where none has."""
    if LAYER.exists():
        return str(LAYER)
    if importlib.util.find_spec("apache_beam"):
        return sys.executable
    pytest.skip("Apache Beam is not installed: make dataflow")


def start(python: str, folder: Path, cases: list[dict[str, Any]]) -> subprocess.Popen:
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
    process = start(python, folder, cases)
    try:
        output, _ = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == 0
    return answers_of(output)


def answers_of(output: str) -> list[dict[str, Any]]:
    """The answer to each case, with the lines of progress before it."""
    answers, lines = [], []
    for message in map(json.loads, output.splitlines()):
        if "line" in message:
            lines.append(message["line"])
        else:
            answers.append({**message["answer"], "lines": lines})
            lines = []
    return answers
