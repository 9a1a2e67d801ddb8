"""The command `vertex-emulator`, as a shell runs it."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "vertex.emulator"]
PROGRAM = "import google.auth; print(google.auth.default()[1])"


@pytest.fixture
def shell(tmp_path):
    """Run a command in an empty folder; return its code, output and errors."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    def run(*words):
        done = subprocess.run(
            [*COMMAND, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        return done.returncode, done.stdout, done.stderr

    run.options = {"cwd": tmp_path, "env": environment}
    return run


@contextlib.contextmanager
def started(shell, *options):
    process = subprocess.Popen(
        [*COMMAND, "up", *options], stdout=subprocess.PIPE, text=True, **shell.options
    )
    try:
        lines = []
        while not lines or not lines[-1].startswith("Ready"):
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        yield "".join(lines)
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def test_emulator_starts_leads_clients_to_it_and_ends(shell):
    assert shell("env") == (
        2,
        "",
        "error: no emulator runs on the folder 'emulated'; start one: vertex-emulator up\n",
    )
    with started(shell, "--project", "shop-tests") as shown:
        assert "is project shop-tests, us-central1" in shown
        code, exports, _ = shell("env")
        assert code == 0
        pairs = (line.removeprefix("export ").split("=", 1) for line in exports.splitlines())
        environment = {name: value.strip("'") for name, value in pairs}
        program = [sys.executable, "-c", PROGRAM]
        project = subprocess.check_output(program, env={**os.environ, **environment}, text=True)
        assert project == "shop-tests\n"
        endpoint = environment["VERTEX_AI_ENDPOINT"]
        code, _, errors = shell("up", "--folder", "other", "--port", endpoint.rpartition(":")[2])
        assert code == 2 and "can't be used (Address already in use)" in errors
        code, _, errors = shell("up")
        assert code == 2 and "'emulated' is in use by another emulator; end it" in errors
    assert shell("env")[0] == 2
    assert shell("status") == (2, "", "error: the folder 'emulated' has no runs\n")
    assert shell("logs", "one")[2] == "error: 'emulated' has no run 'one'\n"
