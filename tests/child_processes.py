"""Processes that a test starts."""

import contextlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


@contextlib.contextmanager
def started(command, **options):
    """Start a command, its output piped as text; yield the process, and kill it in the end."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **{**pipes, **options}) as process:
        try:
            yield process
        finally:
            process.kill()
