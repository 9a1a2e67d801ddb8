import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.pipelines.local.conftest import REPLICA, is_alive, job_states, wait_for

PROGRAM = """
import json, pathlib, sys
from pipelines.local.execution import run
result = run(pathlib.Path(sys.argv[1]), recipe="small", parameters=json.loads(sys.argv[3]),
             runs_directory=pathlib.Path(sys.argv[2]))
print(result.state)
"""


def started(package, folder, *actions):
    """A run in a process of its own, whose replicas do as they are told."""
    (folder / "t").mkdir()
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            PROGRAM,
            str(package),
            str(folder),
            json.dumps({"replica": [str(REPLICA), *actions]}),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=REPLICA.parents[3],
        env={**os.environ, "TMPDIR": str(folder / "t")},
    )


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def children_of(pid):
    """All processes below `pid`."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == pid:
            child = int(path.parent.name)
            found += [child, *children_of(child)]
    return found


@pytest.fixture
def running(small_package, tmp_path):
    """A run in a process of its own, whose chief is deaf to SIGTERM; its folder; its pids."""
    process = started(small_package, tmp_path, "--chief=stubborn", "--worker=serve")
    latest = tmp_path / "latest"
    notes = latest / "artifacts" / "plan" / "training"
    wait_for(lambda: (notes / "chief-0.json").exists() and (notes / "worker-0.json").exists())
    (job,) = job_states(latest)
    yield process, latest, [replica["pid"] for replica in job["replicas"]]
    process.kill()
    process.communicate()


def test_an_interrupted_run_is_cancelled_and_leaves_no_process(running):
    process, latest, (chief, worker) = running
    children = children_of(process.pid)
    assert {chief, worker} < set(children)
    process.send_signal(signal.SIGINT)
    # While it is cancelled, each replica that ends is shown.
    assert any("worker 0 STOPPED" in line for line in process.stdout)
    # Deaf to SIGTERM: it has its 30 s, unless it is told again.
    assert is_alive(chief)
    assert not is_alive(worker)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert "chief 0 STOPPED" in output
    assert output.rstrip().endswith("CANCELLED")
    assert f"run {latest.resolve().name} --local --resume --runs-directory " in output
    assert "Traceback" not in output
    assert not any(map(is_alive, children))
    summary = json.loads((latest / "summary.json").read_text())
    assert summary["state"] == "CANCELLED"
    assert summary["custom_jobs"][0]["state"] == "CANCELLED"
    tasks = {task["name"]: task["state"] for task in summary["tasks"]}
    assert tasks["custom-training-job"] == "CANCELLED"
    assert tasks["collect"] == "NOT_TRIGGERED"


def test_a_killed_launcher_is_started_again_before_its_turn_alone(small_package, tmp_path):
    def launcher():
        found = [pid for pid in children_of(process.pid) if "local.launcher" in command_of(pid)]
        return found[0] if found else 0

    process = started(small_package, tmp_path, "--chief=serve", "--worker=litter")
    latest = tmp_path / "latest"
    note = latest / "artifacts" / "plan" / "training" / "worker-0.json"
    try:
        first = wait_for(launcher)
        os.kill(first, signal.SIGKILL)
        wait_for(note.exists)
        second = launcher()
        assert second not in (0, first)
        os.kill(second, signal.SIGKILL)
        shown, _ = process.communicate(timeout=240)
    finally:
        process.kill()
    summary = json.loads((latest / "summary.json").read_text())
    tasks = {task["name"]: task["state"] for task in summary["tasks"]}
    assert (tasks["custom-training-job"], tasks["collect"]) == ("FAILED", "NOT_TRIGGERED")
    start = "Train: its job was cancelled, since the job's launcher was ended by "
    assert summary["error"].startswith(start + "SIGKILL")
    assert summary["error"].endswith("run it again")
    assert f"error: {summary['error']}\nlog " in shown
    assert summary["custom_jobs"][0]["state"] == "CANCELLED"
    (job,) = job_states(latest)
    assert not any(is_alive(replica["pid"]) for replica in job["replicas"])
    # Every temporary file of the run is gone, those of its replicas, too.
    left = pathlib.Path(json.loads(note.read_text())["environment"]["TMPDIR"])
    assert left.parent == tmp_path / "t"
    assert list((tmp_path / "t").iterdir()) == []


_KILLED_AS_A_FOLDER_IS_MADE = """
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
def test_no_kill_is_early_enough_to_leave_a_temporary_folder(tmp_path, holder):
    # A socket's path would be too long there: the emulator's folder lies elsewhere.
    long = tmp_path / ("long" * 20)
    long.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", _KILLED_AS_A_FOLDER_IS_MADE % holder],
        env={**os.environ, "TMPDIR": str(long)},
        cwd=pathlib.Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ended.returncode == -signal.SIGKILL
    made = pathlib.Path(ended.stdout)
    assert made.is_absolute()
    wait_for(lambda: not made.exists())
