"""`run --local --in-containers`: refusals, mounts, clean-up, and a run in real containers."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from components.planning.worker_pools import IMAGE
from pipelines.local import container_image
from tests.child_processes import ROOT, started
from tests.pipelines.local.conftest import wait_for
from vertex.emulator import containers
from vertex.emulator.processes import Guardian, Process
from vertex.errors import InputError


@pytest.fixture(scope="module")
def engine() -> str:
    try:
        return container_image.find_engine(IMAGE)
    except InputError as error:
        pytest.skip(str(error))


def test_run_without_an_engine_is_refused(refused, elsewhere, monkeypatch):
    monkeypatch.setenv("PATH", "")
    error = refused("run", "digits", "--local", "--in-containers")
    assert "docker is not installed, podman is not installed" in error
    assert not Path("runs").exists()
    assert "add --local" in refused("run", "digits", "--in-containers")


def test_containers_mount_runs_and_sources_and_write_only_runs(tmp_path):
    photos, runs, weights = tmp_path / "photos", tmp_path / "runs", tmp_path / "mine.h5"
    photos.mkdir()
    weights.touch()
    arguments = [f"images:{photos}", f"csv:{tmp_path}/photos/*.csv", "gs://bucket/x", 3, "digits"]
    arguments += ["/gcs/bucket/x", "images:gs://bucket/y", {"weights": str(weights), "units": 8}]
    assert container_image.list_mounts(runs, arguments) == {
        runs: True,
        photos: False,
        weights: False,
    }


def test_image_built_from_other_code_is_noticed(tmp_path, monkeypatch):
    def call(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def changed():
        return container_image.find_outdated_commit("podman", "image", tmp_path)

    code = tmp_path / "trainer" / "task.py"
    code.parent.mkdir()
    code.write_text("1\n")
    (tmp_path / "components").mkdir()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=n@example.com"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "m"]):
        call(*git, *arguments)
    commit = call(*git, "rev-parse", "HEAD")
    engine = tmp_path / "podman"
    engine.write_text(f"#!/bin/sh\necho {commit}\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert changed() == ""
    code.write_text("2\n")
    assert changed() == commit
    engine.write_text("#!/bin/sh\necho '<no value>'\n")
    assert changed() == ""


def test_image_is_identified_by_its_id(tmp_path, monkeypatch):
    engine = tmp_path / "podman"
    command = "image inspect --format {{.Id}} training:latest"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with Guardian() as guardian:
        options = {"run_name": "digits-1", "mounts": {}, "guardian": guardian}
        run = containers.Containers("podman", "training:latest", **options)
        for built in ("sha256:12", "sha256:34"):
            engine.write_text(f'#!/bin/sh\ntest "$*" = "{command}" && echo {built}\n')
            engine.chmod(0o755)
            assert run.image_id("training:latest") == built


_GUARDED = """
import pathlib, sys, time
from vertex.emulator.processes import Guardian, Process
with Guardian() as guardian:
    guardian.run_after_death(["/bin/mkdir", sys.argv[1]])
    for _ in range(int(sys.argv[2])):
        log = pathlib.Path(sys.argv[1] + ".log")
        Process(["/bin/sleep", "600"], environment={}, log=log, guardian=guardian)
    print("ready", flush=True)
    for line in sys.stdin:
        Process(["/bin/sleep", "600"], environment={}, log=log, guardian=guardian)
        print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("children", [0, 1])
def test_command_runs_after_the_death_of_a_killed_run(tmp_path, children):
    made = tmp_path / "made"
    command = [sys.executable, "-c", _GUARDED, str(made), str(children)]
    with started(command, cwd=ROOT) as run:
        assert run.stdout.readline() == "ready\n"
    wait_for(made.is_dir, 60)


def test_killed_guardian_is_replaced(tmp_path):
    made = tmp_path / "made"
    command = [sys.executable, "-c", _GUARDED, str(made), "1"]
    with started(command, cwd=ROOT, stdin=subprocess.PIPE) as run:
        try:
            assert run.stdout.readline() == "ready\n"
            children = psutil.Process(run.pid).children()
            (guardian,) = (child for child in children if "-I" in child.cmdline())
            guardian.kill()
            wait_for(lambda: psutil.Process(run.pid).children() != children, 30)
            wait_for(lambda: len(psutil.Process(run.pid).children()) == 2, 30)
            # The guardian watches the next process, and so those before.
            run.stdin.write("\n")
            run.stdin.flush()
            assert run.stdout.readline() == "ready\n"
            children += psutil.Process(run.pid).children()
            run.kill()
            assert not psutil.wait_procs(children, 60)[1]
            wait_for(made.is_dir, 60)
        finally:
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()


def test_command_after_death_does_not_run_after_a_normal_end(tmp_path):
    with Guardian() as guardian:
        guardian.run_after_death(["/bin/mkdir", str(tmp_path / "made")])
        child = Process(["/bin/true"], environment={}, log=tmp_path / "log", guardian=guardian)
        assert child.finished.wait(60)
    assert not (tmp_path / "made").exists()


def left(engine: str, *listing: str) -> str:
    """Return the IDs of the containers or networks of runs."""
    command = [engine, *listing, "--quiet", "--filter", f"label={containers.LABEL}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def assert_nothing_left(engine: str) -> None:
    assert not left(engine, "ps")
    assert not left(engine, "network", "ls")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_digits_trains_in_two_containers_without_root(command, engine, tmp_path):
    flags = ["--in-containers", f"--runs-directory={tmp_path / 'runs'}", "--set=epochs=3"]
    code, *shown = command("run", "digits", "--local", *flags, "--set=min_accuracy=0")
    logs = [path.read_text() for path in tmp_path.rglob("*.log")]
    assert code == 0, "\n".join([*shown, *logs])[-5000:]
    assert len(list((tmp_path / "runs" / "latest" / "logs").rglob("worker-0.log"))) == 1
    model = next(tmp_path.rglob("saved_model.pb"))
    assert model.stat().st_uid == 1000
    assert_nothing_left(engine)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_failed_and_killed_containers_end_with_an_exit_code(engine, tmp_path):
    with Guardian() as guardian:
        arguments = {"run_name": f"test-{os.getpid()}", "mounts": {}, "guardian": guardian}
        with containers.Containers(engine, IMAGE, **arguments) as opened:
            child = opened.start("fails", ["sh", "-c", "id -u; exit 7"], {}, tmp_path / "log")
            assert child.finished.wait(300)
            assert child.returncode == 7
            assert "1000" in (tmp_path / "log").read_text().split()
            hangs = opened.start("workerpool0-0", ["sleep", "600"], {}, tmp_path / "log2", IMAGE)
            while not left(engine, "ps"):
                assert not hangs.finished.wait(0.2), (tmp_path / "log2").read_text()
            hangs.kill()
            assert hangs.finished.wait(300)
            assert hangs.returncode
    assert_nothing_left(engine)
