"""Several replicas learn what one learns; a killed run ends as one that was never killed."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.records import digits
from trainer.errors import RETRY_EXIT_CODE
from trainer.training import rejoin

TASK = "trainer.task"
DUMP = "tests.trainer.dump_weights"


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """257 training examples in two uneven shards: five batches of 56, the last with 33."""
    return digits(tmp_path_factory.mktemp("records"))


def weights(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as content:
        return dict(content)


SGD = ["--optimizer=sgd", "--learning_rate=0.05", "--gradient_clip_norm=1.0"]
ADAMW = ["--optimizer=adamw", "--weight_decay=0.01"]


@pytest.mark.parametrize("optimizer", [SGD, pytest.param(ADAMW, marks=pytest.mark.slow)])
def test_two_workers_and_two_devices_learn_what_one_learns(records, tmp_path, optimizer):
    def training(name: str, strategy: str) -> list[str]:
        (tmp_path / name).mkdir()
        return [
            str(tmp_path / name),
            f"--dataset={records.uri}",
            f"--base_output_directory={tmp_path / name}/run",
            f"--strategy={strategy}",
            "--epochs=2",
            "--batch_size=56",
            '--model_options={"dropout": 0.0}',
            "--label_smoothing=0.1",
            "--class_weights=balanced",
            *optimizer,
        ]

    here = ["2", *training("one", "one_device"), "+", *training("devices", "mirrored")]
    replicas.run(DUMP, here, replicas.ALONE, tmp_path)
    workers = ["1", *training("workers", "multi_worker_mirrored")]
    replicas.run(DUMP, workers, replicas.CHIEF_AND_WORKER, tmp_path)
    names = ("one", "devices", "workers")
    learned = {name: weights(tmp_path / name / "chief-0.npz") for name in names}
    other = weights(tmp_path / "workers" / "worker-0.npz")
    for path, value in learned["one"].items():
        np.testing.assert_allclose(learned["devices"][path], value, atol=1e-5)
        np.testing.assert_allclose(learned["workers"][path], value, atol=1e-5)
        np.testing.assert_array_equal(other[path], learned["workers"][path])
    assert any(np.abs(value).max() > 0.01 for value in learned["one"].values())


KILLS = ((2, 0, signal.SIGKILL), (5, 1, signal.SIGTERM), (9, 1, signal.SIGKILL))
"""After which epoch which replica is lost to which signal; at the last one, the whole job."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("epochs", "kills"), [(8, 2), pytest.param(14, 3, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_and_resumed_ends_with_the_weights_of_one_never_killed(
    records, tmp_path, monkeypatch, epochs, kills
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))

    def flags(run: str) -> list[str]:
        return [
            f"--dataset={records.uri}",
            f"--base_output_directory={tmp_path / run}",
            f"--epochs={epochs}",
            "--batch_size=16",
            "--checkpoint_steps=5",
            "--augmentation=model",
            "--schedule=cosine",
            "--plateau_patience=2",
            "--early_stopping_patience=12",
        ]

    whole = tmp_path / "whole-logs"
    replicas.run(TASK, flags("whole"), replicas.CHIEF_AND_WORKER, whole)

    killed = tmp_path / "killed"
    logs = tmp_path / "killed-logs"
    with replicas.Cluster(TASK, flags("killed"), replicas.CHIEF_AND_WORKER, logs) as cluster:
        cluster.start_all()
        for epoch, victim, how in KILLS[:kills]:
            _wait_for(lambda epoch=epoch: _position(killed) > (epoch, 0), cluster)
            # Between two of them no replica keeps a copy of a checkpoint, to leave it behind.
            _wait_for(lambda: not _checkpoints_in(temporary), cluster)
            lost, survivor = (replicas.CHIEF_AND_WORKER[place] for place in (victim, 1 - victim))
            cluster.processes[lost].send_signal(how)
            code = cluster.processes[lost].wait(240)
            assert code == (RETRY_EXIT_CODE if how == signal.SIGTERM else -9), cluster.tails()
            if epoch == 9:  # The whole job is tried again: all that is left of it is ended.
                cluster.processes[survivor].kill()
                cluster.processes[survivor].wait(60)
                cluster.start(*survivor)
            cluster.start(*lost)  # Else the lost replica alone, which the other one waits for.
        assert [process.wait(600) for process in cluster.processes.values()] == [0, 0]
    said = (logs / "chief-0.log").read_text() + (logs / "worker-0.log").read_text()
    assert said.count("; waiting for it") >= 2
    assert said.count("resuming from the checkpoint") >= kills

    assert _position(killed) == _position(tmp_path / "whole") == (epochs, 0)
    ours, theirs = (replicas.newest_checkpoint(tmp_path / run) for run in ("killed", "whole"))
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert _history(killed) == _history(tmp_path / "whole")


def test_a_peer_that_stays_away_ends_the_try(records, tmp_path, monkeypatch):
    monkeypatch.setenv(rejoin.WAITED_SINCE, str(time.time() - rejoin.PATIENCE_SECONDS - 1))
    flags = [f"--dataset={records.uri}", f"--base_output_directory={tmp_path / 'run'}"]
    log = tmp_path / "chief-0.log"
    with replicas.Cluster(TASK, flags, replicas.CHIEF_AND_WORKER, tmp_path) as cluster:
        cluster.start_all()
        _wait_for(lambda: "over 2 replicas" in log.read_text(), cluster)
        cluster.processes["worker", 0].kill()
        assert cluster.processes["chief", 0].wait(240) == RETRY_EXIT_CODE, cluster.tails()
    (line,) = [line for line in log.read_text().splitlines() if line.startswith("error: ")]
    assert line.startswith("error: a peer of chief 0 is gone (")
    assert line.endswith("), and did not come back")


def _wait_for(condition, cluster: replicas.Cluster, seconds: float = 180) -> None:
    processes = list(cluster.processes.values())
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain\n{cluster.tails()}"
        assert all(process.poll() is None for process in processes), cluster.tails()
        with contextlib.suppress(subprocess.TimeoutExpired):
            processes[0].wait(0.02)


def _checkpoints_in(folder: Path) -> list[str]:
    return [name for _, _, names in os.walk(folder) for name in names if "ckpt-" in name]


def _position(run: Path) -> tuple[int, int]:
    """Epochs that the newest checkpoint has behind it, and steps of the next."""
    newest = tf.train.latest_checkpoint(str(run / "checkpoints"))
    return divmod(int(newest.rpartition("-")[2]), 10**9) if newest else (0, 0)


def _history(run: Path) -> list[list[str]]:
    """history.csv without what time decides."""
    lines = (run / "history.csv").read_text().splitlines()
    return [line.split(",")[:6] for line in lines]
