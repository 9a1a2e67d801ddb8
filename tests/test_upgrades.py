"""Test that files of today's formats keep working, and that those of others are named in a line.

Each archive in tests/upgrades/ holds what one version left in a working folder: recipes and their
sources; runs/ with a finished run of a table and of images, a run that was killed while it
trained, the Model Registry and predictions of its champions; a store of records; the emulator's
schedule. Before a change to any of these formats, add an archive of today's version:

    python -m tests.test_upgrades NAME    # writes tests/upgrades/NAME.tar.xz, about 80 kB

Archives are never changed or replaced.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines import api
from tests.child_processes import ROOT, started
from tests.pipelines.emulator.conftest import emulated
from tests.trainer.data.picture_folders import all_records
from trainer import fields
from trainer.data.schema import load_dataset
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.writer import create_tfrecords

ARCHIVES = Path(__file__).with_name("upgrades")
OTHER_FORMATS = (
    ("2026-10", "runs table table", "run.json can't be read (its format is 0, not 1: another"),
    (
        "2026-10",
        "run killed --local --resume",
        "version of this project wrote it); restore",
    ),
    ("2026-11", "status table", "has no pipeline_job.json: another version of this project wrote"),
    ("2026-11", "run killed --local --resume", "contains checkpoints of another version of this"),
)
"""An archive, a command, and a part of the line that refuses it."""
FOLDER = Path("/tmp/vertex-training-upgrades")
"""The working folder of every version: files of runs contain absolute paths, and checksums."""
RECIPES = {
    "colors": """
source = "csv:colors.csv"
label = {column = "warm"}
columns = [{name = "red", type = "numeric"}, {name = "name", type = "vocabulary", size = 3}]
model = "wide_and_deep"
model_options = {hidden_units = [2]}
""",
    "icons": """
source = "images:icons"
image_size = 8
records_store = "/tmp/vertex-training-upgrades/store"
model = "small_cnn"
model_options = {filters = [2], units = 2}
""",
}
OPTIONS = """
epochs = 40
batch_size = 16
strategy = "one_device"
worker_count = 0
first_champion = "any"
"""
ASKED = {"colors": "rows.csv", "icons": "icons/red/1.png"}
"""The file that each champion predicts."""
LEFT_OUT = (
    ".cache", ".lock", "build", "errors", "events.out.*", "executor_output.json", "icons.yaml",
    "images/artifacts/plan-training/training/model.keras", "*.log", "report.html",
    *(f"{run}/artifacts/plan-training/training/checkpoints" for run in ("images", "table")),
)  # fmt: skip
"""Patterns of files and folders that no test needs."""


@contextlib.contextmanager
def alone():
    """Wait for other processes that use FOLDER, and start with none."""
    with FOLDER.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(FOLDER, ignore_errors=True)
        try:
            yield
        finally:
            shutil.rmtree(FOLDER, ignore_errors=True)


@pytest.fixture
def kept(request, elsewhere, monkeypatch):
    """Unpack what a version left, by default that of today's formats; work in that folder."""
    name = getattr(request, "param", "2026-11-29")
    with alone():
        with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
            # Python before 3.11.4 has no filters; the archives are this project's own.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(FOLDER)
        monkeypatch.chdir(FOLDER)
        yield


def probabilities(lines):
    return [json.loads(line)["probabilities"] for line in lines.splitlines()]


def test_finished_runs_are_listed_shown_and_compared(kept, succeed):
    listed = succeed("runs")
    for line in ("table  SUCCEEDED", "images  SUCCEEDED", "killed  KILLED"):
        assert " ".join(line.split()) in " ".join(listed.split())
    assert "not listed" not in listed
    shown = succeed("status table")
    assert "verdict   accepted: " in shown and "registry  colors@1, champion\n" in shown
    assert "replica   SUCCEEDED      chief-0" in shown
    assert "equal on the same" in succeed("runs table table")
    assert api.load_model(api.results("table")).count_params() > 0


def test_champions_answer_as_before(kept, succeed):
    for recipe, file in ASKED.items():
        assert "champion" in succeed(f"promote {recipe} --local")
        answers = succeed(f"predict --json {recipe} {file}")
        before = Path(f"{recipe}.jsonl").read_text()
        np.testing.assert_allclose(probabilities(answers), probabilities(before), atol=1e-5)


