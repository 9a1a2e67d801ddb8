"""`run --local --resume`: killed and failed runs continue in their folder."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from pipelines import run_history
from pipelines.local.execution import resume
from tests.pipelines.local.conftest import is_alive, job_states, wait_for
from tests.pipelines.local.package_runs import (
    TASKS,
    compile_to,
    descendants,
    run_package,
    started_process,
    states,
    wait_for_replicas,
)
from tests.pipelines.local.small_pipeline import looped
from tests.refusals import refused
from trainer.errors import InputError


def test_killed_run_continues_after_its_last_task(small_package, tmp_path, monkeypatch):
    latest = tmp_path / "latest"
    with started_process(small_package, tmp_path, "--chief=again", "--worker=again") as process:
        wait_for_replicas(tmp_path)
        assert run_history.load_by_name(tmp_path, "latest").state == "RUNNING"
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
    run = run_history.load_by_name(tmp_path, killed.name)
    assert (run.state, run.recipe, run.parameters["accuracy"]) == ("KILLED", "small", 0.9)
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
    run = run_history.load_by_name(tmp_path, "latest")
    assert (run.state, run.metrics["accuracy"], run.verdict) == ("SUCCEEDED", 0.9, "accepted")
    assert run.started.isoformat(timespec="milliseconds") == result.summary["started"]
    assert "has succeeded; there is nothing to resume" in refused(resume, killed)


def test_task_without_its_files_is_run_again(records_package, tmp_path, monkeypatch):
    # The second task's source is "once-again", which fails.
    result, _ = run_package(records_package, tmp_path, {"source": "once"})
    ended = {"create-records": "SUCCEEDED", "create-records-2": "FAILED"}
    assert states(result.summary) == ended
    monkeypatch.setattr(run_history, "_LOCK_SECONDS", 0.1)
    running = pytest.raises(InputError, match="is still running; wait for its end")
    with run_history.locked(result.directory), running:
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
    assert run_history.load(failed.directory).state == "FAILED"
    (tmp_path / "gone").rename(engine)
    broken.unlink()
    # The network of an attempt that ended with the machine.
    (engine.parent / failed.directory.name).mkdir()
    resumed = resume(failed.directory)
    assert (resumed.state, resumed.directory) == ("SUCCEEDED", failed.directory)
    assert list(engine.parent.iterdir()) == [engine]
