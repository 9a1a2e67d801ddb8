"""Records by Apache Beam: on this machine, and as a job of a service that speaks Dataflow's API.

Beam is in a layer of its own over .venv (make dataflow), so each run is another process.
"""

import importlib.util
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests import tables
from tests.refusals import refused
from tests.trainer.data.beam_run import answers_of, interpreter, run, running
from tests.trainer.data.killing import wait_for
from tests.trainer.data.picture_folders import content, picture, two_classes
from trainer.data.write import beam_engine
from trainer.data.write.record_options import EngineOptions, RecordOptions
from trainer.data.write.writer import create_tfrecords

KEY = "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"
BOTH = ("images", "table")
"""Sources that Dataflow reads, too."""
SUBNETWORK = "regions/europe-west4/subnetworks/private"


@pytest.fixture(scope="module")
def python() -> str:
    return interpreter()


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> dict[str, dict[str, Any]]:
    """Options by name: of images with copies and one broken, of their variants, and others."""
    folder = tmp_path_factory.mktemp("sources")
    images, split, table = folder / "images", folder / "split", folder / "trips"
    two_classes(images, 60)
    (images / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    for place in ("cat/copy", "cat/copy-2", "dog/copy"):
        picture(7).save(images / f"{place}.png")
    for number, part in enumerate(("train", "test")):
        two_classes(split / part, 30, seed=10 * number + 3)
    for place in ("train/cat/copy", "test/dog/copy", "train/dog/copy"):
        picture(8).save(split / f"{place}.png")
    tables.write_csv(table / "0.csv", tables.lines(1200))
    tables.write_csv(table / "1.csv", [*tables.lines(1200)[1:], "too,short"])
    labeled = shutil.copytree(images, folder / "labeled")
    rows = [
        f"{path.relative_to(images)},{'a;b' if number % 3 else ''},{number % 30}"
        for number, path in enumerate(sorted(images.rglob("*.*")))
    ]
    tables.write_csv(labeled / "labels.csv", [*rows, "gone.png,a,1"], "file,tags,patient")
    small = {"image_size": 16, "max_rejected_fraction": 0.1}
    here = {**small, "source": f"images:{images}"}
    variants = {"augmentation": "records", "augmentation_variants": 3, "encoding": "raw"}
    return {
        "images": {**here, "shard_megabytes": 0.02},
        "variants": {**here, **variants},
        "labeled": {
            **small,
            "source": f"images:{labeled}",
            "label": {"column": "tags", "type": "multilabel"},
            "split_by": {"group": "patient"},
            "shard_megabytes": 0.01,
        },
        "split": {**small, "source": f"images:{split}", "shard_megabytes": 0.01},
        "table": {
            "source": f"csv:{table}",
            "shard_megabytes": 0.02,
            **tables.DESCRIBED,
            **tables.TEXTS,
            "split_by": {"group": "Zone Id"},
        },
        "numbers": {
            "source": f"csv:{table}",
            "shard_megabytes": 0.02,
            **tables.DESCRIBED,
            "columns": [one for one in tables.COLUMNS if one["name"] != "miles"],
            "crosses": [],
            "label": {"column": "fare", "type": "numeric", "log": True},
            "weight_column": "miles",
            "max_rejected_fraction": 0.5,
        },
        "labels": {
            "source": f"csv:{table}",
            "shard_megabytes": 0.02,
            **tables.DESCRIBED,
            "columns": [one for one in tables.COLUMNS if one["name"] != "company"],
            "crosses": [],
            "label": {"column": "company", "type": "multilabel", "separator": " "},
        },
        "times": {
            "source": f"csv:{table}",
            "shard_megabytes": 0.02,
            **tables.DESCRIBED,
            "split_by": {"time": "Zone Id"},
        },
        "digits": {"source": "digits", "image_size": 8, "channels": 1, "shard_megabytes": 0.05},
    }


@pytest.fixture(scope="module")
def answers(python, sources, tmp_path_factory) -> tuple[Path, dict[str, dict[str, Any]]]:
    """The folder that holds what each case wrote, and the answers. All in one process."""
    vanishing = two_classes(tmp_path_factory.mktemp("vanishing") / "in", 60)
    broken = two_classes(tmp_path_factory.mktemp("broken") / "in", 60)
    for number in range(40):
        (broken / "cat" / f"broken-{number}.jpg").write_bytes(b"\xff\xd8\xff %d" % number)
    many = {"image_size": 16, "shard_megabytes": 0.01}
    set_by_user = {"dataflow_subnetwork": SUBNETWORK, "dataflow_max_workers": 2}
    local = {name: {"engine": "local", "options": sources[name]} for name in BOTH}
    cases = {
        **{f"{name}-local": case for name, case in local.items()},
        **on_both_engines({"broken": {**many, "source": f"images:{broken}"}}),
    }
    cases["vanished"] = {
        "engine": "beam",
        "options": {**many, "source": f"images:{vanishing}"},
        "vanishes": str(vanishing / "dog" / "003.png"),
    }
    fails = {"fails": "Startup failed: no such image."}
    on_dataflow: dict[str, dict[str, Any]] = {
        "images-dataflow": {"options": sources["images"], "encryption_key": KEY},
        "table-dataflow": {"options": sources["table"]},
        "failed": {"service": fails, "engine_options": set_by_user},
        "active": {"service": {"refuses": [409, "There is already an active job named x."]}},
        "denied": {"service": {"refuses": [403, "dataflow.jobs.create denied on my-project."]}},
    }
    for name, case in on_dataflow.items():
        cases[name] = {"engine": "dataflow", "options": sources["split"], **case}
    folder = tmp_path_factory.mktemp("engines")
    return folder, run_all(python, folder, cases)


def on_both_engines(sources: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        f"{name}-{engine}": {"engine": engine, "options": options}
        for name, options in sources.items()
        for engine in ("local", "beam")
    }


def run_all(python: str, folder: Path, cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
    listed = [{**case, "output": str(folder / name)} for name, case in cases.items()]
    return dict(zip(cases, run(python, folder, listed, 300), strict=True))


@pytest.mark.slow
def test_beam_writes_the_bytes_of_one_machine(python, sources, tmp_path):
    chosen = {name: of for name, of in sources.items() if name != "digits"}
    answered = run_all(python, tmp_path, on_both_engines(chosen))
    for name in chosen:
        expected = content(tmp_path / f"{name}-local")
        assert sum(file.endswith(".tfrecord") for file in expected) >= 3
        assert "error" not in answered[f"{name}-beam"]
        # One machine keeps rows on its disk, Beam in the runner.
        assert answered[f"{name}-local"]["spilled"] > 0
        assert answered[f"{name}-beam"]["spilled"] == 0
        assert content(tmp_path / f"{name}-beam") == expected


@pytest.mark.slow
def test_four_beam_processes_write_the_bytes_of_one_machine(python, sources, tmp_path):
    names = ("split", "table", "digits")
    engines = {"local": {"engine": "local"}, "beam": {"engine": "beam", "workers": 4}}
    cases = [
        {**engine, "output": str(tmp_path / f"{name}-{place}"), "options": sources[name]}
        for name in names
        for place, engine in engines.items()
    ]
    run(python, tmp_path, cases, seconds=500)
    for name in names:
        assert content(tmp_path / f"{name}-beam") == content(tmp_path / f"{name}-local")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "amount"), [("images", "124 images"), ("table", "2,400 rows")])
