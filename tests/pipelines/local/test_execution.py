"""Runs of a compiled pipeline: what they leave, reuse, send and refuse, and how they fail."""

import datetime
import json
import pathlib
import re
import shutil
import subprocess
from unittest import mock

import pytest
import yaml

from pipelines import compilation, printing, recipe
from pipelines.local import folders, run_summary
from pipelines.local.execution import run
from pipelines.package import Package
from tests import refusals
from tests.pipelines.local.conftest import REPLICA
from tests.pipelines.local.package_runs import TASKS, read_ended, run_package, run_small, states
from vertex.errors import InputError


@pytest.fixture
def proxy(monkeypatch):
    """A proxy of the user, which the processes of a run must not use among themselves."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.mark.usefixtures("proxy")
def test_run_leaves_all_its_results(small_package, tmp_path):
    result, shown = run_small(small_package, tmp_path / "runs")
    assert result.state == "SUCCEEDED"
    directory = result.directory
    assert (tmp_path / "runs" / "latest").resolve() == directory
    assert directory.name.startswith("small-20")
    summary = result.summary
    assert summary["recipe"] == "small"
    assert summary["parameters"]["options"] == {"sizes": [8, 8]}
    assert summary["parameters"]["accuracy"] == 0.9
    assert list(states(result.summary).items()) == [(task, "SUCCEEDED") for task in TASKS]
    assert all(task["seconds"] > 0 for task in summary["tasks"])
    (job,) = summary["custom_jobs"]
    assert (job["name"], job["state"]) == (directory.name, "SUCCEEDED")
    pools = [(pool["role"], pool["replicas"]) for pool in job["worker_pools"]]
    assert pools == [("chief", 1), ("worker", 1)]
    assert job["worker_pools"][0]["machine_type"] == "n1-standard-4"
    assert job["worker_pools"][0]["accelerator_type"] is None
    assert summary["metrics"] == {"accuracy": 0.9}
    examples = {"train": 8, "validation": 1, "test": 1}
    assert summary["dataset"] == {"examples": examples, "rejected": 2}
    assert summary["verdict"] == "accepted"
    assert summary["model"] == f"{directory}/artifacts/plan/training/model"
    assert pathlib.Path(summary["report"]).read_text() == "<p>a report</p>"
    assert summary["versions"]["kfp"] == "2.17.3"
    assert (directory / "small.yaml").read_bytes() == small_package.read_bytes()
    assert (directory / "tensorboard").is_dir()
    logs = directory / "logs"
    assert "evaluated 1 of 1" in (logs / "evaluate.log").read_text()
    assert (logs / "custom-training-job" / "worker-0.log").read_text() == "worker 0 is here\n"
    assert (directory / "artifacts" / "create-records" / "records" / "dataset.json").exists()
    assert "Train SUCCEEDED" in shown
    assert "\nwarning   eight examples are few\n" in shown
    # The records say this in the log and in their metadata.
    assert shown.count("\nwarning   two rows are rejected\n") == 1


def test_rerun_reuses_intact_records(records_package, tmp_path):
    def rerun(cache=True, **parameters):
        return run_package(records_package, tmp_path, parameters, cache=cache)[0]

    first, again = rerun(), rerun()
    assert states(first.summary) == {"create-records": "SUCCEEDED", "create-records-2": "SUCCEEDED"}
    assert states(again.summary) == {"create-records": "CACHED", "create-records-2": "SUCCEEDED"}
    artifacts = first.directory / "artifacts"
    assert {path.name for path in artifacts.iterdir()} == states(first.summary).keys()
    records = again.directory / "artifacts" / "create-records" / "records"
    assert records.resolve() == artifacts / "create-records" / "records"
    assert again.summary["dataset"] == first.summary["dataset"]
    assert states(rerun(options={"sizes": [9]}).summary)["create-records"] == "SUCCEEDED"

    (records / "train-00000-of-00001.tfrecord").write_bytes(b"01234")
    assert states(rerun().summary)["create-records"] == "SUCCEEDED"
    assert states(rerun().summary)["create-records"] == "CACHED"
    for _ in range(2):
        uncached = rerun(source="uncached", cache=False)
        assert states(uncached.summary)["create-records"] == "SUCCEEDED"


GPU = {"machine_type": "n1-standard-4", "accelerator_type": "NVIDIA_TESLA_T4"}


def test_untaken_branch_is_skipped(small_package, tmp_path):
    pools = [[1, {**GPU, "accelerator_count": 2}]]
    result, _ = run_small(small_package, tmp_path, pools=pools, accuracy=0.5)
    assert result.state == "SUCCEEDED"
    assert states(result.summary)["record"] == "SKIPPED"
    assert not result.summary["verdict"]
    (job,) = result.summary["custom_jobs"]
    assert job["state"] == "SUCCEEDED"
    (pool,) = job["worker_pools"]
    # Whole numbers in lists stay integers.
    assert (pool["accelerator_type"], pool["accelerator_count"]) == ("NVIDIA_TESLA_T4", 2)


BROKEN = "ValueError: shard 3 has no end"
STEP = "create-records: the step"
ENDED = "was ended by SIGTERM from outside this run; run it again"
NO_MEMORY = "was ended by SIGKILL, most often for lack of memory; free memory and run it again"


def acting(chief):
    return {"replica": [str(REPLICA), f"--chief={chief}"]}


@pytest.mark.parametrize(
    ("parameters", "error", "lines"),
    [
        ({"source": "missing"}, "create-records: source='missing' is not a folder", []),
        ({"source": "broken"}, f"create-records: {BROKEN}", [f"  {BROKEN}"]),
        ({"source": "SIGKILL"}, f"{STEP} {NO_MEMORY}", []),
        ({"source": "SIGTERM"}, f"{STEP} {ENDED}", []),
        ({"source": "SIGSEGV"}, f"{STEP} crashed with SIGSEGV; its log shows what it did last", []),
        (
            acting("crash"),
            "Train: The replica workerpool0-0 exited with a non-zero status of 1. "
            "Termination reason: Error.",
            ["  RuntimeError: the loss is not a number", "chief-0.log"],
        ),
        (acting("die"), f"Train: chief 0, started 24 times, {NO_MEMORY}", ["chief-0.log"]),
        (
            acting("abort"),
            "Train: chief 0, started 4 times, crashed with SIGABRT: it could not start a thread; "
            "raise the limit of processes (ulimit -u, or --pids-limit of a container) or of memory "
            "(ulimit -v), or use fewer replicas",
            ["chief-0.log"],
        ),
        (
            acting("starve"),
            "Train: The replica workerpool0-0 exited with a non-zero status of 1. Termination "
            "reason: Error: it ran out of memory; free memory, raise its limit (ulimit -v), lower "
            "batch_size, or use fewer replicas",
            ["chief-0.log"],
        ),
        (acting("complain"), "Train: learning_rate=-1.0 is out of range: it must be above 0", []),
        (
            {"pools": [[1, GPU]]},
            "Train: the job was refused: custom_job.job_spec.worker_pool_specs[0].machine_spec "
            "has accelerator_type NVIDIA_TESLA_T4 and accelerator_count 0; it must have both or "
            "neither",
            [],
        ),
    ],
)
def test_failed_run_shows_its_reason(small_package, tmp_path, capfd, parameters, error, lines):
    values = {"replica": [str(REPLICA)], **parameters}
    result = read_ended(run(Package(small_package), parameters=values, runs_directory=tmp_path))
    assert (result.state, result.summary["error"]) == ("FAILED", error)
    before = ["SUCCEEDED"] * (2 if error.startswith("Train") else 0)
    ended = [*before, "FAILED", *["NOT_TRIGGERED"] * (5 - len(before))]
    assert states(result.summary) == dict(zip(TASKS, ended, strict=True))
    jobs = [job["state"] for job in result.summary["custom_jobs"]]
    assert jobs == ["FAILED"] * ("replica" in parameters)
    output, errors = capfd.readouterr()
    assert errors.startswith(f"error: {error}\n")
    assert errors.splitlines()[-1].startswith("log ")
    assert "error" not in output
    assert "FAILED in" in output
    reason = error.rpartition(": ")[2]
    assert errors.count(reason) == 1 + sum(reason in line for line in lines)
    assert all(line in errors for line in lines)
    assert "Traceback" not in errors and "{" not in errors


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MB, or a skip where this user may not mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_full_disk_fails_the_run_with_a_summary(small_package, small_disk, tmp_path):
    report = tmp_path / "report.html"
    report.write_bytes(bytes(2 << 20))
    assert run_summary._copy_page(str(report), small_disk / "report.html") == str(report)
    assert list(small_disk.iterdir()) == []
    result, shown = run_small(small_package, small_disk, source="large")
    assert result.state == "FAILED"
    error = f"create-records: the disk of {small_disk} is full: the run has written "
    assert f"\nerror: {error}" in shown
    left = r"and its next file needs more than the [0-9.]+ kB that is free; free some space"
    assert re.search(left, shown)
    summary = json.loads((result.directory / "summary.json").read_text())
    assert summary["error"].startswith(error)
    assert "Traceback" not in shown


def test_wrong_parameter_starts_nothing(small_package, tmp_path):
    error = refusals.refused(run_package, small_package, tmp_path / "runs", {"accuracy": "high"})
    assert error == "accuracy='high' is not a finite number"
    assert not (tmp_path / "runs").exists()


def test_file_that_is_no_package_is_refused(tmp_path):
    path = tmp_path / "x.yaml"
    assert "No such file" in refusals.refused(run_package, path, tmp_path, {})
    for text in ("a: [", "a: 1", ""):
        path.write_text(text)
        assert "not a compiled pipeline" in refusals.refused(run_package, path, tmp_path, {})


def test_unwritable_runs_folder_is_refused(small_package, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "taken" / "latest").mkdir(parents=True)
    for name, reason in (
        ("file", "give another folder"),
        ("loop", "give another folder"),
        ("taken", "latest can't be written"),
    ):
        assert reason in refusals.refused(run_small, small_package, tmp_path / name)
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["latest"]


def test_run_has_the_given_name_or_the_next_free_one(records_package, tmp_path, monkeypatch):
    def run(**options):
        result, shown = run_package(records_package, tmp_path, {}, **options)
        assert result.state == "SUCCEEDED"
        assert f"run       {printing.shorten_path(result.directory)}\n" in shown
        return result.directory.name

    assert run(name="first") == "first"
    assert (tmp_path / "latest").readlink() == pathlib.Path("first")
    reason = f"a run 'first' already exists in {tmp_path}; give another --name"
    assert refusals.refused(run, name="first") == reason
    now = datetime.datetime(2031, 1, 2, 3, 4, 5)
    clock = mock.Mock(**{"datetime.now.return_value": now})
    monkeypatch.setattr(folders, "datetime", clock)
    names = {run(), run()}
    assert names == {"records-only-20310102-030405", "records-only-20310102-030405-2"}
    left = {path.name for path in tmp_path.iterdir() if path.name[0] != "."}
    assert left == {"first", "latest", *names}


@pytest.mark.usefixtures("elsewhere")
def test_flags_give_a_local_run_its_root_and_name(refused, monkeypatch):
    given = []

    def refuse(package, *, root, name, **others):
        given.append((root, name))
        raise InputError("enough")

    command = ("run", "digits", "--local")
    root = "--pipeline-root=gs://bucket/runs"
    error = refused(*command, "--pipeline-root=/tmp/runs")
    assert "is not a folder in Cloud Storage" in error
    assert "excludes --in-containers" in refused(*command, root, "--in-containers")
    assert list(pathlib.Path().iterdir()) == []
    monkeypatch.setenv("VERTEX_PIPELINE_ROOT", "gs://elsewhere/runs")
    monkeypatch.setattr("pipelines.local.execution.run", refuse)
    assert "enough" in refused(*command)
    assert "enough" in refused(*command, root, "--name=first")
    assert given == [("", ""), ("gs://bucket/runs", "first")]


TEXT = 'source = "images:{}"\nnotify = ["one@example.com", "two@example.com"]\nimage_size = 8\n'
MAIL = "vertex-pipelines-notification-email"


def test_e_mail_reports_on_every_step(tmp_path):
    (tmp_path / "mine.toml").write_text(TEXT.format("photos"))
    loaded = recipe.load("mine", tmp_path)
    tasks = yaml.safe_load(compilation.compile_yaml(loaded, "image:1"))["root"]["dag"]["tasks"]
    assert set(tasks) == {"exit-handler-1", MAIL}
    inputs = tasks[MAIL]["inputs"]["parameters"]
    recipients = inputs["recipients"]["runtimeValue"]["constant"]
    assert recipients == ["one@example.com", "two@example.com"]
    status = inputs["pipeline_task_final_status"]["taskFinalStatus"]
    assert status == {"producerTask": "exit-handler-1"}


def test_failed_local_run_sends_no_e_mail(tmp_path):
    empty = tmp_path / "photos"
    empty.mkdir()
    (tmp_path / "mine.toml").write_text(TEXT.format(empty))
    loaded = recipe.load("mine", tmp_path)
    package = compilation.write_yaml(loaded, tmp_path / "build")
    run, _ = run_package(package, tmp_path / "runs", {})
    ended = states(run.summary)
    assert run.state == "FAILED"
    assert ended["fingerprint-source"] == "FAILED" and ended[MAIL] == "SUCCEEDED"
    assert "List the source" in run.summary["error"]
    assert "Nothing is sent" in (run.directory / "logs" / f"{MAIL}.log").read_text()
