"""The command line lists, compares, shows and resumes runs of this machine; tensorboard."""

import csv
import functools
import json
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest
import tensorflow as tf
from rich.console import Console

from pipelines import api
from pipelines.commands import runs_commands
from pipelines.runs import run_folders
from pipelines.runs.run_folders import RunRecord
from tests.pipelines.conftest import started
from tests.pipelines.local.conftest import wait_for
from vertex import checked_json
from vertex.emulator import files

KEYS = [f"digits/{number}" for number in range(100)]


@pytest.fixture(autouse=True)
def narrow_screen(elsewhere, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def leave(name, minute, state="SUCCEEDED", wrong=(), keys=KEYS, validation=None, **parameters):
    """Leave the folder of a run that answered the test records of `wrong` wrongly."""
    directory = Path("runs", name)
    training = directory / "artifacts" / "plan-training" / "training"
    training.mkdir(parents=True)
    record = RunRecord(
        recipe=name.partition("-")[0],
        parameters={"epochs": 12, "seed": 0, **parameters},
        started=f"2026-05-04T03:{minute:02}:00+00:00",
        package="0",
    )
    run_folders.write_record(record, directory)
    if state == "KILLED":
        return
    (training / "metrics.json").write_text(json.dumps(checked_json.with_checksum({})))
    (training / "history.csv").write_text("epoch,loss,validation_loss\n1,2.0,2.5\n2,1.0,1.5\n")
    answers = [f"{key},7,{'1,2.0' if key in wrong else '7,0.1'}" for key in keys]
    predictions = directory / "predictions.csv"
    predictions.write_text("\n".join(["key,label,prediction,log_loss", *answers, ""]))
    accuracy = 1 - len(wrong) / len(keys)
    interval = {"accuracy_low": accuracy - 0.05, "accuracy_high": accuracy + 0.05}
    outputs = {
        "metrics": {"metadata": {"accuracy": accuracy, **interval, "log_loss": 0.1}},
        "decision": {"metadata": {"verdict": "accepted"}},
        "predictions": {"uri": str(predictions)},
    }
    kept = {f"validation_{key}": value for key, value in (validation or {}).items()}
    kept["kept_epoch"] = kept.pop("validation_epoch", 0)
    tasks = {
        "evaluate-model": {name: {"artifacts": [value]} for name, value in outputs.items()},
        "collect-training": {"metrics": {"artifacts": [{"metadata": kept}]}},
    }
    job = {
        "name": f"projects/local/locations/local/pipelineJobs/{name}",
        "state": f"PIPELINE_STATE_{state}",
        "createTime": record.started,
        "startTime": record.started,
        "endTime": f"2026-05-04T03:{minute + 1:02}:05.2+00:00",
        "pipelineSpec": {
            "root": {"dag": {"tasks": {"evaluate-model": {"taskInfo": {"name": "Evaluate"}}}}}
        },
        "jobDetail": {
            "taskDetails": [
                {"taskId": task, "taskName": task, "state": state, "outputs": outputs}
                for task, outputs in tasks.items()
            ]
        },
        "error": {"message": "Evaluate: no model at gs://a"},
    }
    files.write_checked(directory / run_folders.JOB_FILE_NAME, job)


def write_job(content):
    """Write the job.json of digits-1."""
    job = Path("runs/digits-1/logs/custom-training-job/job.json")
    job.parent.mkdir(parents=True)
    job.write_bytes(content.encode(errors="surrogateescape"))


VALIDATION = {"accuracy": 0.94, "loss": 0.21, "epoch": 7}


def test_runs_shows_results_and_changed_parameters(succeed):
    leave("digits-1", 1, wrong=KEYS[:5], validation=VALIDATION)
    leave("mnist-1", 2, seed=3)
    source = "images:/photos/of/may"
    leave("digits-2", 3, state="KILLED", epochs=3, learning_rate=0.01, source=source)
    Path("runs/notes").mkdir()
    out = succeed("runs")
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines[::2]] == [
        ["digits-2", "KILLED"],
        ["mnist-1", "SUCCEEDED"],
        ["digits-1", "SUCCEEDED"],
    ]
    assert "  validation accuracy 0.9400, test 0.9500  accepted     1:05" in lines[4]
    assert f"  test accuracy 1.0000{' ' * 19}  accepted     1:05" in lines[2]
    changes = f"epochs=3 (was 12), learning_rate=0.01 (was null), source={source} (was null)"
    assert lines[1].endswith(f"; {changes}")
    assert all("was" not in line for line in lines[2:])
    assert succeed("runs --recipe mnist").split() == " ".join(lines[2:4]).split()
    assert "older runs are not listed" in succeed("runs --limit 1")
    assert succeed("status") == out
    assert "\nvalidation accuracy 0.9400, loss 0.2100 (epoch 7)\n" in succeed("status digits-1")
    assert "validation" not in succeed("status mnist-1")
    assert api.results("digits-1").validation == VALIDATION


