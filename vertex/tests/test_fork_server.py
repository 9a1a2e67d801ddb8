"""Processes that a fork server starts behave as those of `python -m`."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from vertex.emulator.fork_server import ForkServer
from vertex.emulator.processes import Guardian, Process

PROGRAM = """
import os, subprocess, sys, tempfile, time
import json
print(json.__dict__.get("mark"), os.environ["NAME"], sys.argv[1:], os.getpgid(0) == os.getpid())
print(tempfile.gettempdir())
print("to stderr", file=sys.stderr)
if sys.argv[1:] == ["sleep"]:
    print("child", subprocess.Popen(["sleep", "600"]).pid, flush=True)
    time.sleep(600)
raise ValueError("wrong") if sys.argv[1:] == ["raise"] else SystemExit(3)
"""
PRELOADED = "import json, tempfile\njson.mark = 'preloaded'\ntempfile.gettempdir()\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "preloaded.py").write_text(PRELOADED)
    return folder


@pytest.fixture(scope="module")
def environment(folder):
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).parents[2]}",
    }


@pytest.fixture(scope="module")
def server(folder, environment):
    with ForkServer(["preloaded"], environment) as server:
        yield server


def run(guardian, environment, log, *words, **variables):
    """Start the program, once the guardian's server is ready to fork."""
    guardian.fork_server.wait()
    variables = {**environment, "NAME": "a name", **variables}
    command = [sys.executable, "-m", "program", *words]
    return Process(command, environment=variables, log=log, guardian=guardian)


@pytest.fixture
def start(server, environment, tmp_path):
    """Return a function that starts the program by the shared server."""
    with Guardian(fork_server=server) as guardian:
        yield lambda *words, **variables: run(
            guardian, environment, tmp_path / "log", *words, **variables
        )


def test_program_has_its_arguments_environment_output_and_group(start, tmp_path):
    process = start("one", "two", TMPDIR=str(tmp_path))
    assert process.finished.wait(20)
    assert process.returncode == 3
    lines = process.log.read_text().splitlines()
    assert lines == ["preloaded a name ['one', 'two'] True", str(tmp_path), "to stderr"]


def test_error_is_told_and_exits_with_1(start):
    process = start("raise")
    assert process.finished.wait(20)
    assert process.returncode == 1
    assert process.log.read_text().endswith("ValueError: wrong\n")


def test_program_whose_imports_would_differ_starts_anew(start):
    process = start(TF_ENABLE_ONEDNN_OPTS="0")
    assert process.finished.wait(20)
    assert process.returncode == 3
    assert "None a name" in process.log.read_text()


def is_alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def started_child(process):
    wait_for(lambda: "child" in process.log.read_text())
    return int(process.log.read_text().split()[-1])


def test_killed_program_ends_with_its_group(start):
    process = start("sleep")
    child = started_child(process)
    wait_for(lambda: process.peak_memory)
    process.kill()
    assert process.finished.wait(20)
    assert process.returncode == -signal.SIGKILL
    wait_for(lambda: not is_alive(child))
    wait_for(lambda: not psutil.pid_exists(process.pid))


def test_program_of_a_lost_server_ends(environment, tmp_path):
    with (
        ForkServer(["preloaded"], environment) as server,
        Guardian(fork_server=server) as guardian,
    ):
        process = run(guardian, environment, tmp_path / "log", "sleep")
        child = started_child(process)
        server._process.kill()
        assert process.finished.wait(20)
        assert process.returncode == -signal.SIGKILL
        wait_for(lambda: not is_alive(child))
        later = run(guardian, environment, tmp_path / "log")
        assert later.finished.wait(20)
        assert later.returncode == 3


HOLDER = """
import os, signal
from vertex.emulator.fork_server import ForkServer
with ForkServer(["blocking"], dict(os.environ)) as server:
    print(server._process.pid, flush=True)
    signal.pause()
"""


def test_server_ends_with_a_killed_process_while_it_imports(folder, environment):
    (folder / "blocking.py").write_text("import signal\nsignal.pause()\n")
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as holder:
        server = psutil.Process(int(holder.stdout.readline()))
        try:
            wait_for(lambda: "blocking" in server.cmdline())
            holder.kill()
            wait_for(lambda: not is_alive(server.pid))
        finally:
            server.kill() if server.is_running() else None


def test_server_that_can_not_import_starts_programs_anew(environment, tmp_path):
    with (
        ForkServer(["no_such_module"], environment) as server,
        Guardian(fork_server=server) as guardian,
    ):
        process = run(guardian, environment, tmp_path / "log")
        assert process.finished.wait(20)
        assert process.returncode == 3
