"""Training that is killed, or loses its storage, learns the same weights when restarted."""

import json
import signal

import pytest

from tests import replicas, small_records
from tests.gcs.proxy import FaultyProxy
from tests.learned_weights import assert_equal_arrays, newest_checkpoint
from tests.pipelines.local.conftest import wait_for
from vertex.errors import RETRY_EXIT_CODE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS_KEPT = 4  # The killed run is saved within its first epoch of 8 steps.


@pytest.fixture(scope="module")
def flags(server, tmp_path_factory):
    """Flags of a job on digits in the bucket, except for its directory."""
    folder = tmp_path_factory.mktemp("digits")
    dataset = small_records.digits(folder, (256,))
    server.upload(folder, "digits")
    return [
        "--dataset=gs://bucket/digits",
        "--epochs=3",
        f"--checkpoint_steps={STEPS_KEPT}",
        f"--batch_size={dataset.splits['train'].examples // 8}",
    ]


@pytest.fixture(scope="module")
def whole(server, flags, tmp_path_factory):
    """Weights and metrics of an undisturbed job."""
    folder = tmp_path_factory.mktemp("whole")
    with FaultyProxy(server.port, folder) as proxy, pytest.MonkeyPatch.context() as patch:
        for name, value in proxy.environment.items():
            patch.setenv(name, value)
        command = [*flags, "--base_output_directory=gs://bucket/whole"]
        replicas.run("trainer.task", command, replicas.ALONE, folder / "logs")
    return results_of("whole", server, folder)


def results_of(name, server, folder):
    """Return the weights, and the metrics that do not depend on the machine's speed."""
    metrics = json.loads(server.get(f"{name}/metrics.json"))
    kept = {key: metrics[key] for key in ("epochs", "steps", "train", "validation")}
    return newest_checkpoint(server.download(name, folder / name)), kept


def kill(chief, proxy):
    chief.kill()
    assert chief.wait() == -signal.SIGKILL


def lose_storage(chief, proxy):
    before = proxy.rate, proxy.kinds
    proxy.rate, proxy.kinds = 1.0, ("unavailable",)
    assert chief.wait(60) == RETRY_EXIT_CODE
    proxy.rate, proxy.kinds = before


@pytest.mark.parametrize(
    ("end", "said"),
    [
        pytest.param(kill, "", id="killed"),
        pytest.param(lose_storage, "error: storage does not answer: All 10", id="storage lost"),
    ],
)
def test_restarted_job_learns_the_same(end, said, server, whole, flags, tmp_path, start_proxy):
    name = end.__name__
    faulty = start_proxy(rate=0.05, seed=1)
    command = [*flags, f"--base_output_directory=gs://bucket/{name}"]
    with replicas.Cluster("trainer.task", command, replicas.ALONE, tmp_path / "logs") as cluster:
        chief = cluster.start("chief")
        wait_for(lambda: "checkpoint" in server.sizes(f"{name}/checkpoints"), seconds=100)
        end(chief, faulty)
        assert said in cluster.tails()
        assert cluster.start("chief").wait(150) == 0, cluster.tails()
        assert "resuming from" in cluster.tails()
    weights, metrics = results_of(name, server, tmp_path)
    assert_equal_arrays(weights, whole[0])
    assert metrics == whole[1]