def test_narrow_terminal_shows_the_validation_alone(succeed, monkeypatch):
    monkeypatch.setattr(runs_commands, "Console", functools.partial(Console, force_terminal=True))
    leave("digits-1", 1, wrong=KEYS[:5], validation=VALIDATION)
    monkeypatch.setenv("COLUMNS", "120")
    assert "  validation accuracy 0.9400, test 0.9500  accepted     1:05\n" in succeed("runs")
    monkeypatch.setenv("COLUMNS", "78")
    assert "  validation accuracy 0.9400  accepted     1:05\n" in succeed("runs")


def test_difference_of_long_values_is_shown(succeed):
    columns = [[{"name": f"column {number}"} for number in range(9)] for _ in range(2)]
    columns[1][4]["name"] = "other"
    leave("digits-1", 1, columns=columns[0], rates=[8.0, {"a": 1.5}])
    leave("digits-2", 2, columns=columns[1], rates=[9.0, {"a": 1.5}])
    out = succeed("runs")
    assert 'columns=...name": "other"}, {... (was ...name": "column 4"}...)' in out
    assert 'rates=[9, {"a": 1.5}] (was [8, {"a": 1.5}])' in out
    table = succeed("runs digits-1 digits-2").split("Metric")[0]
    assert all(text in table for text in ('"other"', '"column 8"}]', "[8, ", "[9, "))


def test_runs_on_the_same_records_are_compared_in_pairs(succeed):
    leave("digits-1", 1, wrong=KEYS[:12])
    leave("digits-2", 2, wrong=KEYS[:2], epochs=24, validation=VALIDATION)
    out = succeed("runs digits-1 digits-2")
    assert re.search(r"validation accuracy +- +0.94 *\n validation loss +- +0.21 *\n acc", out)
    assert re.search(r"epochs +12 +24 *\n", out)
    assert "accuracy             0.88 (0.83 to 0.93)" in out
    # Of 10 records on which they differ, all speak for the second: p = 2 / 2^10.
    assert "Accuracy: digits-2 is better by 0.1 (0.05523 to 0.1744)" in out
    assert "more than noise (p 0.002, paired on 100 test records)" in out
    page = (Path("runs") / "digits-1--digits-2.html").read_text()
    assert page.count("<svg") == 2
    assert "loss by epoch" in page
    assert "more than noise" in page


def test_classes_may_have_any_name_in_predictions(succeed):
    for number in (1, 2):
        leave(f"digits-{number}", number, wrong=KEYS[:number])
        file = Path(f"runs/digits-{number}/predictions.csv")
        classes = "probability_a,squared_error,log_loss,weight", 'probability_"b"\n,weight\n', "c\r"
        with file.open(newline="") as table:
            header, *rows = csv.reader(table)
        with file.open("w", newline="", encoding="utf-8") as table:
            csv.writer(table, lineterminator="\n").writerows(
                [[*header, *classes], *([*row, "=cmd|' /C calc'!A0", "0.5", "0.5"] for row in rows)]
            )
    out = succeed("runs digits-1 digits-2")
    assert "Accuracy: digits-1 is better by 0.01" in out
    assert "paired on 100 test records" in out


def test_comparison_claims_no_difference_without_evidence(succeed):
    leave("digits-1", 1, wrong=KEYS[:3])
    leave("digits-2", 2, wrong=KEYS[:1])
    leave("digits-3", 3, keys=KEYS[1:])
    leave("digits-4", 4, state="KILLED")
    assert "within the noise" in succeed("runs digits-1 digits-2")
    out = succeed("runs digits-1 digits-3")
    assert "evaluated on different test records. Compare the intervals." in out
    out = succeed("runs digits-1 digits-4")
    assert "The difference can't be tested: digits-4 kept no predictions of the test records" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("runs digits-1", "give two runs to compare, or none"),
        ("runs digits-1 digits-9", "no run 'digits-9' in the folder runs, and for Vertex AI"),
        ("status latest", "no run 'latest' in runs"),
        (
            "status digits-9",
            "in the folder runs, and for Vertex AI there is no project: give --project",
        ),
        ("logs digits-8", "no run 'digits-8' in the folder runs, and for Vertex AI"),
        ("cancel digits-7", "no run 'digits-7' in the folder runs, and for Vertex AI"),
        ("cancel digits-1", "the run 'digits-1' has already ended: SUCCEEDED"),
        (
            "logs digits-1 --replica chief-7",
            "digits-1 has no training job",
        ),
        ("run digits --local --resume", "the run 'digits-1' has succeeded; there is nothing"),
        ("run digits mnist-1 --local --resume", "mnist-1 is a run of 'mnist', not of 'digits'"),
        ("run flowers --local --resume", "there is no run of 'flowers' in runs"),
        ("run mnist --local --resume --set epochs", "'epochs' is not NAME=VALUE"),
        ("run mnist --local --resume --name x", "--name excludes --resume"),
        ("run digits --local --batch a.jsonl b.jsonl", "--batch takes one value, but 'b.jsonl'"),
        ("run digits --local --batch a.jsonl b.jsonl c.jsonl", "a pattern in quotes"),
        ("run digits digits-1 digits-2 --local --resume", "'digits-2' was given after 'digits-1'"),
        ("run mnist mnist-1 --local", "or add --resume to resume a run"),
        ("run mnist --local --set epochs=1 batch_size=8", "write --set before each parameter"),
    ],
)
def test_unknown_or_finished_run_is_refused(refused, arguments, message):
    leave("digits-1", 1)
    leave("mnist-1", 2, state="KILLED")
    assert message in refused(arguments)


