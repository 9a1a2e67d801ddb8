"""Runs that are interrupted, and processes that are killed: nothing of them is left."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import psutil
import pytest

from tests.child_processes import ROOT
from tests.pipelines.local.conftest import is_alive, job_states, wait_for
from tests.pipelines.local.package_runs import (
    descendants,
    started_process,
    states,
    wait_for_replicas,
)


def test_interrupted_run_is_cancelled_and_leaves_no_process(small_package, tmp_path):
    latest = tmp_path / "latest"
    with started_process(small_package, tmp_path, "--chief=stubborn", "--worker=serve") as process:
        wait_for_replicas(tmp_path)
        (job,) = job_states(latest)
        chief, worker = (replica["pid"] for replica in job["replicas"])
        children = descendants(process)
        assert {chief, worker} < set(children)
        process.send_signal(signal.SIGINT)
        # While the run is cancelled, each replica that ends is shown.
        assert any("worker 0 STOPPED" in line for line in process.stdout)
        # The chief ignores SIGTERM: it has 30 s, unless a second signal comes.
        assert is_alive(chief)
        assert not is_alive(worker)
        # More signals do not interrupt the cancelling.
        while is_alive(chief):
            process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
    assert "chief 0 STOPPED" in output
    assert output.rstrip().endswith("CANCELLED")
    assert f"run {latest.resolve().name} --local --resume --runs-directory " in output
    assert "Traceback" not in output
    assert not any(map(is_alive, children))
    summary = json.loads((latest / "summary.json").read_text())
    assert (summary["state"], summary["custom_jobs"][0]["state"]) == ("CANCELLED", "CANCELLED")
    tasks = states(summary)
    assert (tasks["custom-training-job"], tasks["collect"]) == ("CANCELLED", "NOT_TRIGGERED")


def test_killed_launcher_is_restarted_only_before_its_task(small_package, tmp_path):
    def launcher():
        for pid in descendants(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                if any("local.launcher" in word for word in psutil.Process(pid).cmdline()):
                    return pid
        return 0

    latest = tmp_path / "latest"
    note = latest / "artifacts" / "plan" / "training" / "worker-0.json"
    with started_process(small_package, tmp_path, "--chief=serve", "--worker=litter") as process:
        first = wait_for(launcher)
        os.kill(first, signal.SIGKILL)
        wait_for(note.exists)
        second = launcher()
        assert second not in (0, first)
        os.kill(second, signal.SIGKILL)
        shown, _ = process.communicate(timeout=240)
    summary = json.loads((latest / "summary.json").read_text())
    tasks = states(summary)
    assert (tasks["custom-training-job"], tasks["collect"]) == ("FAILED", "NOT_TRIGGERED")
    start = "Train: its job was cancelled, since the job's launcher was ended by SIGKILL"
    assert summary["error"].startswith(start)
    assert summary["error"].endswith("run it again")
    assert f"error: {summary['error']}\nlog " in shown
    assert summary["custom_jobs"][0]["state"] == "CANCELLED"
    (job,) = job_states(latest)
    assert not any(is_alive(replica["pid"]) for replica in job["replicas"])
    # All temporary files of the run and its replicas are removed.
    left = pathlib.Path(json.loads(note.read_text())["environment"]["TMPDIR"])
    assert left.parent == tmp_path / "t"
    assert list((tmp_path / "t").iterdir()) == []


_KILLED_IN_MKDIR = """
import os, signal
from pipelines.emulator import server
from pipelines.emulator.processes import Guardian
from pipelines.local import folders

make = os.mkdir

def make_and_end(path, mode=0o777):
    make(path, mode)
    print(path, end="", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

with Guardian() as guardian:
    os.mkdir = make_and_end
    with %s:
        pass
"""


@pytest.mark.parametrize(
    "holder", ["folders.temporary(guardian)", "server.Emulator(guardian=guardian)"]
)
def test_process_killed_in_mkdir_leaves_no_folder(tmp_path, holder):
    # A socket's path would be too long there: the emulator's folder lies elsewhere.
    long = tmp_path / ("long" * 20)
    long.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", _KILLED_IN_MKDIR % holder],
        env={**os.environ, "TMPDIR": str(long)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ended.returncode == -signal.SIGKILL
    made = pathlib.Path(ended.stdout)
    assert made.is_absolute()
    wait_for(lambda: not made.exists())
