"""Records by Apache Beam: on this machine, and as a job of a service that speaks Dataflow's API.

Beam is in a layer of its own over .venv (make dataflow), so each run is another process.
"""

import importlib.util
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests import tables
from tests.trainer.data.beam_process import answers_of, interpreter, run, start
from tests.trainer.data.folders import content, picture, two_classes, write_pictures
from trainer.data.record_options import EngineOptions, RecordOptions
from trainer.data.write import beam_engine
from trainer.data.write.writer import create_tfrecords
from trainer.errors import InputError
from trainer.fields import build

KEY = "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"
SUBNETWORK = "regions/europe-west4/subnetworks/private"
SMALL = {"image_size": 16, "max_rejected_fraction": 0.1}


@pytest.fixture(scope="module")
def python() -> str:
    return interpreter()


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> dict[str, dict[str, Any]]:
    """Options by name: of images with copies and one broken, of their variants, and others."""
    folder = tmp_path_factory.mktemp("sources")
    images = two_classes(folder / "images", 60)
    (images / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    for place in ("cat/copy", "cat/copy-2", "dog/copy"):
        picture(7).save(images / f"{place}.png")
    split = folder / "split"
    for number, part in enumerate(("train", "test")):
        for label in ("cat", "dog"):
            write_pictures(split / part / label, 30, seed=10 * number + len(label))
    for place in ("train/cat/copy", "test/dog/copy", "train/dog/copy"):
        picture(8).save(split / f"{place}.png")
    table = folder / "trips"
    for number in range(2):
        tables.write_csv(table / f"{number}.csv", tables.lines(1200)[number:])
    (table / "1.csv").write_text((table / "1.csv").read_text() + "too,short\n")
    described = {"columns": tables.COLUMNS, "crosses": tables.CROSSES, "label": tables.LABEL}
    here = {**SMALL, "source": f"images:{images}"}
    variants = {"augmentation": "records", "augmentation_variants": 3, "encoding": "raw"}
    return {
        "images": {**here, "shard_megabytes": 0.02},
        "variants": {**here, **variants},
        "split": {**SMALL, "source": f"images:{split}", "shard_megabytes": 0.01},
        "table": {"source": f"csv:{table}", "shard_megabytes": 0.02, **described},
        "digits": {"source": "digits", "image_size": 8, "channels": 1, "shard_megabytes": 0.05},
    }


@pytest.fixture(scope="module")
def answers(shared, python, sources, tmp_path_factory) -> tuple[Path, dict[str, dict[str, Any]]]:
    """The folder that holds what each case wrote, and what each said. All in one process."""
    vanishing = two_classes(tmp_path_factory.mktemp("vanishing") / "in", 60)
    broken = two_classes(tmp_path_factory.mktemp("broken") / "in", 60)
    for number in range(40):
        (broken / "cat" / f"broken-{number}.jpg").write_bytes(b"\xff\xd8\xff %d" % number)
    many = {"image_size": 16, "shard_megabytes": 0.01}
    told = {"dataflow_subnetwork": SUBNETWORK, "dataflow_max_workers": 2}
    cases: dict[str, dict[str, Any]] = {
        f"{name}-{engine}": {"engine": engine, "options": options}
        for name, options in {**sources, "broken": {**many, "source": f"images:{broken}"}}.items()
        for engine in ("local", "beam")
    }
    cases["vanished"] = {
        "engine": "beam",
        "options": {**many, "source": f"images:{vanishing}"},
        "vanishes": str(vanishing / "dog" / "003.png"),
    }
    on_dataflow: dict[str, dict[str, Any]] = {
        "images-dataflow": {"options": sources["images"], "encryption_key": KEY},
        "table-dataflow": {"options": sources["table"]},
        "failed": {"service": {"fails": "Startup failed: no such image."}, "engine_options": told},
        "active": {"service": {"refuses": [409, "There is already an active job named x."]}},
        "denied": {"service": {"refuses": [403, "dataflow.jobs.create denied on my-project."]}},
    }
    for name, case in on_dataflow.items():
        cases[name] = {"engine": "dataflow", "options": sources["digits"], **case}

    def write(folder: Path) -> None:
        folder.mkdir()
        given = [{**case, "output": str(folder / name)} for name, case in cases.items()]
        said = run(python, folder, given, 300)
        (folder / "said.json").write_text(json.dumps(dict(zip(cases, said, strict=True))))

    folder = shared("engines", write)
    return folder, json.loads((folder / "said.json").read_text())


@pytest.mark.parametrize("name", ["images", "variants", "split", "table", "digits"])
def test_beam_writes_the_bytes_that_one_machine_writes(answers, name):
    folder, said = answers
    expected = content(folder / f"{name}-local")
    assert sum(file.endswith(".tfrecord") for file in expected) >= 3
    assert "error" not in said[f"{name}-beam"]
    # One machine keeps rows on its disk, Beam in the runner.
    assert said[f"{name}-local"]["spilled"] > 0
    assert said[f"{name}-beam"]["spilled"] == 0
    assert content(folder / f"{name}-beam") == expected


@pytest.mark.slow
def test_four_processes_of_beam_write_the_bytes_of_one_machine(answers, python, sources, tmp_path):
    names = ("split", "table")
    cases = [
        {"engine": "beam", "workers": 4, "output": str(tmp_path / name), "options": sources[name]}
        for name in names
    ]
    run(python, tmp_path, cases, seconds=500)
    for name in names:
        assert content(tmp_path / name) == content(answers[0] / f"{name}-local")


@pytest.mark.parametrize("name", ["images", "table"])
def test_workers_of_dataflow_write_the_bytes_that_one_machine_writes(answers, name):
    folder, said = answers
    assert said[f"{name}-dataflow"]["jobs"][0]["currentState"] == "JOB_STATE_DONE"
    assert content(folder / f"{name}-dataflow") == content(folder / f"{name}-local")


def test_the_log_says_how_many_shards_are_written_and_where_the_job_is(answers):
    _, said = answers
    lines = said["table-dataflow"]["lines"]
    link = "https://console.cloud.google.com/dataflow/jobs/europe-west4/job-0?project=my-project"
    assert lines[0] == f"create_tfrecords: Dataflow job job-0 {link}"
    written = [line for line in lines if line.endswith("shards written")]
    total = len(list((answers[0] / "table-dataflow").glob("*.tfrecord")))
    assert written[-1] == f"create_tfrecords: {total} shards written"
    assert lines[-1].startswith("create_tfrecords: 2,400 rows in ")


def test_a_job_of_dataflow_is_told_its_image_its_machines_and_its_account(answers):
    _, said = answers
    (job,) = said["images-dataflow"]["jobs"]
    (pool,) = job["environment"]["workerPools"]
    options = job["environment"]["sdkPipelineOptions"]["options"]
    assert (job["project"], job["location"]) == ("my-project", "europe-west4")
    assert job["name"].startswith("create-tfrecords-")
    assert pool["machineType"] == "e2-standard-4"
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 10
    assert pool["workerHarnessContainerImage"] == "registry/training:1"
    assert pool["numThreadsPerWorker"] == 1
    assert "ipConfiguration" not in pool and "packages" not in pool
    assert pool["network"] == "private"
    assert job["environment"]["serviceKmsKeyName"] == KEY
    account = job["environment"]["serviceAccountEmail"]
    assert account == "workers@my-project.iam.gserviceaccount.com"
    assert options["pipelineUrl"].startswith(str(answers[0] / "images-dataflow"))


def test_with_a_subnetwork_its_machines_have_no_public_addresses(answers):
    (pool,) = answers[1]["failed"]["jobs"][0]["environment"]["workerPools"]
    assert pool["subnetwork"] == SUBNETWORK
    assert "network" not in pool
    assert pool["ipConfiguration"] == "WORKER_IP_PRIVATE"
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 2


@pytest.mark.parametrize(
    ("name", "reason", "remedy"),
    [
        ("failed", "RuntimeError: Dataflow job job-0 ended as FAILED: Startup failed", "run again"),
        ("active", "There is already an active job", "an earlier run still writes these"),
        ("denied", "dataflow.jobs.create denied on my-project", "has the run's account roles/"),
        ("vanished", "InputError: dog/003.png was listed but can", "leave the source alone"),
        ("broken-beam", "of 160 images (", "fix or remove them"),
    ],
)
def test_what_went_wrong_is_one_line_with_a_remedy(answers, name, reason, remedy):
    folder, said = answers
    error = said[name]["error"]
    assert reason in error and remedy in error and "\n" not in error
    assert not (folder / name / "dataset.json").exists()


def test_too_many_rejections_leave_nothing_behind(answers):
    folder, said = answers
    assert "can't be used" in said["broken-local"]["error"]
    assert content(folder / "broken-beam") == content(folder / "broken-local") == {}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("images", {"image_size": 96, "shard_megabytes": 0.03}),
        pytest.param("table", {"shard_megabytes": 0.003}, marks=pytest.mark.slow),
    ],
)
def test_killed_and_run_again_beam_keeps_whole_shards(python, sources, tmp_path, name, changes):
    options = {**sources[name], **changes}
    cases = [
        {"output": str(tmp_path / engine), "engine": engine, "options": options}
        for engine in ("beam", "local")
    ]
    process = start(python, tmp_path, cases[:1])
    output = tmp_path / "beam"
    while process.poll() is None and len(list(output.glob("*.tfrecord"))) < 3:
        time.sleep(0.002)
    process.kill()
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in output.glob("*.tfrecord")}
    run(python, tmp_path, cases)
    assert content(output) == content(tmp_path / "local")
    assert 3 <= len(kept) < len(list(output.glob("*.tfrecord")))
    # The last one may have been killed before it was noted.
    assert sum(path.stat().st_mtime_ns != stamp for path, stamp in kept.items()) <= 1


