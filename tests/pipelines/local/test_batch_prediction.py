"""`run --batch --local`: the champion's answers in Vertex AI's files, from the compiled YAML."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.pipelines.conftest import started
from tests.pipelines.emulator.test_batch_predictions import written
from tests.pipelines.local.conftest import is_alive, wait_for
from tests.pipelines.test_serving_commands import register
from tests.trainer.serving.test_answers import judged, pixels_of
from trainer.data.tables.columns import list_columns

pytestmark = pytest.mark.usefixtures("elsewhere")


BATCH = ("run", "digits", "--local", "--batch")


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_images_are_predicted_as_evaluated(
    command, untrained_model, digit_records, tmp_path, replicas
):
    register(tmp_path, "digits", untrained_model)
    expected, examples = judged(untrained_model, digit_records)
    lines = [{"image": pixels_of(example).tolist(), "key": n} for n, example in enumerate(examples)]
    for half in (0, 1):
        Path(f"scans{half}.jsonl").write_text("\n".join(map(json.dumps, lines[half::2])))
    settings = ["--set=output=answers", "--set=batch_size=16", f"--set=replica_count={replicas}"]
    code, shown, errors = command(*BATCH, "scans*.jsonl", *settings)
    assert (code, errors) == (0, ""), shown
    results = sorted(
        written(Path("answers"), "results"), key=lambda result: result["instance"]["key"]
    )
    assert [result["instance"] for result in results] == lines
    assert [result["prediction"]["key"] for result in results] == list(range(len(lines)))
    probabilities = np.array([result["prediction"]["probabilities"] for result in results])
    assert np.abs(probabilities - expected).max() < 1e-5
    (output,) = Path("answers").iterdir()
    assert re.fullmatch(r"prediction-digits-20.*Z", output.name)
    kinds = "errors_stats", "results"
    assert sorted(file.name for file in output.iterdir()) == [
        f"prediction.{kind}-0000{number}-of-0000{replicas}"
        for kind in kinds
        for number in range(replicas)
    ]
    for text in (shown, command("status", "latest")[1]):
        assert f"instances {len(lines)} predicted, 0 failed\n" in text
        assert f"output    answers/{output.name}\n" in text
    summary = json.loads(Path("runs/latest/summary.json").read_text())
    assert summary["recipe"] == "digits-batch"
    assert summary["batch_predictions"][0]["successful"] == len(lines)
    assert summary["parameters"]["model_name"] == "digits"


def test_invalid_batch_starts_nothing(refused, untrained_model, row_model, row_records, tmp_path):
    for name in ("rows.csv", "rows.parquet", "images.txt", "rows.jsonl"):
        Path(name).write_text("hour,miles\n1,2\n")
    os.mkfifo("pipe.jsonl")
    Path("folder.txt").mkdir()
    assert "'digits' has no champion in runs/.registry yet" in refused(*BATCH, "rows.jsonl")
    register(tmp_path, "digits", untrained_model)
    register(tmp_path, "chicago_taxi", row_model)
    for pattern, words in (
        ("none.jsonl", "none.jsonl': there is no such file; give a file or a pattern"),
        ("none*.jsonl", "there is no such file"),
        ("rows.parquet", "has no format of batch prediction; give files that end in .js"),
        ("pipe.jsonl", "pipe.jsonl' can't be read (not a regular file); give files"),
        ("folder.txt", "folder.txt' can't be read (not a regular file); give files"),
        ("rows.csv", "has rows of a table, and the model takes images; give a .txt"),
        ("bq://p.d.t", "input='bq://p.d.t' is on Google Cloud; leave out --local"),
        ("bq://p", "input='bq://p' is not bq://PROJECT.DATASET.TABLE"),
    ):
        assert words in refused(*BATCH, pattern)
    columns = [column.name for column in list_columns(row_records)]
    wide = [f"other{number}" for number in range(400)]
    Path("wide.csv").write_text(f"{','.join(wide)}\n")
    Path("long.csv").write_text(f"{','.join([*columns, *wide])}\n")
    Path("short.csv").write_text(f"{columns[0]}\n")
    Path("mac.csv").write_bytes(b"hour,miles\r1,2\r")
    Path("huge.csv").write_bytes(b"x" * 1_000_000)
    for pattern, words in (
        ("images.txt", "lists files, and the model takes rows of a table"),
        ("rows.csv", f"rows.csv: column 1 is 'hour' instead of '{columns[0]}'; batch prediction "),
        ("long.csv", f"column {len(columns) + 1} is 'other0' instead of none; batch"),
        ("short.csv", f"column 2 is none instead of '{columns[1]}'; batch"),
        ("mac.csv", "mac.csv is in UTF-16, or its lines end in CR"),
        ("huge.csv", "instead of"),
        ("wide.csv", f"without names: write exactly {', '.join(columns)}, in this order, text in "),
    ):
        assert words in refused("run", "chicago_taxi", "--local", "--batch", pattern)
    for option, words in (
        ("--set=epochs=3", "--batch: batch prediction has no parameter 'epochs'; known: batch_s"),
        ("--set=machine_type=n9", "--batch: machine_type='n9'"),
        ("--set=output=rows.csv/answers", "/rows.csv is not a folder; give another folder"),
        ("--set=replica_count=0", "--batch: replica_count=0"),
        ('--set=labels={"A": 1}', "--batch: labels: A=1 is not a label"),
        ("--in-containers", "--in-containers and --cache are for training"),
    ):
        assert words in refused(*BATCH, "rows.jsonl", option)
    assert not list(Path().glob("runs/*-batch-*"))


@pytest.mark.slow
def test_failed_job_ends_the_run_with_its_reason(command, untrained_model, tmp_path):
    register(tmp_path, "digits", untrained_model)
    Path("scans.jsonl").write_bytes(b"\xff")
    code, _, errors = command(*BATCH, "scans.jsonl")
    assert code == 1
    assert re.search("^error: Predict: .*scans.jsonl is not UTF-8$", errors, re.MULTILINE)
    assert json.loads(Path("runs/latest/summary.json").read_text())["state"] == "FAILED"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ended_run_leaves_no_server(untrained_model, tmp_path, number):
    register(tmp_path, "digits", untrained_model)
    Path("scans.jsonl").write_text(f"{json.dumps([[0] * 8] * 8)}\n" * 100_000)
    with started(*BATCH, "scans.jsonl", stderr=subprocess.STDOUT) as process:
        wait_for(lambda: list(Path().glob("runs/latest/**/prediction.results-*")), 300)
        children = psutil.Process(process.pid).children(recursive=True)
        (server,) = (child.pid for child in children if "trainer.serving" in child.cmdline())
        process.send_signal(number)
        shown, _ = process.communicate(timeout=120)
    wait_for(lambda: not is_alive(server))
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "CANCELLED in" in shown
