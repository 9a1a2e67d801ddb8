import io
import json
import pathlib
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from rich.console import Console

from pipelines.local import run_summary
from pipelines.local.execution import run
from tests.pipelines.local.conftest import REPLICA
from trainer.errors import InputError

TASKS = ("create-records", "plan", "custom-training-job", "collect", "evaluate", "record")


def start(package, runs, *actions, **parameters):
    """Runs the small pipeline; returns the result and what the console showed."""
    shown = io.StringIO()
    result = run(
        package,
        recipe="small",
        parameters={"replica": [str(REPLICA), *actions], **parameters},
        runs_directory=runs,
        console=Console(file=shown, width=100),
    )
    return result, shown.getvalue()


def states(result):
    return {task["name"]: task["state"] for task in result.summary["tasks"]}


@pytest.fixture
def proxy(monkeypatch):
    """A proxy of the user, which must not stand between the processes of a run."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.mark.usefixtures("proxy")
def test_a_run_leaves_everything_that_it_made(small_package, tmp_path):
    result, shown = start(small_package, tmp_path / "runs")
    assert result.state == "SUCCEEDED"
    directory = result.directory
    assert (tmp_path / "runs" / "latest").resolve() == directory
    assert directory.name.startswith("small-20")
    summary = json.loads((directory / "summary.json").read_text())
    assert summary == result.summary
    assert summary["recipe"] == "small"
    assert summary["parameters"]["options"] == {"sizes": [8, 8]}
    assert summary["parameters"]["accuracy"] == 0.9
    assert [task["name"] for task in summary["tasks"]] == list(TASKS)
    assert {task["state"] for task in summary["tasks"]} == {"SUCCEEDED"}
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
    assert summary["versions"]["kfp"] == "2.17.0"
    assert (directory / "small.yaml").read_bytes() == small_package.read_bytes()
    assert (directory / "tensorboard").is_dir()
    assert "evaluated 1 of 1" in (directory / "logs" / "evaluate.log").read_text()
    log = directory / "logs" / "custom-training-job" / "worker-0.log"
    assert log.read_text() == "worker 0 is here\n"
    assert (directory / "artifacts" / "create-records" / "records" / "dataset.json").exists()
    assert "Train SUCCEEDED" in shown
    assert "\nwarning   eight examples are few\n" in shown
    assert "Running pipeline" not in shown
    log = (directory / "logs" / "pipeline.log").read_text()
    assert "Running pipeline: 'small'" in log
    assert "\x1b" not in log


def test_a_rerun_takes_whole_records_from_the_cache(records_package, tmp_path):
    def rerun(**parameters):
        return run(
            records_package,
            recipe="records",
            parameters=parameters,
            runs_directory=tmp_path,
            console=Console(file=io.StringIO()),
            cache=parameters != {"source": "uncached"},
        )

    first = rerun()
    again = rerun()
    folders = sorted(path.name for path in (first.directory / "artifacts").iterdir())
    assert folders == ["create-records", "create-records-2"]
    assert states(first) == {"create-records": "SUCCEEDED", "create-records-2": "SUCCEEDED"}
    assert states(again) == {"create-records": "CACHED", "create-records-2": "SUCCEEDED"}
    records = again.directory / "artifacts" / "create-records" / "records"
    assert records.resolve() == first.directory / "artifacts" / "create-records" / "records"
    assert again.summary["dataset"] == first.summary["dataset"]
    assert states(rerun(options={"sizes": [9]}))["create-records"] == "SUCCEEDED"

    (records / "train-00000-of-00001.tfrecord").write_bytes(b"01234")
    assert states(rerun())["create-records"] == "SUCCEEDED"
    assert states(rerun())["create-records"] == "CACHED"
    for _ in range(2):
        assert states(rerun(source="uncached"))["create-records"] == "SUCCEEDED"


def test_a_branch_is_skipped_and_numbers_in_lists_stay_whole(small_package, tmp_path):
    machine = {
        "machine_type": "n1-standard-4",
        "accelerator_type": "NVIDIA_TESLA_T4",
        "accelerator_count": 2,
    }
    result, _ = start(small_package, tmp_path, pools=[[1, machine]], accuracy=0.5)
    assert result.state == "SUCCEEDED"
    assert states(result)["record"] == "SKIPPED"
    assert "verdict" not in result.summary
    (job,) = result.summary["custom_jobs"]
    assert job["state"] == "SUCCEEDED"
    (pool,) = job["worker_pools"]
    assert (pool["accelerator_type"], pool["accelerator_count"]) == ("NVIDIA_TESLA_T4", 2)


@pytest.mark.parametrize(
    ("cause", "error", "lines"),
    [
        (
            "--chief=crash",
            "Train: The replica workerpool0-0 exited with a non-zero status of 1. "
            "Termination reason: Error.",
            ["  RuntimeError: the loss is not a number", "chief-0.log"],
        ),
        (
            "--chief=die",
            "Train: chief 0, started 24 times, was ended by SIGKILL, most often for lack of "
            "memory; free memory and run it again",
            ["chief-0.log"],
        ),
        ("--chief=complain", "Train: learning_rate=-1.0 is out of range: it must be above 0", []),
        ("missing", "create-records: source='missing' is not a folder", []),
        (
            "broken",
            "create-records: ValueError: shard 3 has no end",
            ["  ValueError: shard 3 has no end"],
        ),
        (
            "SIGKILL",
            "create-records: the step was ended by SIGKILL, most often for lack of memory; free "
            "memory and run it again",
            [],
        ),
        (
            "SIGTERM",
            "create-records: the step was ended by SIGTERM from outside this run; run it again",
            [],
        ),
        (
            "SIGSEGV",
            "create-records: the step crashed with SIGSEGV; its log shows what it did last",
            [],
        ),
    ],
)
def test_a_failure_is_shown_with_its_reason_and_without_a_stack(
    small_package, tmp_path, cause, error, lines
):
    chief = [cause] if cause.startswith("--") else []
    result, shown = start(small_package, tmp_path, *chief, **({} if chief else {"source": cause}))
    assert json.loads((result.directory / "summary.json").read_text()) == result.summary
    assert (result.state, result.summary["error"]) == ("FAILED", error)
    before = ["SUCCEEDED"] * 2 if chief else []
    ended = [*before, "FAILED", *["NOT_TRIGGERED"] * (5 - len(before))]
    assert states(result) == dict(zip(TASKS, ended, strict=True))
    assert shown.count(f"\nerror: {error}\n") == 1
    reason = error.rpartition(": ")[2]
    assert shown.count(reason) == 1 + sum(reason in line for line in lines)
    assert all(line in shown for line in lines)
    assert "Traceback" not in shown and "{" not in shown


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


def test_a_full_disk_is_named_and_leaves_a_summary(small_package, small_disk):
    result, shown = start(small_package, small_disk, source="large")
    assert result.state == "FAILED"
    error = f"create-records: the disk of {small_disk} is full: the run has written "
    assert f"\nerror: {error}" in shown
    assert "and its next file needs more than the 0.0 kB that is free; free some space" in shown
    summary = json.loads((result.directory / "summary.json").read_text())
    assert summary["error"].startswith(error)
    assert "Traceback" not in shown


def test_a_report_without_room_for_its_copy_is_left_out(small_disk, tmp_path):
    report = tmp_path / "report.html"
    report.write_bytes(bytes(2 << 20))
    evaluation = {"report": SimpleNamespace(uri=str(report))}
    assert run_summary._copy_report(evaluation, small_disk) is None
    assert list(small_disk.iterdir()) == []


def test_the_reason_of_a_failure_goes_to_the_standard_error(small_package, tmp_path, capfd):
    parameters = {"replica": [str(REPLICA)], "source": "missing"}
    result = run(small_package, recipe="small", parameters=parameters, runs_directory=tmp_path)
    assert result.state == "FAILED"
    shown = capfd.readouterr()
    assert shown.err.startswith("error: create-records: source='missing' is not a folder\nlog ")
    assert "error" not in shown.out
    assert "FAILED in" in shown.out


def test_a_refused_job_is_shown_with_the_reason(small_package, tmp_path):
    machine = {"machine_type": "n1-standard-4", "accelerator_type": "NVIDIA_TESLA_T4"}
    result, shown = start(small_package, tmp_path, pools=[[1, machine]])
    assert result.state == "FAILED"
    assert "the job was refused" in shown
    assert "accelerator_count 0; it must have both" in result.summary["error"]
    assert result.summary["custom_jobs"] == []


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"sorce": "x"}, "no parameter 'sorce'; did you mean 'source'?"),
        ({"accuracy": "high"}, "accuracy='high' is not a finite number"),
        ({}, "parameter 'replica' needs a value"),
    ],
)
def test_wrong_parameters_start_nothing(small_package, tmp_path, parameters, reason):
    with pytest.raises(InputError) as raised:
        run(small_package, recipe="small", parameters=parameters, runs_directory=tmp_path / "runs")
    assert reason in str(raised.value)
    assert not (tmp_path / "runs").exists()


def test_what_is_no_package_is_refused(tmp_path):
    for text in ("a: [", "a: 1", ""):
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(InputError, match="not a compiled pipeline"):
            run(tmp_path / "x.yaml", recipe="x", parameters={}, runs_directory=tmp_path)
    with pytest.raises(InputError, match="No such file"):
        run(tmp_path / "y.yaml", recipe="y", parameters={}, runs_directory=tmp_path)


def test_a_folder_that_can_not_be_written_is_refused(small_package, tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(InputError, match="choose another folder"):
        start(small_package, tmp_path / "runs")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="choose another folder"):
        start(small_package, tmp_path / "loop")
    (tmp_path / "taken" / "latest").mkdir(parents=True)
    with pytest.raises(InputError, match="latest can't be written"):
        start(small_package, tmp_path / "taken")
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["latest"]
