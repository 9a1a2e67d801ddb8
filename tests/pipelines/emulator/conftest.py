import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests.child_processes import ROOT
from tests.pipelines.conftest import started
from tests.pipelines.emulator.idle_services import Services


class Rehearsal:
    """A shell in which the emulator's exports hold, and the emulator's process."""

    def __init__(self, folder, exports, process):
        self.folder, self.process = folder, process
        self.variables = dict(re.findall(r"^export (\w+)=(.*)$", exports, re.MULTILINE))
        # `python` is this one; the project's folder is not the working one.
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        variables = {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(folder), "COLUMNS": "200"}
        self.environment = {**os.environ, **variables, **self.variables}

    def run(self, command):
        """Return the output of a command, which must succeed."""
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        place = {"env": self.environment, "cwd": self.folder}
        done = subprocess.run(["/bin/sh", "-c", command], input="y\n", **place, **both)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def send(self, verb, path, content=None, token=None):
        """Send a request; return the HTTP status and the content of the answer."""
        token = self.variables["VERTEX_AI_ACCESS_TOKEN"] if token is None else token
        body = content if isinstance(content, str) else json.dumps(content)
        request = urllib.request.Request(
            self.variables["VERTEX_AI_ENDPOINT"] + path,
            data=None if content is None else body.encode(),
            headers={"Authorization": f"Bearer {token}"},
            method=verb,
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def ask(self, verb, path, content=None):
        """Send a request below the location, which must be answered with 200; return the answer."""
        parent = "/v1/projects/my-project/locations/us-central1"
        code, answer = self.send(verb, f"{parent}/{path}", content)
        assert code == 200, (verb, path, answer)
        return answer

    def kill(self):
        """Kill the emulator's process, as kill -9 does."""
        self.process.kill()
        self.process.wait()

    def forward(self, days):
        """Set the emulator's clock forward."""
        assert self.send("POST", "/clock:forward", {"days": days})[0] == 200

    def runs(self):
        """Return the state of each run by its name."""
        return {
            job["name"].rpartition("/")[2]: job["state"].removeprefix("PIPELINE_STATE_")
            for job in self.ask("GET", "pipelineJobs").get("pipelineJobs", ())
        }


@contextlib.contextmanager
def emulated(folder):
    """Run an emulator that keeps its resources in a folder, until the block ends."""
    lines = []
    with (
        (folder / "errors").open("w") as errors,
        started("emulator", cwd=folder, stderr=errors) as process,
    ):
        try:
            for line in process.stdout:
                lines.append(line)
                if line.startswith("# Ready"):
                    break
            yield Rehearsal(folder, "".join(lines), process)
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def rehearsal(tmp_path):
    (tmp_path / "compile.py").symlink_to(ROOT / "compile.py")
    with emulated(tmp_path) as started:
        yield started


@pytest.fixture
def on_emulator(command, elsewhere, monkeypatch):
    """Run a command line in this process, on the emulator of a rehearsal; return its output."""

    def run(rehearsal, line):
        for name, value in rehearsal.variables.items():
            monkeypatch.setenv(name, value)
        code, shown, errors = command(line)
        assert (code, errors) == (0, "")
        return shown

    return run


@pytest.fixture
def services(tmp_path):
    with contextlib.ExitStack() as stack:
        yield Services(tmp_path, stack)