def test_dataflow_writes_the_same_bytes_and_logs_its_job(answers, name, amount):
    folder, answered = answers
    written = content(folder / f"{name}-dataflow")
    assert written == content(folder / f"{name}-local")
    assert answered[f"{name}-dataflow"]["jobs"][0]["currentState"] == "JOB_STATE_DONE"
    lines = answered[f"{name}-dataflow"]["lines"]
    link = "https://console.cloud.google.com/dataflow/jobs/europe-west4/job-0?project=my-project"
    assert lines[0] == f"create_tfrecords: Dataflow job job-0 {link}"
    total = sum(file.endswith(".tfrecord") for file in written)
    counted = [line for line in lines if line.endswith("shards written")]
    assert counted[-1] == f"create_tfrecords: {total} shards written"
    assert any(line.startswith(f"create_tfrecords: {amount} in ") for line in lines)


@pytest.mark.slow
def test_dataflow_job_gets_image_machines_and_account(answers):
    folder, answered = answers
    (job,) = answered["images-dataflow"]["jobs"]
    environment = job["environment"]
    (pool,) = environment["workerPools"]
    assert (job["project"], job["location"]) == ("my-project", "europe-west4")
    assert job["name"].startswith("create-tfrecords-")
    assert job["labels"] == {"team": "vision", "run": ""}
    assert pool["machineType"] == "e2-standard-4"
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 10
    assert pool["workerHarnessContainerImage"] == "registry/training:1"
    assert pool["numThreadsPerWorker"] == 1
    assert "ipConfiguration" not in pool and "packages" not in pool
    assert pool["network"] == "private"
    assert environment["serviceKmsKeyName"] == KEY
    account = "workers@my-project.iam.gserviceaccount.com"
    assert environment["serviceAccountEmail"] == account
    staged = environment["sdkPipelineOptions"]["options"]["pipelineUrl"]
    assert staged.startswith(str(folder / "images-dataflow"))
    (pool,) = answered["failed"]["jobs"][0]["environment"]["workerPools"]
    assert pool["subnetwork"] == SUBNETWORK
    assert "network" not in pool
    assert pool["ipConfiguration"] == "WORKER_IP_PRIVATE"
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason", "remedy"),
    [
        ("failed", "RuntimeError: Dataflow job job-0 ended as FAILED: Startup failed", "run again"),
        ("active", "There is already an active job", "an earlier run still writes these"),
        ("denied", "dataflow.jobs.create denied on my-project", "the run's account has roles/"),
        ("vanished", "InputError: dog/003.png was listed but can", "leave the source alone"),
        ("broken-beam", "of 160 images (", "fix or remove them"),
        ("broken-local", "can't be used", "fix or remove them"),
    ],
)
def test_failure_is_one_line_with_a_remedy(answers, name, reason, remedy):
    folder, answered = answers
    error = answered[name]["error"]
    assert reason in error and remedy in error and "\n" not in error
    assert not (folder / name / "dataset.json").exists()
    if name.startswith("broken"):
        assert not content(folder / name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("images", {"image_size": 96, "shard_megabytes": 0.03}),
        ("table", {"shard_megabytes": 0.003}),
    ],
)
def test_killed_beam_run_keeps_whole_shards(python, sources, tmp_path, name, changes):
    options = {**sources[name], **changes}
    output = tmp_path / "beam"
    cases = [
        {"output": str(tmp_path / engine), "engine": engine, "options": options}
        for engine in ("beam", "local")
    ]
    with running(python, tmp_path, cases[:1]) as process:
        wait_for(output, 3, process)
    kept = {path: path.stat().st_mtime_ns for path in output.glob("*.tfrecord")}
    run(python, tmp_path, cases)
    assert content(output) == content(tmp_path / "local")
    assert 3 <= len(kept) < len(list(output.glob("*.tfrecord")))
    # The last one may have been killed before it was noted.
    assert sum(path.stat().st_mtime_ns != stamp for path, stamp in kept.items()) <= 1


