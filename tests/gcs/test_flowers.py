"""A whole run of the flowers recipe in Cloud Storage, undisturbed and with faults."""

import fnmatch
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.child_processes import ROOT
from tests.gcs.proxy import KINDS, FaultyProxy
from tests.learned_weights import assert_equal_arrays, exported, newest_checkpoint
from tests.trainer.data.picture_folders import write_pictures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RATE = 0.05
SEED = 20
PHOTOS = 24
PARAMETERS = {
    "source": "images:gs://bucket/flowers",
    "image_size": "32",
    "model": "small_cnn",
    "epochs": "3",
    "batch_size": "16",
    "checkpoint_steps": "2",
    "min_accuracy": "0",
}


@pytest.fixture(scope="module")
def bucket(server, tmp_path_factory):
    """The server, with photos of flowers: real ones where REAL_DATA_DIR is set."""
    real = os.environ.get("REAL_DATA_DIR", "")
    root = Path(real, "flowers") if real else tmp_path_factory.mktemp("flowers")
    for number, name in enumerate(() if real else ("daisy", "roses", "tulips")):
        write_pictures(root / name, PHOTOS, seed=number, suffix="jpg")
    for folder in root.iterdir():
        for path in sorted(folder.glob("*.jpg"))[:PHOTOS]:
            server.put(f"flowers/{path.relative_to(root)}", path.read_bytes())
    return server


class FinishedRun:
    """A run of the recipe through a proxy, to its end."""

    def __init__(self, bucket, folder, root, rate):
        flags = [f"--set={name}={value}" for name, value in PARAMETERS.items()]
        with FaultyProxy(bucket.port, folder, rate=rate, seed=SEED) as self.proxy:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "pipelines", "run", "flowers", "--local"),
                    *(f"--pipeline-root=gs://bucket/{root}", *flags),
                ],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self.proxy.environment},
                capture_output=True,
                text=True,
            )
        self.directory = (folder / "runs" / "latest").resolve()
        logs = [path.read_text()[-2000:] for path in self.directory.glob("logs/**/*.log")]
        assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *logs])
        self.summary = json.loads((self.directory / "summary.json").read_text())
        self.name = f"{root}/{self.directory.name}"
        self.objects = bucket.sizes(self.name)


@pytest.fixture(scope="module")
def undisturbed(bucket, tmp_path_factory):
    return FinishedRun(bucket, tmp_path_factory.mktemp("undisturbed"), "runs", 0.0)


@pytest.fixture(scope="module")
def disturbed(bucket, tmp_path_factory):
    return FinishedRun(bucket, tmp_path_factory.mktemp("disturbed"), "faulty", RATE)


def test_run_writes_every_artifact_to_the_bucket(undisturbed):
    summary, size_of = undisturbed.summary, undisturbed.objects
    assert summary["state"] == "SUCCEEDED"
    assert summary["dataset"]["examples"]["train"] > 0
    assert summary["artifacts"] == f"gs://bucket/{undisturbed.name}"
    assert "create-tfrecords/records/rejected.jsonl" in size_of
    training = "plan-training/training"
    for pattern in (
        "flowers.yaml",
        "create-tfrecords/records/dataset.json",
        "create-tfrecords/records/train-*.tfrecord",
        f"{training}/checkpoints/checkpoint",
        f"{training}/checkpoints/ckpt-*.index",
        f"{training}/checkpoints/run.json",
        f"{training}/history.csv",
        f"{training}/logs/train/events.*.v2",
        f"{training}/logs/validation/events.*.v2",
        f"{training}/metrics.json",
        f"{training}/model/saved_model.pb",
        f"{training}/model/variables/variables.index",
        "evaluate-model/report.html",
        "evaluate-model/evaluation",
        "evaluate-model/decision",
    ):
        sizes = [size_of[name] for name in fnmatch.filter(size_of, pattern)]
        assert any(sizes), f"{pattern} is not among {sorted(size_of)}"
    outputs = {"executor_output.json", "gcp_resources"}
    here = [path for path in undisturbed.directory.glob("artifacts/**/*") if path.is_file()]
    assert {path.name for path in here} <= outputs


def test_run_leaves_nothing_unfinished_in_the_bucket(undisturbed, disturbed):
    names = [*undisturbed.objects, *disturbed.objects]
    assert not [n for n in names if "partial" in n or "temp" in n or ".unf" in n]


def test_faults_change_neither_records_nor_weights(bucket, undisturbed, disturbed, tmp_path):
    proxy = disturbed.proxy
    assert sum(proxy.faults.values()) == pytest.approx(RATE * proxy.requests, abs=5)
    assert set(proxy.faults) == set(KINDS)
    folders = [
        bucket.download(run.name, tmp_path / str(number))
        for number, run in enumerate((undisturbed, disturbed))
    ]
    records, others = (
        {path.name: path.read_bytes() for path in (folder / "create-tfrecords/records").iterdir()}
        for folder in folders
    )
    assert records.keys() == others.keys()
    assert [name for name, content in records.items() if content != others[name]] == []
    first, second = (folder / "plan-training/training" for folder in folders)
    trained = newest_checkpoint(first)
    assert len(trained) > 10
    assert_equal_arrays(newest_checkpoint(second), trained)
    assert exported(first) == exported(second)
