"""Training that is killed, on storage that fails now and then, ends in the weights of any other."""

import json
import signal

import pytest

from tests import records, replicas
from tests.gcs.proxy import FaultyProxy
from tests.pipelines.local.conftest import wait_for
from tests.weights import assert_equal_arrays, newest_checkpoint
from trainer.errors import RETRY_EXIT_CODE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS_KEPT = 4  # The killed run is saved within its first epoch of 8 steps.


@pytest.fixture(scope="module")
def flags(server, tmp_path_factory):
    """Of a job on digits in the bucket, but for its directory."""
    folder = tmp_path_factory.mktemp("digits")
    dataset = records.digits(folder, (256,))
    for path in folder.iterdir():
        server.put(f"digits/{path.name}", path.read_bytes())
    return [
        "--dataset=gs://bucket/digits",
        "--epochs=3",
        f"--checkpoint_steps={STEPS_KEPT}",
        f"--batch_size={dataset.splits['train'].examples // 8}",
    ]


@pytest.fixture(scope="module")
def whole(server, flags, tmp_path_factory):
    """Weights and metrics of a job that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    with FaultyProxy(server.port, folder) as proxy, pytest.MonkeyPatch.context() as patch:
        for name, value in proxy.environment.items():
            patch.setenv(name, value)
        command = [*flags, "--base_output_directory=gs://bucket/whole"]
        replicas.run("trainer.task", command, replicas.ALONE, folder / "logs")
    return left_by("whole", server, folder)


def left_by(name, server, folder):
    """Weights, and what of metrics.json is no matter of time."""
    metrics = json.loads(server.get(f"{name}/metrics.json"))
    kept = {key: metrics[key] for key in ("epochs", "steps", "train", "validation")}
    return newest_checkpoint(server.download(name, folder / name)), kept


def kill(chief, proxy):
    chief.kill()
    assert chief.wait() == -signal.SIGKILL


def go_silent(chief, proxy):
    before = proxy.rate, proxy.kinds
    proxy.rate, proxy.kinds = 1.0, ("unavailable",)
    assert chief.wait(60) == RETRY_EXIT_CODE
    proxy.rate, proxy.kinds = before


@pytest.mark.parametrize(
    ("end", "said"),
    [
        pytest.param(kill, "", id="killed"),
        pytest.param(go_silent, "error: storage does not answer: All 10", id="storage silent"),
    ],
)
def test_a_job_that_ends_early_and_is_started_again_learns_the_same(
    end, said, server, whole, flags, tmp_path, start_proxy
):
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
    weights, metrics = left_by(name, server, tmp_path)
    assert_equal_arrays(weights, whole[0])
    assert metrics == whole[1]