def test_failed_step_is_shown_with_its_reason(succeed):
    leave("digits-1", 1, state="FAILED")
    logs = Path("runs/digits-1/logs")
    logs.mkdir()
    executor = '[KFP Executor 2026-05-04 INFO]: Got executor_input:\n{\n    "inputs": {}\n}\n'
    text = "Loading the model\nerror: no model at gs://a\n"
    (logs / "evaluate-model.log").write_text(executor + text)
    assert succeed("logs digits-1") == "error: Evaluate: no model at gs://a\nLoading the model\n"
    assert "task      FAILED         Evaluate\n" in succeed("status digits-1")


def test_killed_run_is_shown_with_the_command_to_resume_it(succeed):
    leave("digits-1", 1, state="KILLED")
    Path("runs/digits-1/.lock").touch()
    out = succeed("status digits-1")
    assert out.startswith("digits-1  KILLED\nrecipe    digits\n")
    assert "resume    python -m pipelines run digits-1 --local --resume\n" in out
    replica = {"role": "chief", "index": 0, "state": "RUNNING", "starts": 1, "restarts": 0}
    state = {"job": {"state": "JOB_STATE_RUNNING"}, "retries": 0}
    content = {**state, "replicas": [{**replica, "pid": 1, "log": "chief-0.log"}]}
    write_job(json.dumps(checked_json.with_checksum(content)))
    assert "replica   KILLED         chief-0\n" in succeed("status digits-1")
    Path("runs").rename("my runs")
    out = succeed("status digits-1 --runs-directory 'my runs'")
    assert "--local --resume --runs-directory 'my runs'\n" in out


@pytest.mark.parametrize("text", ["[" * 99_999, "[]", '{"state": 1', '{"state": 5}', "\udc97"])
@pytest.mark.parametrize("name", ["run.json", "pipeline_job.json"])
def test_damaged_file_of_a_run_is_named(command, succeed, name, text):
    leave("digits-1", 1)
    leave("digits-2", 2)
    Path("runs/digits-1", name).write_bytes(text.encode(errors="surrogateescape"))
    for line in ("status digits-1", "runs digits-1 digits-2", "run digits --local --resume"):
        code, _, errors = command(line)
        assert code == 2
        assert re.fullmatch(rf"error: .*runs/digits-1/{name} can't be read \(.*\n", errors)
    out = succeed("runs")
    assert "digits-2" in out
    (listed,) = [line for line in out.splitlines() if line.startswith("not listed: ")]
    assert f"runs/digits-1/{name} can't be read (" in listed


@pytest.mark.parametrize("text", ["[" * 99_999, "[]", '{"state": 5', "\udc97"])
def test_damaged_file_of_a_job_is_named(command, text):
    leave("digits-1", 1)
    write_job(text)
    for name in ("status", "logs"):
        code, _, errors = command(name, "digits-1")
        assert code == 2
        assert re.fullmatch(r"error: .*digits-1/logs/.*/job.json can't be read \(.*\n", errors)


def leave_logs(name, minute):
    leave(name, minute)
    logs = Path("runs", name, "artifacts", "plan-training", "training", "logs", "train")
    with tf.summary.create_file_writer(str(logs)).as_default():
        tf.summary.scalar("loss", 0.5, step=1)
    # Each run has this link.
    Path("runs", name, "tensorboard").symlink_to(logs.parent.relative_to(Path("runs", name)))


def shown(*names):
    """Return the runs that TensorBoard's server lists; end it by Ctrl-C."""
    with started("tensorboard", *names, stderr=subprocess.STDOUT) as process:
        lines = (re.search(r"(http://\S+)", line) for line in process.stdout)
        url = next(match[1] for match in lines if match)
        assert url.startswith("http://127.0.0.1:")

        def runs():
            with urllib.request.urlopen(f"{url}data/runs") as answer:
                return json.load(answer)

        # TensorBoard loads one after the other.
        run_names = wait_for(lambda: len(runs()) >= 3 and runs())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0
        return sorted(run_names)


def test_tensorboard_lists_each_run_once(elsewhere):
    for minute, name in enumerate(["cats-1", "digits-1", "digits-2", "mnist-1"]):
        leave_logs(name, minute)
    leave("flowers-1", 9)
    Path("runs", "latest").symlink_to("mnist-1")
    names = shown("latest", "digits", "digits-2")
    assert names == ["digits-1/train", "digits-2/train", "mnist-1/train"]


def test_unknown_run_is_refused(elsewhere, refused):
    leave("flowers-1", 9)
    assert "no run in the folder runs has TensorBoard logs yet" in refused("tensorboard")
    error = refused("tensorboard", "digits")
    assert "'digits' is neither a run nor a recipe with readable runs in the folder runs" in error
