"""Runs that are found again, and go on."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from kfp import compiler

from pipelines import run_history
from pipelines.local.execution import run
from pipelines.local.resumption import resume
from tests.pipelines.local.conftest import is_alive, job_states, wait_for
from tests.pipelines.local.small_pipeline import looped
from tests.pipelines.local.test_execution import TASKS, start, states
from tests.pipelines.local.test_interruption import children_of, started
from trainer.errors import InputError


@pytest.fixture
def killed(small_package, tmp_path):
    """The folder of a run that was killed while it trained."""
    process = started(small_package, tmp_path, "--chief=again", "--worker=again")
    try:
        latest = tmp_path / "latest"
        notes = latest / "artifacts" / "plan" / "training"
        wait_for(lambda: (notes / "chief-0.json").exists() and (notes / "worker-0.json").exists())
        assert run_history.find(tmp_path, "latest").state == "RUNNING"
        children = children_of(process.pid)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    # It leaves no process and no temporary file.
    wait_for(lambda: not any(map(is_alive, children)))
    wait_for(lambda: not list((tmp_path / "t").iterdir()))
    return latest.resolve()


def test_a_killed_run_goes_on_from_what_it_had(killed, monkeypatch):
    yaml = killed / "small.yaml"
    text = yaml.read_text()
    yaml.write_text(text.replace("PIPELINE DEFINITION", "PIPELINE  DEFINITION"))
    with pytest.raises(InputError, match=r"small.yaml is not the file that .* was started with"):
        resume(killed)
    assert not list(killed.glob("logs/attempt-*"))
    yaml.write_text(text)
    (killed.parent / "latest").unlink()
    run = run_history.find(killed.parent, killed.name)
    assert (run.state, run.recipe, run.parameters["accuracy"]) == ("KILLED", "small", 0.9)
    monkeypatch.chdir(killed.parent)
    result = resume(Path(killed.name))
    assert (result.state, result.directory) == ("SUCCEEDED", killed)
    assert result.summary["report"] == f"{killed}/report.html"
    assert states(result) == dict(zip(TASKS, ["CACHED"] * 2 + ["SUCCEEDED"] * 4, strict=True))
    assert (killed.parent / "latest").resolve() == killed
    (job,) = job_states(killed)
    assert job["state"] == "SUCCEEDED"
    # Of the attempt before, apart from this one's.
    before = killed / "logs" / "attempt-1" / "custom-training-job" / "job.json"
    assert json.loads(before.read_text())["state"] == "RUNNING"
    run = run_history.find(killed.parent, "latest")
    assert (run.state, run.metrics["accuracy"], run.verdict) == ("SUCCEEDED", 0.9, "accepted")
    assert run.started.isoformat(timespec="milliseconds") == result.summary["started"]
    with pytest.raises(InputError, match="has succeeded; there is nothing to resume"):
        resume(killed)


def test_a_run_that_goes_on_is_not_resumed(small_package, tmp_path, monkeypatch):
    monkeypatch.setattr(run_history, "_LOCK_SECONDS", 0.1)
    result, _ = start(small_package, tmp_path, source="missing")
    with (
        run_history.locked(result.directory),
        pytest.raises(InputError, match="is still running; wait for its end"),
    ):
        resume(result.directory)


def test_a_task_whose_files_are_gone_is_run_again(records_package, tmp_path):
    parameters = {"source": "once"}
    result = run(records_package, recipe="x", parameters=parameters, runs_directory=tmp_path)
    ended = {"create-records": "SUCCEEDED", "create-records-2": "FAILED"}
    assert states(result) == ended
    records = result.directory / "artifacts" / "create-records" / "records"
    shutil.rmtree(records)
    # The second fails again, of course; what came before it was made anew.
    assert states(resume(result.directory)) == ended
    assert (records / "dataset.json").exists()


def test_an_iteration_that_failed_is_run_again_on_resuming(tmp_path):
    package = tmp_path / "looped.yaml"
    compiler.Compiler().compile(looped, str(package))
    parameters = {"sources": ["digits", "broken"]}
    result = run(package, recipe="looped", parameters=parameters, runs_directory=tmp_path)
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
"""Stands for docker: it runs commands without containers, or none while it is broken."""


def test_a_run_in_containers_is_resumed_in_containers(records_package, tmp_path, monkeypatch):
    engine = tmp_path / "bin" / "docker"
    engine.parent.mkdir()
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    broken = engine.parent / "broken"
    broken.touch()
    # No other engine, whichever this machine has.
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "mkdir", "mktemp", "rmdir"):
        (tools / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", f"{engine.parent}:{tools}:{Path(sys.executable).parent}")
    options = {"parameters": {}, "runs_directory": tmp_path / "runs", "in_containers": True}
    failed = run(records_package, recipe="records", **options)
    assert failed.state == "FAILED"
    engine.rename(tmp_path / "gone")
    with pytest.raises(InputError, match="--in-containers needs docker or podman: docker "):
        resume(failed.directory)
    assert run_history.load(failed.directory).state == "FAILED"
    (tmp_path / "gone").rename(engine)
    broken.unlink()
    # The network of an attempt that ended with the machine.
    (engine.parent / failed.directory.name).mkdir()
    resumed = resume(failed.directory)
    assert (resumed.state, resumed.directory) == ("SUCCEEDED", failed.directory)
    assert list(engine.parent.iterdir()) == [engine]
