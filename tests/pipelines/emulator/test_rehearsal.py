"""The commands of docs/vertex.md run in the emulator as they are written there."""

import json
import os
import pathlib
import re

import PIL.Image
import pytest

from pipelines.project import settings
from pipelines.project.connection import Connection
from pipelines.runs import run_files
from tests.child_processes import ROOT
from tests.pipelines.emulator.conftest import emulated
from tests.pipelines.local.conftest import wait_for
from tests.registry_service import candidate, exported, registry_at

PAGE = (ROOT / "docs" / "vertex.md").read_text()


def commands():
    """Return the page's commands of this project, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    starts = ("python -m pipelines ", "python compile.py")
    return [line for line in lines if line.startswith(starts)]


def put_photos(folder):
    """Put photos of five classes into the bucket, as step 6 of the page copies them."""
    for color in ("red", "yellow", "white", "purple", "orange"):
        place = folder / "emulated/buckets/my-project-training/photos" / color
        place.mkdir(parents=True)
        for number in range(20):
            image = PIL.Image.new("RGB", (60 + number, 48), color)
            image.putpixel((number, 0), (0, number, 0))
            image.save(place / f"{number}.jpg")


@pytest.mark.slow
def test_runs_and_schedules_outlive_the_emulator(tmp_path, on_emulator):
    with emulated(tmp_path) as rehearsal:
        shown = on_emulator(rehearsal, "compile digits --upload")
        assert "/my-project/pipelines/training-digits/sha256:" in shown
        assert "created" in on_emulator(rehearsal, "schedule apply digits")
        assert rehearsal.send("POST", "/clock:forward", {"days": 7}, token="guessed")[0] == 401
        assert rehearsal.runs() == {}
        rehearsal.forward(7)
        ((name, state),) = rehearsal.runs().items()
        assert state in ("PENDING", "RUNNING")
        # A second one is active as long as the first is: it is skipped.
        rehearsal.forward(7)
        assert list(rehearsal.runs()) == [name]
        on_emulator(rehearsal, f"cancel {name}")
        wait_for(lambda: rehearsal.runs()[name] == "CANCELLED")
        on_emulator(rehearsal, "schedule pause digits")
        for deleted in ("nothing to delete", f"/pipelineJobs/{name} "):
            # Ages are those of the emulator's clock.
            assert deleted in on_emulator(rehearsal, "clean --older-than 1d --dry-run")
            rehearsal.forward(1)
        on_emulator(rehearsal, "schedule resume digits")
    with emulated(tmp_path) as rehearsal:
        assert rehearsal.runs() == {name: "CANCELLED"}
        assert "unchanged" in on_emulator(rehearsal, "schedule apply digits")
        rehearsal.forward(7)
        assert len(rehearsal.runs()) == 2


@pytest.mark.slow
def test_bucket_of_a_recipe_or_of_compared_runs_is_a_folder(tmp_path, on_emulator, caplog):
    text = (ROOT / "pipelines" / "recipes" / "flowers.toml").read_text()
    bucket = "images:gs://my-project-training/photos"
    recipe = pathlib.Path("recipes/photos.toml")
    recipe.parent.mkdir()
    recipe.write_text(text.replace("tfds:tf_flowers", bucket))
    put_photos(tmp_path)
    folder = tmp_path / "emulated" / "buckets" / "my-project-training"
    (folder / "history.csv").write_text("epoch,loss")
    with emulated(tmp_path) as rehearsal:
        on_emulator(rehearsal, "run photos --detach --name one")
        log = "emulated/runs/*/logs/fingerprint-source.log"
        given = f'"source": "images:{folder}/photos"'
        wait_for(lambda: [path for path in tmp_path.glob(log) if given in path.read_text()])
        on_emulator(rehearsal, "cancel one")
        client = Connection(settings.load({}, os.environ).require("project")).storage
        content = run_files.read("gs://my-project-training/history.csv", client)
        assert run_files.read("gs://my-project-training/none.csv", client) is None
    assert content == b"epoch,loss"
    assert not caplog.messages


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_every_command_of_the_page_runs(rehearsal):
    put_photos(rehearsal.folder)
    done = []
    for command in commands():
        shown = rehearsal.run(command)
        done.append(command.partition(" #")[0].strip())
        if command.startswith("python -m pipelines run digits  "):
            assert "SUCCEEDED" in shown and "champion" in shown
        if "doctor" in command:
            assert "✗" not in shown
            assert shown.count("✓") >= 12
        if "schedule apply" in command:
            for _ in range(2):
                before = len(rehearsal.runs())
                rehearsal.forward(7)
                wait_for(lambda n=before: len(rehearsal.runs()) == n + 1)
                wait_for(lambda: set(rehearsal.runs().values()) <= {"SUCCEEDED", "CANCELLED"}, 600)
    assert "python -m pipelines doctor digits" in done
    assert any("run flowers --set source=images:gs://" in command for command in done)
    assert "python -m pipelines cancel first" in done
    assert "python -m pipelines schedule pause digits" in done
    registry = registry_at(rehearsal.environment)
    first = registry.find_champion("digits")
    assert first.artifact_uri.startswith("gs://my-project-training/runs/")
    later = candidate("gs://elsewhere/model")
    second = registry.register("digits", later, "champion", first.name)
    assert registry.find_champion("digits") == second
    (rollback,) = re.findall("`(python -m pipelines promote digits --rollback)`", PAGE)
    assert "digits@1 is the champion of digits again" in rehearsal.run(rollback)
    assert registry.find_champion("digits").name == "digits@1"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_scheduled_batch_uses_the_current_champion(rehearsal, untrained_model):
    text = (ROOT / "pipelines" / "recipes" / "digits.toml").read_text().partition("[retraining]")[0]
    batch = 'input = "gs://my-project-training/in/*.jsonl"\nschedule = {cron = "0 3 * * 1"}'
    for path, content in (
        ("recipes/scans.toml", f"{text}[batch]\n{batch}"),
        ("emulated/buckets/my-project-training/in/a.jsonl", json.dumps([[0] * 8] * 8)),
    ):
        (rehearsal.folder / path).parent.mkdir(parents=True)
        (rehearsal.folder / path).write_text(content)
    assert "created" in rehearsal.run("python -m pipelines schedule apply scans-batch")
    registry = registry_at(rehearsal.environment)
    answered = []
    for number in (1, 2):
        compared_with = f"scans@{number - 1}" if number > 1 else ""
        # Another URI is another version.
        model = exported(untrained_model + "/" * number, run=str(number))
        registry.register("scans", model, "champion", compared_with)
        rehearsal.forward(7)
        wait_for(lambda n=number: list(rehearsal.runs().values()) == ["SUCCEEDED"] * n, 600)
        files = rehearsal.folder.glob("emulated/runs/*/artifacts/**/prediction.results-*")
        results = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        answered.append({result["prediction"]["model_version"] for result in results})
    assert answered == [{"scans/1"}, {"scans/1", "scans/2"}]
