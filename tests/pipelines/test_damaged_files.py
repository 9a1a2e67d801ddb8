"""A damaged file of a champion, the registry or a run is named in one line, and never believed."""

import dataclasses
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines import api
from pipelines.local import run_summary
from pipelines.runs import run_folders
from pipelines.runs.run import TaskDetail
from tests.pipelines.test_runs_command import KEYS, leave
from tests.refusals import refused
from tests.registry_service import ModelService, candidate, exported, registry_at
from trainer.data.schema import EXTRA_ASSETS
from trainer.exported import model_files
from trainer.exported.results import HISTORY
from trainer.serving.predictor import Predictor
from vertex import checked_json
from vertex.emulator import files, job_state
from vertex.emulator.engine.output_cache import Journal
from vertex.emulator.engine.task_inputs import Artifact
from vertex.emulator.job_state import JobFile, ReplicaState
from vertex.emulator.model_service import FOLDER_NAME
from vertex.registry.model_upload import MADE_BY

pytestmark = pytest.mark.usefixtures("elsewhere")
FLIPS = pytest.mark.parametrize("flips", [8, pytest.param(100, marks=pytest.mark.slow)])
"""Number of single bits that are flipped, each in an intact file, besides cutting it."""


@pytest.fixture
def model(tmp_path, untrained_model):
    """The champion of digits, registered with the digests of its files."""
    folder = shutil.copytree(untrained_model, tmp_path / "model")
    with ModelService(tmp_path / "runs" / FOLDER_NAME, project_number="") as server:
        registry = registry_at(server.environment, "local", "local")
        registry.register("digits", exported(str(folder)), "champion", "")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save("scan.png")
    return folder


def damages(file: Path, flips: int) -> Iterator[None]:
    """Yield while a file has each of some damages; restore it in the end."""
    whole, generator = file.read_bytes(), random.Random(str(file.name))
    for length in (0, len(whole) // 2, len(whole) - 2):
        file.write_bytes(whole[:length])
        yield
    for _ in range(flips):
        damaged = bytearray(whole)
        damaged[generator.randrange(len(whole))] ^= 1 << generator.randrange(8)
        file.write_bytes(damaged)
        yield
    file.write_bytes(whole)


def error_of(result) -> str:
    """Return the only line on stderr of a command that was refused."""
    code, _, errors = result
    assert code in (1, 2)
    (line,) = errors.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    "name",
    ["saved_model.pb", "variables/variables.data-00000-of-00001", "assets.extra/dataset.json",
     model_files.LIST],
)  # fmt: skip
@FLIPS
def test_damaged_file_of_a_champion_is_named(command, model, name, flips):
    file = model / name
    for _ in damages(file, flips):
        line = error_of(command("predict digits scan.png"))
        assert "digits@1" in line
        assert str(file) in line


def test_missing_file_and_another_model_are_named(command, model, trained):
    (model / "fingerprint.pb").rename(model / "moved.pb")
    assert "fingerprint.pb is missing" in error_of(command("predict digits scan.png"))
    shutil.rmtree(model)
    shutil.copytree(trained / "model", model)
    assert "the folder holds another model" in error_of(command("serve digits"))


def test_champion_without_digests_is_named(command, tmp_path, untrained_model):
    with ModelService(tmp_path / "runs" / FOLDER_NAME, project_number="") as server:
        registry = registry_at(server.environment, "local", "local")
        registry.register("digits", candidate(untrained_model, labels=MADE_BY), "champion", "")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save("scan.png")
    line = error_of(command("predict digits scan.png"))
    assert "digits@1: it has no label 'files'" in line and "promote another version" in line


@FLIPS
def test_damaged_registry_is_named_or_harmless(command, model, flips):
    file = Path("runs", FOLDER_NAME, "models", "digits.json")
    before = command("promote digits --local")[1]
    assert "champion" in before
    for _ in damages(file, 4 * flips):
        result = command("promote digits --local")
        assert result[1] == before or str(file) in error_of(result)


def test_another_model_of_the_registry_is_named(command, model):
    file = Path("runs", FOLDER_NAME, "models", "digits.json")
    other = shutil.copy(file, file.with_name("mnist.json"))
    line = error_of(command("promote mnist --local"))
    assert f"{other} can't be read (it describes projects/local/locations/local/models/digits)" in (
        line
    )


def test_server_refuses_another_model_than_the_registered(model, monkeypatch):
    monkeypatch.setenv("MODEL_DIGEST", model_files.identify(str(model)))
    Predictor().load(str(model))
    monkeypatch.setenv("MODEL_DIGEST", "0" * 32)
    assert "another model than the registered one" in refused(Predictor().load, str(model))