def test_a_sigterm_cancels_the_job(python, sources, tmp_path):
    case = {"output": str(tmp_path / "out"), "engine": "dataflow", "service": {"hangs": True}}
    process = start(python, tmp_path, [{**case, "options": sources["digits"]}])
    try:
        assert any("Dataflow job job-0" in line for line in iter(process.stdout.readline, ""))
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    (answer,) = answers_of(output)
    assert answer["error"] == f"SystemExit: {128 + signal.SIGTERM}"
    assert answer["jobs"][0]["currentState"] == "JOB_STATE_CANCELLED"


def open_engine(**options: str) -> beam_engine.BeamEngine | None:
    return beam_engine.open_engine(
        EngineOptions(records_engine="dataflow"),
        **{
            "project": "my-project",
            "region": "europe-west4",
            "image": "registry/training:1",
            **dict.fromkeys(("service_account", "network", "encryption_key"), ""),
            "environment": {},
            **options,
        },
    )


def test_without_beam_the_remedy_is_said_before_anything_is_read(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs Apache Beam.*install the extra \[dataflow\]"):
        open_engine()


@pytest.mark.parametrize(
    ("source", "output", "place"),
    [
        ("images:in", "out", "output='.*out'"),
        ("images:in", "ram://out", "source='.*in'"),
        ("csv:t.csv", "ram://out", r"source='.*t\.csv'"),
    ],
)
def test_a_folder_that_dataflow_does_not_have_is_named_before_anything_is_written(
    tmp_path, monkeypatch, source, output, place
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    two_classes(tmp_path / "in", 4)
    tables.write_csv(tmp_path / "t.csv", tables.lines(40))
    kind, _, name = source.partition(":")
    given = f"{kind}:{tmp_path / name}"
    options = RecordOptions(source=given) if kind == "images" else tables.options(tmp_path / name)
    target = output if "://" in output else str(tmp_path / output)
    with pytest.raises(InputError, match=f"{place} is on this machine, which .*; use gs://"):
        create_tfrecords(options, target, engine=open_engine())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("records_engine", "dataflo", "did you mean 'dataflow'"),
        ("dataflow_max_workers", 0, "at least 1"),
        ("dataflow_machine_type", "big", "such as e2-standard-4"),
        ("dataflow_subnetwork", "default", "such as regions/us-central1/subnetworks/default"),
    ],
)
def test_an_option_of_the_engine_that_can_not_be_is_named(name, value, remedy):
    with pytest.raises(InputError, match=f"^{name}=.*{value}.*{remedy}"):
        build(EngineOptions, {name: value})
