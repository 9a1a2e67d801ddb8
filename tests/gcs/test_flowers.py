"""A whole run in Cloud Storage: source, artifacts and logs, undisturbed and with faults."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.gcs.proxy import KINDS, FaultyProxy
from tests.gcs.weights import as_bytes, assert_equal_arrays, newest_checkpoint, variables

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RATE = 0.05
SEED = 20
REPOSITORY = Path(__file__).parents[2]
COLORS = {"daisy": (250, 250, 240), "roses": (220, 30, 60), "tulips": (250, 180, 20)}
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
def bucket(server):
    """The server, with photos of flowers: real ones where REAL_DATA_DIR is set."""
    for name, content in photos():
        server.put(f"flowers/{name}", content)
    return server


def photos():
    """`<class>/<name>.jpg` and the content of PHOTOS pictures of each class."""
    real = os.environ.get("REAL_DATA_DIR", "")
    if real:
        for folder in sorted(Path(real, "flowers").iterdir()):
            for path in sorted(folder.glob("*.jpg"))[:PHOTOS]:
                yield f"{folder.name}/{path.name}", path.read_bytes()
        return
    generator = np.random.default_rng(7)
    for kind, color in COLORS.items():
        for number in range(PHOTOS):
            noise = generator.normal(color, 40, (48, 64, 3))
            file = io.BytesIO()
            Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(file, "JPEG")
            yield f"{kind}/{number:02}.jpg", file.getvalue()


class FinishedRun:
    """A run of the recipe flowers, through a proxy, to its end."""

    def __init__(self, bucket, folder, root, rate):
        folder.mkdir()
        flags = [f"--set={name}={value}" for name, value in PARAMETERS.items()]
        with FaultyProxy(bucket.port, folder, rate=rate, seed=SEED) as proxy:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "pipelines", "run", "flowers", "--local"),
                    *(f"--pipeline-root=gs://bucket/{root}", *flags),
                ],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), **proxy.environment},
                capture_output=True,
                text=True,
            )
        self.shown = done.stdout + done.stderr
        self.code = done.returncode
        self.requests, self.faults = proxy.requests, proxy.faults
        self.directory = (folder / "runs" / "latest").resolve()
        self.summary = json.loads((self.directory / "summary.json").read_text())
        self.bucket, self.name = bucket, f"{root}/{self.directory.name}"

    def objects(self):
        return self.bucket.sizes(self.name)

    def download(self, folder, target):
        """A folder of the run's artifacts, as files in `target`."""
        return self.bucket.download(f"{self.name}/{folder}", target)

    def logs(self):
        texts = {path: path.read_text() for path in self.directory.glob("logs/**/*.log")}
        return "\n".join(f"== {path.name}\n{text[-2000:]}" for path, text in texts.items())


@pytest.fixture(scope="module")
def undisturbed(bucket, tmp_path_factory):
    return FinishedRun(bucket, tmp_path_factory.mktemp("undisturbed") / "run", "runs", 0.0)


@pytest.fixture(scope="module")
def disturbed(bucket, tmp_path_factory):
    return FinishedRun(bucket, tmp_path_factory.mktemp("disturbed") / "run", "faulty", RATE)


def test_a_run_whose_root_is_a_bucket_succeeds(undisturbed):
    assert undisturbed.code == 0, undisturbed.shown + undisturbed.logs()
    assert undisturbed.summary["state"] == "SUCCEEDED"
    assert undisturbed.summary["dataset"]["examples"]["train"] > 0
    assert undisturbed.summary["artifacts"] == f"gs://bucket/{undisturbed.name}"


def test_every_artifact_is_an_object_in_the_bucket_and_none_is_a_file(undisturbed):
    found = undisturbed.objects()
    training = "plan-training/training"
    assert "create-tfrecords/records/rejected.jsonl" in found
    for name in (
        "flowers.yaml",
        "create-tfrecords/records/dataset.json",
        f"{training}/checkpoints/checkpoint",
        f"{training}/checkpoints/run.json",
        f"{training}/history.csv",
        f"{training}/metrics.json",
        f"{training}/model/saved_model.pb",
        f"{training}/model/variables/variables.index",
        "evaluate-model/report.html",
        "evaluate-model/evaluation",
        "evaluate-model/decision",
    ):
        assert found.get(name), f"{name} is not among {sorted(found)}"
    for beginning, ending in (
        ("create-tfrecords/records/train-", ".tfrecord"),
        (f"{training}/logs/train/events.", ".v2"),
        (f"{training}/logs/validation/events.", ".v2"),
        (f"{training}/checkpoints/ckpt-", ".index"),
    ):
        assert any(name.startswith(beginning) and name.endswith(ending) for name in found)
    outputs = {"executor_output.json", "gcp_resources"}
    here = [path for path in undisturbed.directory.glob("artifacts/**/*") if path.is_file()]
    assert {path.name for path in here} <= outputs


def test_nothing_unfinished_is_left_in_the_bucket(undisturbed, disturbed):
    for run in (undisturbed, disturbed):
        leftovers = [n for n in run.objects() if "partial" in n or "temp" in n or ".unf" in n]
        assert not leftovers


def test_with_a_twentieth_of_the_requests_failing_the_run_succeeds(disturbed):
    assert disturbed.code == 0, disturbed.shown + disturbed.logs()
    assert sum(disturbed.faults.values()) == pytest.approx(RATE * disturbed.requests, abs=5)
    assert set(disturbed.faults) == set(KINDS)


def test_with_a_twentieth_of_the_requests_failing_the_records_are_the_same(undisturbed, disturbed):
    folders = [f"{run.name}/create-tfrecords/records" for run in (undisturbed, disturbed)]
    bucket = undisturbed.bucket
    names = [sorted(bucket.sizes(folder)) for folder in folders]
    assert names[0] == names[1]
    for name in names[0]:
        assert bucket.get(f"{folders[0]}/{name}") == bucket.get(f"{folders[1]}/{name}"), name


def test_with_a_twentieth_of_the_requests_failing_the_weights_are_the_same(
    undisturbed, disturbed, tmp_path
):
    first, second = (
        run.download("plan-training/training", tmp_path / str(number))
        for number, run in enumerate((undisturbed, disturbed))
    )
    trained, again = newest_checkpoint(first), newest_checkpoint(second)
    assert len(trained) > 10
    assert_equal_arrays(again, trained)
    # An export numbers its variables as they come.
    served = variables(first / "model" / "variables" / "variables")
    assert sorted(map(as_bytes, served.values())) == sorted(
        map(as_bytes, variables(second / "model" / "variables" / "variables").values())
    )