@pytest.fixture
def runs(elsewhere):
    """Two runs, with the checksums that tasks leave."""
    for number in (1, 2):
        leave(f"digits-{number}", number, wrong=KEYS[: 5 * number])
        directory = Path("runs", f"digits-{number}")
        predictions = Artifact(name="predictions", uri=str(directory / "predictions.csv"))
        Journal(directory).put("evaluate-model", {"predictions": predictions})
        model = directory / "artifacts" / "plan-training" / "training" / "model"
        (model / EXTRA_ASSETS).mkdir(parents=True)
        model_files.write_digests(str(model), HISTORY)
    job = Path("runs/digits-1/logs/custom-training-job")
    job.mkdir(parents=True)
    replica = ReplicaState(role="chief", index=0, log=job / "chief-0.log", state="SUCCEEDED")
    job_state.write(job, JobFile(job={}, retries=0, replicas=[replica]))
    trial = {"id": "1", "state": "SUCCEEDED", "parameters": [{"parameterId": "rate", "value": 1}]}
    measured = {"finalMeasurement": {"metrics": [{"metricId": "validation_loss", "value": 0.5}]}}
    search = Path("runs/digits-1/logs/search")
    search.mkdir()
    content = {"name": "1", "trials": [{**trial, **measured}, {**trial, "id": "2"}]}
    files.write_checked(search / job_state.TUNING_FILE_NAME, content)


@pytest.fixture
def jobs(runs):
    """Two runs, each with its PipelineJob and its training job."""
    for number in (1, 2):
        directory = Path("runs", f"digits-{number}")
        resource = f"projects/local/locations/local/customJobs/{number}"
        task = {
            "taskId": "1",
            "taskName": "custom-training-job",
            "state": "SUCCEEDED",
            "execution": {"metadata": {"output:gcp_resources": resource}},
        }
        content = {
            "name": f"projects/local/locations/local/pipelineJobs/{directory.name}",
            "createTime": run_folders.read_record(directory).started,
            "state": "PIPELINE_STATE_SUCCEEDED",
            "jobDetail": {"taskDetails": [task]},
        }
        text = json.dumps(checked_json.with_checksum(content))
        (directory / "pipeline_job.json").write_text(text)
        folder = directory / "logs" / "custom-training-job"
        folder.mkdir(parents=True, exist_ok=True)
        job_state.write(folder, JobFile(job={"name": resource}, retries=0, replicas=[]))


@pytest.mark.parametrize("line", ["status digits-1", "runs digits-1 digits-2", "logs digits-1"])
@pytest.mark.parametrize(
    "name", ["run.json", "pipeline_job.json", "logs/custom-training-job/job.json"]
)
def test_file_of_another_run_is_named(command, jobs, name, line):
    if name.startswith("logs/") and line.startswith("runs"):
        return  # Comparing runs reads no training job.
    code, _, errors = command(line)
    assert code == 0, errors
    shutil.copy(Path("runs/digits-2", name), Path("runs/digits-1", name))
    assert name in error_of(command(line))


READERS = pytest.mark.parametrize(
    ("name", "line"),
    [
        ("run.json", "status digits-1"),
        ("pipeline_job.json", "status digits-1"),
        ("logs/custom-training-job/job.json", "status digits-1"),
        ("logs/search/tuning_job.json", "status digits-1"),
        ("logs/search/tuning_job.json", "runs digits-1/1 digits-1/2"),
        ("logs/search/tuning_job.json", "runs"),
        ("run.json", "runs digits-1 digits-2"),
        ("pipeline_job.json", "runs digits-1 digits-2"),
        ("predictions.csv", "runs digits-1 digits-2"),
        (".completed/evaluate-model.json", "runs digits-1 digits-2"),
        ("artifacts/plan-training/training/history.csv", "runs digits-1 digits-2"),
        ("run.json", "runs"),
        ("pipeline_job.json", "runs"),
    ],
)
"""A file of a run, and a command that reads it."""


@READERS
@FLIPS
def test_damaged_file_of_a_run_is_named_or_harmless(command, runs, name, line, flips):
    file, before = Path("runs/digits-1", name), command(line)
    assert before[0] == 0
    named = 0
    for _ in damages(file, flips):
        result = command(line)
        if result != before:
            shown = result[1] if line == "runs" else error_of(result)
            assert sum(str(file) in shown_line for shown_line in shown.splitlines()) == 1
            named += 1
    assert named >= flips // 2


@READERS
@pytest.mark.timeout(60)
def test_named_pipe_in_place_of_a_file_of_a_run_is_named(command, runs, name, line):
    file = Path("runs/digits-1", name)
    file.unlink()
    os.mkfifo(file)
    result = command(line)
    shown = result[1] if result[0] == 0 else error_of(result)
    assert f"{file} can't be read (not a regular file)" in shown


