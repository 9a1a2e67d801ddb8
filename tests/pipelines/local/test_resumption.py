"""Runs that are interrupted, killed or failed leave no process, and continue by `--resume`."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pipelines.runs import run_folders
from pipelines.runs.screens import show_status
from pipelines.runs.this_machine import LocalRuns
from tests.child_processes import ROOT
from tests.pipelines.local.conftest import is_alive, job_states, wait_for
from tests.pipelines.local.package_runs import (
    TASKS,
    compile_to,
    descendants,
    resume,
    run_package,
    started_process,
    states,
    wait_for_replicas,
)
from tests.pipelines.local.small_pipeline import looped
from tests.refusals import refused
from vertex.errors import InputError


def test_killed_run_continues_after_its_last_task(small_package, tmp_path, monkeypatch):
    latest = tmp_path / "latest"
    with started_process(small_package, tmp_path, "--chief=again", "--worker=again") as process:
        wait_for_replicas(tmp_path)
        assert run_folders.load_by_name(tmp_path, "latest").state == "RUNNING"
        children = descendants(process)
        os.kill(process.pid, signal.SIGKILL)
    # It leaves no process and no temporary file.
    wait_for(lambda: not any(map(is_alive, children)))
    wait_for(lambda: not list((tmp_path / "t").iterdir()))
    killed = latest.resolve()

    yaml = killed / "small.yaml"
    text = yaml.read_text()
    yaml.write_text(text.replace("PIPELINE DEFINITION", "PIPELINE  DEFINITION"))
    with pytest.raises(InputError, match=r"small.yaml has changed since the run was started"):
        resume(killed)
    assert not list(killed.glob("logs/attempt-*"))
    yaml.write_text(text)
    latest.unlink()
    wait_for(lambda: run_folders.load_by_name(tmp_path, killed.name).state == "KILLED", 60)
    run = run_folders.load_by_name(tmp_path, killed.name)
    assert (run.recipe, run.parameters["accuracy"]) == ("small", 0.9)
    monkeypatch.chdir(tmp_path)
    result = resume(Path(killed.name))
    assert (result.state, result.directory) == ("SUCCEEDED", killed)
    assert result.summary["report"] == f"{killed}/report.html"
    ended = [*["CACHED"] * 2, *["SUCCEEDED"] * 4]
    assert states(result.summary) == dict(zip(TASKS, ended, strict=True))
    assert latest.resolve() == killed
    (job,) = job_states(killed)
    assert job["job"]["state"] == "JOB_STATE_SUCCEEDED"
    # The logs of the first attempt are kept apart.
    before = killed / "logs" / "attempt-1" / "custom-training-job" / "job.json"
    assert json.loads(before.read_text())["job"]["state"] == "JOB_STATE_RUNNING"
    run = run_folders.load_by_name(tmp_path, "latest")
    assert (run.state, run.metrics["accuracy"], run.verdict) == ("SUCCEEDED", 0.9, "accepted")
    assert run.started.isoformat(timespec="milliseconds") == result.summary["started"]
    assert "has succeeded; there is nothing to resume" in refused(resume, killed)


def test_run_is_not_resumed_beside_processes_that_survived_it(small_package, tmp_path, monkeypatch):
    monkeypatch.setattr(run_folders, "_LOCK_SECONDS", 0.1)
    with started_process(small_package, tmp_path, "--chief=serve", "--worker=serve") as process:
        wait_for_replicas(tmp_path)
        children = psutil.Process(process.pid).children(recursive=True)
        replicas = {
            replica["pid"] for job in job_states(tmp_path / "latest") for replica in job["replicas"]
        }
        try:
            # Both are killed before the run can replace its guardian.
            process.send_signal(signal.SIGSTOP)
            (guardian,) = (child for child in children if "-I" in child.cmdline())
            guardian.kill()
            process.kill()
            others = [child for child in children if child.pid not in replicas]
            assert not psutil.wait_procs(others, 60)[1]
            run = run_folders.load_by_name(tmp_path, "latest")
            message = refused(resume, Path(run.link))
            assert run.state == "RUNNING"
            assert all(is_alive(pid) and str(pid) in message for pid in replicas)
        finally:
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
    wait_for(lambda: run_folders.load_by_name(tmp_path, "latest").state == "KILLED", 60)


def test_task_without_its_files_is_run_again(records_package, tmp_path, monkeypatch):
    # The second task's source is "once-again", which fails.
    result, _ = run_package(records_package, tmp_path, {"source": "once"})
    ended = {"create-records": "SUCCEEDED", "create-records-2": "FAILED"}
    assert states(result.summary) == ended
    monkeypatch.setattr(run_folders, "_LOCK_SECONDS", 0.1)
    here = rf"is still running \(process {os.getpid()}\); wait for its end"
    running = pytest.raises(InputError, match=here)
    with run_folders.locked(result.directory), running:
        resume(result.directory)
    records = result.directory / "artifacts" / "create-records" / "records"
    shutil.rmtree(records)
    assert states(resume(result.directory).summary) == ended
    assert (records / "dataset.json").exists()


def test_failed_iteration_is_run_again(tmp_path):
    package = compile_to(tmp_path, looped)
    result, _ = run_package(package, tmp_path, {"sources": ["digits", "broken"]})
    assert result.state == "FAILED"
    assert resume(result.directory).state == "FAILED"
    records = result.directory.glob("artifacts/for-loop-1-iteration-*/*/records/dataset.json")
    assert len(list(records)) == 1


ENGINE = """#!/bin/sh
here=$(dirname "$0")
for last; do :; done
case "$1 $2" in
  "network create") mkdir "$here/$last" ;;
  "network rm") rmdir "$here/$last" ;;
  "run "*)
    test -e "$here/broken" && exit 125
    while [ "$1" != --entrypoint ]; do shift; done
    command=$2
    shift 3
    exec "$command" "$@" ;;
