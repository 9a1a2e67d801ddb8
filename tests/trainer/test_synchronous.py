"""Several replicas learn what one learns; a killed run ends as one that was never killed."""

import csv
import json
import os
import signal
import time
from pathlib import Path

import keras
import numpy as np
import pytest

from tests import replicas
from tests.records import digits
from trainer.errors import RETRY_EXIT_CODE
from trainer.training import rejoin, weights

TASK = "trainer.task"
DUMP = "tests.trainer.dump_weights"


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """257 training examples in two uneven shards: five batches of 56, the last with 33."""
    return digits(tmp_path_factory.mktemp("records"))


def read(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as content:
        return dict(content)


SGD = "--optimizer=sgd --learning_rate=0.05 --gradient_clip_norm=1.0"
ADAMW = "--optimizer=adamw --weight_decay=0.01"


@pytest.mark.parametrize("optimizer", [SGD, pytest.param(ADAMW, marks=pytest.mark.slow)])
def test_workers_and_devices_learn_what_one_learns(records, trained, tmp_path, optimizer):
    start = weights.copy(str(trained), str(tmp_path))
    options = (
        f"--warm_start={start} --epochs=2 --batch_size=56 --label_smoothing=0.1 "
        f'--class_weights=balanced --model_options={{"dropout":0.0}} {optimizer}'
    )

    def training(name: str, strategy: str) -> list[str]:
        folder = tmp_path / name
        folder.mkdir()
        flags = replicas.flags(records, folder / "run", f"--strategy={strategy} {options}")
        return [str(folder), *flags]

    here = ["2", *training("one", "one_device"), "+", *training("devices", "mirrored")]
    replicas.run(DUMP, here, replicas.ALONE, tmp_path)
    workers = ["1", *training("workers", "multi_worker_mirrored")]
    replicas.run(DUMP, workers, replicas.CHIEF_AND_WORKER, tmp_path)
    one, devices, chief = (
        read(tmp_path / name / "chief-0.npz") for name in ("one", "devices", "workers")
    )
    worker = read(tmp_path / "workers" / "worker-0.npz")
    for path, value in one.items():
        np.testing.assert_allclose(devices[path], value, atol=1e-5)
        np.testing.assert_allclose(chief[path], value, atol=1e-5)
        np.testing.assert_array_equal(worker[path], chief[path])
    loaded = keras.saving.load_model(start).variables
    before = [variable.numpy() for variable in loaded if "seed" not in variable.path]
    pairs = zip(one.values(), before, strict=True)
    assert max(np.abs(value - old).max() for value, old in pairs) > 100 * 1e-5


KILLS = ((2, 1, signal.SIGTERM), (5, 0, signal.SIGKILL), (9, 1, signal.SIGKILL))
"""After which epoch which replica is lost to which signal; at the last one, the whole job."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("epochs", "kills"), [(4, 1), pytest.param(14, 3, marks=pytest.mark.slow)])
def test_killed_run_ends_with_the_weights_of_an_unkilled_one(
    records, tmp_path, monkeypatch, epochs, kills
):
    temporary, whole, killed, logs = (
        tmp_path / name for name in ("temporary", "whole", "killed", "logs")
    )
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    options = (
        f"--epochs={epochs} --batch_size=16 --checkpoint_steps=5 --augmentation=model "
        "--schedule=cosine --plateau_patience=2 --early_stopping_patience=12"
    )
    flags = replicas.flags(records, whole, options)
    replicas.run(TASK, flags, replicas.CHIEF_AND_WORKER, tmp_path / "whole-logs")
    assert not list(temporary.iterdir())

    flags = replicas.flags(records, killed, options)
    with replicas.Cluster(TASK, flags, replicas.CHIEF_AND_WORKER, logs) as cluster:
        cluster.start_all()
        for epoch, victim, how in KILLS[:kills]:
            cluster.wait_for(lambda epoch=epoch: replicas.position(killed) > (epoch, 0))
            # Between two checkpoints no replica has a copy, which it would leave behind.
            cluster.wait_for(lambda: not checkpoints_in(temporary))
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
    printed = (logs / "chief-0.log").read_text() + (logs / "worker-0.log").read_text()
    assert printed.count("; waiting for it") >= min(kills, 2)
    assert printed.count("resuming from the checkpoint") >= kills

    assert replicas.position(killed) == replicas.position(whole) == (epochs, 0)
    ours, theirs = (replicas.newest_checkpoint(run) for run in (killed, whole))
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert untimed_history(killed) == untimed_history(whole)


def test_peer_that_stays_away_ends_the_try(records, tmp_path, monkeypatch):
    monkeypatch.setenv(rejoin.WAITED_SINCE, str(time.time() - rejoin.PATIENCE_SECONDS - 1))
    flags = replicas.flags(records, tmp_path / "run")
    log = tmp_path / "chief-0.log"
    with replicas.Cluster(TASK, flags, replicas.CHIEF_AND_WORKER, tmp_path) as cluster:
        cluster.start_all()
        cluster.wait_for(lambda: "over 2 replicas" in log.read_text())
        cluster.processes["worker", 0].kill()
        assert cluster.processes["chief", 0].wait(240) == RETRY_EXIT_CODE, cluster.tails()
    (line,) = [line for line in log.read_text().splitlines() if line.startswith("error: ")]
    assert line.startswith("error: a peer of chief 0 is gone (")
    assert line.endswith("), and did not come back")


@pytest.mark.slow
def test_evaluator_of_a_single_chief_scores_its_last_checkpoint(digit_records, tmp_path):
    run = tmp_path / "run"
    options = (
        "--epochs=6 --max_train_examples=700 --steps_per_epoch=9 --learning_rate=0.002 "
        '--augmentation=model --augmentation_operations=["shift"] --evaluator_pool=1'
    )
    # The second pool is the workers' to Vertex AI, and so in TF_CONFIG.
    flags = replicas.flags(digit_records, run, options)
    replicas.run("trainer.task", flags, replicas.CHIEF_AND_WORKER, tmp_path)
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["replicas"] == 1
    with (run / "evaluations.csv").open() as file:
        *_, last = csv.DictReader(file)
    assert (last["epoch"], last["step"]) == ("6", str(6 * 9))
    for name in ("loss", "accuracy"):
        assert float(last[name]) == pytest.approx(metrics["validation"][name], rel=1e-4)
    assert list((run / "logs" / "evaluator").glob("events.*"))


def checkpoints_in(folder: Path) -> list[str]:
    return [name for _, _, names in os.walk(folder) for name in names if "ckpt-" in name]


def untimed_history(run: Path) -> list[list[str]]:
    """Return history.csv without what time decides."""
    lines = (run / "history.csv").read_text().splitlines()
    return [line.split(",")[:6] for line in lines]
