"""Training that is killed, on storage that fails now and then, ends in the weights of any other."""

import json
import signal

import numpy as np
import pytest

from tests import records, replicas
from tests.gcs.proxy import FaultyProxy
from tests.gcs.weights import newest_checkpoint
from tests.pipelines.local.conftest import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS_KEPT = 4  # The killed run is saved within its first epoch of 8 steps.


@pytest.fixture
def flags(server, tmp_path):
    """Of a job on digits in the bucket, but for its directory."""
    dataset = records.digits(tmp_path / "digits", (256,))
    for path in (tmp_path / "digits").iterdir():
        server.put(f"digits/{path.name}", path.read_bytes())
    return [
        "--dataset=gs://bucket/digits",
        "--epochs=3",
        f"--checkpoint_steps={STEPS_KEPT}",
        f"--batch_size={dataset.splits['train'].examples // 8}",
    ]


def test_a_job_that_is_killed_and_started_again_learns_the_same_from_a_bucket(
    server, proxy, flags, tmp_path, monkeypatch
):
    command = [*flags, "--base_output_directory=gs://bucket/whole"]
    replicas.run("trainer.task", command, replicas.ALONE, tmp_path / "whole")

    (tmp_path / "faulty").mkdir()
    with FaultyProxy(server.port, tmp_path / "faulty", rate=0.05, seed=1) as faulty:
        for name, value in faulty.environment.items():
            monkeypatch.setenv(name, value)
        command = [*flags, "--base_output_directory=gs://bucket/killed"]
        with replicas.Cluster(
            "trainer.task", command, replicas.ALONE, tmp_path / "killed"
        ) as cluster:
            chief = cluster.start("chief")
            wait_for(lambda: "checkpoint" in server.sizes("killed/checkpoints"), seconds=100)
            chief.kill()
            assert chief.wait() == -signal.SIGKILL, cluster.tails()
            assert cluster.start("chief").wait(150) == 0, cluster.tails()
            assert "going on" in cluster.tails()

    whole, again = (
        newest_checkpoint(server.download(name, tmp_path / f"{name}-base"))
        for name in ("whole", "killed")
    )
    assert whole.keys() == again.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(value, again[name], err_msg=name, strict=True)
    metrics = [json.loads(server.get(f"{name}/metrics.json")) for name in ("whole", "killed")]
    for name in ("epochs", "steps", "train", "validation"):
        assert metrics[0][name] == metrics[1][name]