esac
"""
"""A docker that runs commands without containers, or fails while the file `broken` exists."""


def test_run_in_containers_is_resumed_in_containers(records_package, tmp_path, monkeypatch):
    engine = tmp_path / "bin" / "docker"
    engine.parent.mkdir()
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    broken = engine.parent / "broken"
    broken.touch()
    # Hide the engines of this machine.
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "mkdir", "mktemp", "rmdir"):
        (tools / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", f"{engine.parent}:{tools}:{Path(sys.executable).parent}")
    failed, _ = run_package(records_package, tmp_path / "runs", {}, in_containers=True)
    assert failed.state == "FAILED"
    engine.rename(tmp_path / "gone")
    assert "--in-containers needs docker or podman: docker " in refused(resume, failed.directory)
    assert run_folders.load(failed.directory).state == "FAILED"
    (tmp_path / "gone").rename(engine)
    broken.unlink()
    # The network of an attempt that ended with the machine.
    (engine.parent / failed.directory.name).mkdir()
    resumed = resume(failed.directory)
    assert (resumed.state, resumed.directory) == ("SUCCEEDED", failed.directory)
    assert list(engine.parent.iterdir()) == [engine]


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


def test_run_is_shown_and_cancelled_from_another_terminal(small_package, tmp_path, capsys):
    backend = LocalRuns(tmp_path)
    with started_process(small_package, tmp_path, "--chief=serve", "--worker=serve") as process:
        wait_for_replicas(tmp_path)
        run = wait_for(lambda: (now := backend.fetch("latest")).jobs and now)
        states = {task.name: task.state for task in run.tasks}
        assert (run.state, states["plan"], states["custom-training-job"]) == (
            "RUNNING",
            "SUCCEEDED",
            "RUNNING",
        )
        show_status(run, backend)
        assert "replica   RUNNING        worker-0\n" in capsys.readouterr().out
        backend.cancel("latest")
        output, _ = process.communicate(timeout=120)
    assert output.rstrip().endswith("CANCELLED")
    moved = tmp_path / "moved"
    moved.mkdir()
    (tmp_path / run.name).rename(moved / run.name)
    assert LocalRuns(moved).fetch(run.name).jobs[0].state == "CANCELLED"
    ended = LocalRuns(moved).fetch(run.name)
    assert LocalRuns(moved).read_log(ended, "worker-0", 1) == ["worker 0 is here"]
    assert "has already ended: CANCELLED" in refused(LocalRuns(moved).cancel, run.name)


@pytest.mark.slow
def test_killed_launcher_is_restarted_only_before_its_task(small_package, tmp_path):
    def launcher():
        for pid in descendants(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                if any("engine.launcher" in word for word in psutil.Process(pid).cmdline()):
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
    left = Path(json.loads(note.read_text())["environment"]["TMPDIR"])
    assert left.parent == tmp_path / "t"
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.slow
def test_run_goes_on_when_the_reader_of_its_output_has_left(small_package, tmp_path):
    with started_process(small_package, tmp_path) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=240) == 0
    assert json.loads((tmp_path / "latest" / "summary.json").read_text())["state"] == "SUCCEEDED"


_KILLED_IN_MKDIR = """
import os, signal
from vertex.emulator import processes, server
from vertex.emulator.processes import Guardian

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
    "holder", ["processes.temporary_folder(guardian)", "server.Emulator(guardian=guardian)"]
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
    made = Path(ended.stdout)
    assert made.is_absolute()
    wait_for(lambda: not made.exists())