def test_killed_run_is_resumed(kept, command):
    assert (
        "resume    python -m pipelines run killed --local --resume" in command("status killed")[1]
    )
    code, shown, errors = command("run killed --local --resume")
    assert code == 0, errors
    assert "colors@2" in shown or "rejected" in shown


@pytest.mark.parametrize(("kept", "line", "message"), OTHER_FORMATS, indirect=["kept"])
def test_other_format_is_named_with_the_remedy(kept, command, line, message):
    code, shown, errors = command(line)
    assert code in (1, 2)
    (error,) = [one for one in (shown + errors).splitlines() if one.startswith("error: ")]
    assert message in error and "remove" in error


def test_records_are_read_and_reused_from_their_store(kept, tmp_path):
    run = api.results("images")
    records = load_dataset(f"{run.link}/artifacts/create-tfrecords/records")
    options = fields.build(RecordOptions, fields.pick(RecordOptions, run.parameters))
    lines = []
    again = create_tfrecords(options, str(tmp_path / "records"), progress=lines.append)
    assert all_records(again) == all_records(records)
    assert any("shards reused" in line for line in lines)


def test_schedule_is_listed_and_updated(kept, command, monkeypatch):
    with emulated(FOLDER) as rehearsal:
        for name, value in rehearsal.variables.items():
            monkeypatch.setenv(name, value)
        assert "digits" in command("schedule list")[1]
        code, shown, errors = command("schedule apply digits")
        assert (code, errors) == (0, ""), shown
        assert "created" not in shown


def run(*arguments):
    """Run a command line in FOLDER; return its output."""
    command = [sys.executable, "-m", "pipelines", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=FOLDER, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def make(archive: Path) -> None:
    """Write the archive of this version."""
    write_sources()
    run("run", "colors", "--local", "--name=table", "--set=epochs=2")
    run("run", "icons", "--local", "--name=images", "--set=epochs=2")
    leave_killed_run()
    for recipe, file in ASKED.items():
        (FOLDER / f"{recipe}.jsonl").write_text(run("predict", "--json", recipe, file))
    with emulated(FOLDER) as rehearsal:
        rehearsal.run("python -m pipelines schedule apply digits")
    with tarfile.open(archive, "w:xz", preset=9) as file:
        for path in sorted(FOLDER.rglob("*")):
            name = path.relative_to(FOLDER)
            parts = (name, *name.parents)
            if not any(part.match(pattern) for part in parts for pattern in LEFT_OUT):
                file.add(path, name, recursive=False)


def write_sources():
    generator = np.random.default_rng(0)
    (FOLDER / "recipes").mkdir(parents=True)
    for name, text in RECIPES.items():
        (FOLDER / "recipes" / f"{name}.toml").write_text(text + OPTIONS)
    rows = [
        f"{red},{['brick', 'moss', 'sky'][red % 3]},{'yes' if red > 127 else 'no'}"
        for red in generator.integers(256, size=120)
    ]
    (FOLDER / "colors.csv").write_text("\n".join(["red,name,warm", *rows]))
    (FOLDER / "rows.csv").write_text("red,name\n12,sky\n,moss\n250,other\n")
    for index, color in enumerate(("red", "green")):
        (FOLDER / "icons" / color).mkdir(parents=True)
        for number in range(40):
            pixels = np.full((8, 8, 3), number, np.uint8)
            pixels[..., index] += 128
            Image.fromarray(pixels).save(FOLDER / "icons" / color / f"{number}.png")


def leave_killed_run():
    command = [sys.executable, "-m", "pipelines", "run", "colors", "--local", "--name=killed"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    checkpoints = FOLDER / "runs" / "killed" / "artifacts/plan-training/training/checkpoints"
    with started(command, cwd=FOLDER, env=environment) as process:
        while not (checkpoints / "ckpt-2000000000.index").exists():
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    run("status", "killed")


if __name__ == "__main__":
    with alone():
        make(ARCHIVES / f"{sys.argv[1]}.tar.xz")