@pytest.mark.parametrize("line", ["status digits-1", "runs"])
@pytest.mark.parametrize("value", [[0.1], {"low": 0.1}, None])
def test_value_of_a_trial_of_another_form_is_named(command, runs, value, line):
    file = Path("runs/digits-1/logs/search", job_state.TUNING_FILE_NAME)
    content = json.loads(file.read_bytes())
    del content["sha256"]
    content["trials"][0]["parameters"][0]["value"] = value
    files.write_checked(file, content)
    result = command(line)
    assert f"{file} can't be read (values.rate." in (result[1] or error_of(result))


@pytest.mark.parametrize("line", ["status digits-1", "runs"])
def test_missing_trials_of_a_search_are_named(command, runs, line):
    file = Path("runs/digits-1/logs/search", job_state.TUNING_FILE_NAME)
    (file.parent / "trial-1").mkdir()
    assert f"{file} can't be read" not in command(line)[1]
    file.unlink()
    result = command(line)
    shown = result[1] if line == "runs" else error_of(result)
    assert f"{file} can't be read (No such file or directory)" in shown


def test_run_without_its_record_is_named(command, jobs):
    Path("runs/digits-1/run.json").unlink()
    code, shown, _ = command("runs")
    assert code == 0
    assert "not listed: runs/digits-1 is not the folder of a run: it has no run.json" in shown
    assert "digits-2  SUCCEEDED" in shown


def test_missing_predictions_with_a_checksum_are_named(command, runs):
    file = Path("runs/digits-1/predictions.csv")
    file.unlink()
    assert f"{file} is missing since its run wrote it" in error_of(
        command("runs digits-1 digits-2")
    )


def test_training_folder_of_another_run_is_named(command, runs):
    folders = [Path(f"runs/digits-{number}/artifacts/plan-training/training") for number in (1, 2)]
    for number, folder in enumerate(folders, 1):
        model = folder.resolve() / "model"
        (model / f"model-{number}").touch()
        model_files.write_digests(str(model), HISTORY)
        outputs = {"model": Artifact(name="model", uri=str(model))}
        Journal(Path(f"runs/digits-{number}").resolve()).put("collect-training", outputs)
    assert command("runs digits-1 digits-2")[0] == 0
    folders[0].rename("aside")
    folders[1].rename(folders[0])
    Path("aside").rename(folders[1])
    line = error_of(command("runs digits-1 digits-2"))
    assert f"{folders[0] / 'model' / model_files.LIST} is damaged" in line
    assert f"{model_files.LIST} is damaged" in refused(api.load_model, api.results("digits-2"))


@pytest.mark.parametrize(
    "content", ["key,label\n1,2\n", "key,label,prediction,log_loss\n1,2", "\udc97"]
)
def test_damaged_predictions_without_a_checksum_are_named(command, runs, content):
    shutil.rmtree("runs/digits-1/.completed")
    file = Path("runs/digits-1/predictions.csv")
    file.write_bytes(content.encode(errors="surrogateescape"))
    assert f"{file} is damaged (" in error_of(command("runs digits-1 digits-2"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"splits": 5}', '{"splits": {}, "rejected": 1}'])
def test_run_with_a_damaged_dataset_has_a_summary(runs, text):
    run = run_folders.load_by_name(Path("runs"), "digits-2")
    Path("records").mkdir()
    Path("records/dataset.json").write_text(text)
    records = {"records": {"schemaTitle": "system.Dataset", "uri": "records"}}
    task = TaskDetail(name="records", display_name="Records", state="FAILED", artifacts=records)
    summary = run_summary.summarize(dataclasses.replace(run, tasks=(task,)))
    assert (summary["dataset"], summary["state"]) == (None, "SUCCEEDED")


OTHERS = (None, 5, "text", [5], {"a": 5})


def other_forms(value) -> Iterator[Any]:
    """Yield JSON that differs from a value in the type of one part."""
    yield from (other for other in OTHERS if other != value)
    parts = enumerate(value) if isinstance(value, list) else getattr(value, "items", tuple)()
    for key, part in list(parts):
        for other in other_forms(part):
            yield [other] if isinstance(value, list) else {**value, key: other}


@pytest.mark.parametrize("line", ["status digits-1", "runs"])
@pytest.mark.parametrize(
    "name",
    ["run.json", "pipeline_job.json", "logs/custom-training-job/job.json",
     "logs/search/tuning_job.json"],
)  # fmt: skip
def test_json_of_another_form_is_named_or_harmless(command, jobs, name, line):
    file = Path("runs/digits-1", name)
    content = json.loads(file.read_bytes())
    del content["sha256"]
    for other in other_forms(content):
        checked = checked_json.with_checksum(other) if isinstance(other, dict) else other
        file.write_text(json.dumps(checked))
        code, shown, errors = command(line)
        assert code == 0 or file.name in error_of((code, shown, errors)), other