@pytest.mark.slow
def test_sigterm_cancels_the_dataflow_job(python, sources, tmp_path):
    case = {"output": str(tmp_path / "out"), "engine": "dataflow", "service": {"hangs": True}}
    with running(python, tmp_path, [{**case, "options": sources["split"]}]) as process:
        assert any("Dataflow job job-0" in line for line in iter(process.stdout.readline, ""))
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
    (answer,) = answers_of(output)
    assert answer["error"] == f"SystemExit: {128 + signal.SIGTERM}"
    assert answer["jobs"][0]["currentState"] == "JOB_STATE_CANCELLED"


def test_local_folder_is_refused_for_dataflow(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    names = ("project", "region", "image", "service_account", "network", "encryption_key")
    options = EngineOptions(records_engine="dataflow")
    engine = beam_engine.open_engine(options, **dict.fromkeys(names, "any"), environment={})
    table = tables.write_csv(tmp_path / "t.csv", tables.lines(40))
    images = RecordOptions(source=f"images:{photos}")
    output = str(tmp_path / "out")
    for options, target, place in (
        (images, output, f"output='{output}'"),
        (images, "ram://out", f"source='{photos}'"),
        (tables.options(table), "ram://out", f"source='{table}'"),
    ):
        message = refused(create_tfrecords, options, target, engine=engine)
        assert re.search(f"{place} is on this machine, which .*; use gs://", message)
        assert not (tmp_path / "out").exists()
