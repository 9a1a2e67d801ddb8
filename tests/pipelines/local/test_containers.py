"""run --local --in-containers: its refusals, what containers see, and a whole run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.emulator import containers
from pipelines.emulator.processes import Guardian, Process
from trainer.errors import InputError
from trainer.machines.worker_pools import IMAGE

COMMAND = [sys.executable, "-m", "pipelines", "run", "digits"]


def run_digits(folder: Path, *flags: str) -> subprocess.CompletedProcess:
    root = Path(__file__).parents[3]
    return subprocess.run(
        [*COMMAND, "--local", "--in-containers", "--runs-directory", str(folder / "runs"), *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=900,
    )


@pytest.fixture(scope="module")
def engine() -> str:
    try:
        return containers.engine_with(IMAGE)
    except InputError as error:
        pytest.skip(str(error))


def test_without_an_engine_nothing_is_started(refused, elsewhere, monkeypatch):
    monkeypatch.setenv("PATH", "")
    error = refused("run", "digits", "--local", "--in-containers")
    assert "docker is not installed, podman is not installed" in error
    assert not Path("runs").exists()
    assert "add --local" in refused("run", "digits", "--in-containers")


def test_containers_see_the_runs_and_the_sources_and_may_write_only_the_runs(tmp_path):
    photos, runs, weights = tmp_path / "photos", tmp_path / "runs", tmp_path / "mine.h5"
    photos.mkdir()
    weights.touch()
    arguments = [f"images:{photos}", f"csv:{tmp_path}/photos/*.csv", "gs://bucket/x", 3, "digits"]
    arguments += ["/gcs/bucket/x", "images:gs://bucket/y", {"weights": str(weights), "units": 8}]
    assert containers.mounts(runs, arguments) == {runs: True, photos: False, weights: False}


def test_an_image_of_other_code_is_told_from_one_of_this(tmp_path, monkeypatch):
    code = tmp_path / "trainer" / "task.py"
    code.parent.mkdir()
    code.write_text("1\n")
    (tmp_path / "components").mkdir()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=n@example.com"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "m"]):
        subprocess.run([*git, *arguments], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    commit = head.stdout.strip()
    engine = tmp_path / "podman"
    engine.write_text(f"#!/bin/sh\necho {commit}\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert containers.changed_since_built("podman", "image", tmp_path) == ""
    code.write_text("2\n")
    assert containers.changed_since_built("podman", "image", tmp_path) == commit
    engine.write_text("#!/bin/sh\necho '<no value>'\n")
    assert containers.changed_since_built("podman", "image", tmp_path) == ""


@pytest.mark.parametrize("children", [0, 1])
def test_what_a_killed_run_has_left_is_removed_after_its_death(tmp_path, children):
    script = (
        "import sys, time, pathlib\n"
        "from pipelines.emulator.processes import Guardian, Process\n"
        "with Guardian() as guardian:\n"
        f"    guardian.after_death(['/bin/mkdir', {str(tmp_path / 'removed')!r}])\n"
        f"    for _ in range({children}):\n"
        "        Process(['/bin/sleep', '600'], environment={}, log=pathlib.Path(sys.argv[1]),"
        " guardian=guardian)\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(600)\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGKILL)
    run.communicate()
    watcher = subprocess.run(
        ["sh", "-c", f"until test -d {tmp_path}/removed; do sleep 0.05; done"], timeout=60
    )
    assert watcher.returncode == 0


def test_nothing_is_removed_after_a_run_that_has_ended_by_itself(tmp_path):
    with Guardian() as guardian:
        guardian.after_death(["/bin/mkdir", str(tmp_path / "removed")])
        child = Process(["/bin/true"], environment={}, log=tmp_path / "log", guardian=guardian)
        assert child.finished.wait(60)
    assert not (tmp_path / "removed").exists()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_digits_trains_on_two_containers_that_are_not_root(engine, tmp_path):
    result = run_digits(tmp_path, "--set", "epochs=3", "--set", "min_accuracy=0")
    logs = [path.read_text() for path in (tmp_path / "runs").rglob("*.log")]
    assert result.returncode == 0, "\n".join([result.stdout, result.stderr, *logs])[-5000:]
    assert len(list((tmp_path / "runs" / "latest" / "logs").rglob("worker-0.log"))) == 1
    model = next((tmp_path / "runs").rglob("saved_model.pb"))
    assert model.stat().st_uid == 1000
    assert_nothing_left(engine)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_container_that_fails_fails_its_task(engine, tmp_path):
    with Guardian() as guardian:
        arguments = {"run_name": f"test-{os.getpid()}", "mounts": {}, "guardian": guardian}
        with containers.Containers(engine, IMAGE, **arguments) as opened:
            child = opened.start("fails", ["sh", "-c", "id -u; exit 7"], {}, tmp_path / "log")
            assert child.finished.wait(300)
            assert child.returncode == 7
            assert "1000" in (tmp_path / "log").read_text().split()
            hangs = opened.start("workerpool0-0", ["sleep", "600"], {}, tmp_path / "log2", IMAGE)
            while not running(engine):
                assert not hangs.finished.wait(0.2), (tmp_path / "log2").read_text()
            hangs.kill()
            assert hangs.finished.wait(300)
            assert hangs.returncode
    assert_nothing_left(engine)


def running(engine: str) -> str:
    command = [engine, "ps", "--quiet", "--filter", f"label={containers.LABEL}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def assert_nothing_left(engine: str) -> None:
    assert not running(engine)
    command = [engine, "network", "ls", "--quiet", "--filter", f"label={containers.LABEL}"]
    assert not subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
