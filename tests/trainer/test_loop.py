"""Several replicas learn what one learns; a killed run ends as one that was never killed."""

import csv
import json
import os
import random
import signal
from pathlib import Path

import keras
import numpy as np
import pytest

from components.planning import warm_start
from tests import replicas, tables
from tests.learned_weights import assert_equal_arrays, exported, newest_checkpoint
from tests.small_records import digits
from vertex.errors import RETRY_EXIT_CODE

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
EPOCHS = 3


@pytest.fixture(scope="module")
def start(trained, tmp_path_factory) -> str:
    return warm_start.copy(str(trained), str(tmp_path_factory.mktemp("start")))


def learn(start: str, optimizer: str, epochs: int = EPOCHS) -> str:
    """Return options of a training whose weights do not depend on the number of replicas."""
    return (
        f"--warm_start={start} --epochs={epochs} --batch_size=56 --checkpoint_steps=2 "
        "--label_smoothing=0.1 --class_weights=balanced --schedule=cosine --plateau_patience=2 "
        f"--keep_epoch=last --augmentation=model --steps_per_execution=3 {optimizer}"
    )


def learn_on_two_workers(records, folder: Path, options: str) -> Path:
    """Train in `<folder>/run`; the final weights of each replica are in `folder`, too."""
    folder.mkdir()
    flags = replicas.flags(records, folder / "run", options)
    replicas.run(DUMP, ["1", str(folder), *flags], replicas.CHIEF_AND_WORKER, folder)
    return folder


def learn_in_one_process(
    dataset, folder: Path, options: str, strategies=("one_device", "mirrored")
) -> list[dict[str, np.ndarray]]:
    """Train with each strategy, on one or two devices; return the final weights of each by path."""
    arguments = ["2"]
    for strategy in strategies:
        (folder / strategy).mkdir()
        strategy_options = f"--strategy={strategy} {options}"
        flags = replicas.flags(dataset, folder / strategy / "run", strategy_options)
        arguments += [str(folder / strategy), *flags, "+"]
    replicas.run(DUMP, arguments[:-1], replicas.ALONE, folder)
    return [read(folder / strategy / "chief-0.npz") for strategy in strategies]


@pytest.fixture(scope="module")
def two_workers(shared, records, start) -> Path:
    options = learn(start, SGD)
    return shared("workers", lambda folder: learn_on_two_workers(records, folder, options))


@pytest.mark.parametrize("optimizer", [SGD, pytest.param(ADAMW, marks=pytest.mark.slow)])
def test_workers_and_devices_learn_what_one_learns(request, records, start, tmp_path, optimizer):
    options = learn(start, optimizer)
    strategies = ["one_device", *["mirrored"] * (optimizer == ADAMW)]
    alone, *devices = learn_in_one_process(records, tmp_path, options, strategies)
    if optimizer == SGD:
        workers = request.getfixturevalue("two_workers")
    else:
        workers = learn_on_two_workers(records, tmp_path / "workers", options)
    chief, worker = (read(workers / f"{role}-0.npz") for role in ("chief", "worker"))
    for path, value in alone.items():
        for learned in (*devices, chief):
            np.testing.assert_allclose(learned[path], value, atol=1e-5)
        np.testing.assert_array_equal(worker[path], chief[path])
    loaded = keras.saving.load_model(start).variables
    before = [variable.numpy() for variable in loaded if "seed" not in variable.path]
    learned = [value for path, value in alone.items() if "seed" not in path]
    pairs = zip(learned, before, strict=True)
    assert max(np.abs(value - old).max() for value, old in pairs) > 100 * 1e-5


@pytest.mark.slow
def test_batches_are_normalized_over_all_devices(tmp_path):
    dataset = tables.records(tmp_path, 700, **tables.TEXTS)
    options = (
        "--model=wide_and_deep --epochs=2 --batch_size=56 --optimizer=sgd --learning_rate=0.05 "
        '--model_options={"hidden_units":[16,8],"batch_normalization":true}'
    )
    alone, devices = learn_in_one_process(dataset, tmp_path, options)
    assert any("moving_mean" in path for path in alone)
    for path, value in alone.items():
        np.testing.assert_allclose(devices[path], value, atol=1e-5)


@pytest.mark.slow
def test_run_that_lost_a_worker_learns_the_same(records, start, two_workers, tmp_path, monkeypatch):
    finish_with_losses(records, tmp_path, monkeypatch, learn(start, SGD), KILLS[:1])
    # Only kill -9 leaves temporary files.
    assert not list((tmp_path / "temporary").iterdir())
    assert_equal_runs(tmp_path / "killed", two_workers / "run", EPOCHS)


KILLS = ((1, 1, signal.SIGTERM), (5, 0, signal.SIGKILL), (9, 1, signal.SIGKILL))
"""After which epoch which replica is lost to which signal; at the last one, the whole job."""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_run_ends_with_the_weights_of_an_unkilled_one(records, tmp_path, monkeypatch):
    options = (
        "--epochs=14 --batch_size=16 --checkpoint_steps=5 --augmentation=model "
        "--schedule=cosine --plateau_patience=2 --early_stopping_patience=12 --profile_steps=[3,9] "
        "--steps_per_execution=3"
    )
    flags = replicas.flags(records, tmp_path / "whole", options)
    replicas.run(TASK, flags, replicas.CHIEF_AND_WORKER, tmp_path / "whole-logs")
    profile = json.loads((tmp_path / "whole" / "metrics.json").read_text())["profile"]
    assert 0 < profile["all_reduce_seconds"] < profile["step_seconds"]
    finish_with_losses(records, tmp_path, monkeypatch, options, KILLS)
    assert_equal_runs(tmp_path / "killed", tmp_path / "whole", 14)
    assert exported(tmp_path / "killed") == exported(tmp_path / "whole")


@pytest.fixture(scope="module")
def nine_epochs(records, start, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("nine") / "whole"
    return learn_on_two_workers(records, folder, learn(start, SGD, epochs=9)) / "run"


SCHEDULES = int(os.environ.get("ELASTIC_SCHEDULES", "1"))
"""Random schedules of numbers of workers to try."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_run_continues_on_other_numbers_of_workers(records, start, nine_epochs, tmp_path, seed):
    draw = random.Random(seed)
    run = tmp_path / "run"
    flags = replicas.flags(records, run, learn(start, SGD, epochs=9))
    workers = [("worker", index) for index in range(3)]
    # The batch of 56 can't be divided by the three replicas of a run that begins.
    counts = [draw.choice([0, 1, 3]), *(draw.randrange(4) for _ in range(3))]
    for part, count in enumerate(counts[:3]):
        roles = [("chief", 0), *workers[:count]]
        until = 2 * part + draw.randrange(2), 2 * draw.randrange(3)
        with replicas.Cluster(TASK, flags, roles, tmp_path / f"{part}") as cluster:
            cluster.start_all()
            cluster.wait_for(lambda until=until: replicas.position(run) > until)
        assert replicas.position(run) < (9, 0)
    replicas.run(TASK, flags, [("chief", 0), *workers[: counts[3]]], tmp_path / "last")
    assert replicas.position(run) == (9, 0)
    expected = newest_checkpoint(nine_epochs)
    for name, value in newest_checkpoint(run).items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5, err_msg=name)


def finish_with_losses(records, folder: Path, monkeypatch, options: str, kills) -> None:
    """Run a job in `<folder>/killed` to its end, and lose replicas on the way."""
    temporary, killed, logs = (folder / name for name in ("temporary", "killed", "logs"))
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    flags = replicas.flags(records, killed, options)
    with replicas.Cluster(TASK, flags, replicas.CHIEF_AND_WORKER, logs) as cluster:
        cluster.start_all()
        for epoch, victim, how in kills:
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
    assert printed.count("; waiting for it") >= min(len(kills), 2)
    assert printed.count("resuming from the checkpoint") >= len(kills)


def assert_equal_runs(killed: Path, whole: Path, epochs: int) -> None:
    assert replicas.position(killed) == replicas.position(whole) == (epochs, 0)
    assert_equal_arrays(newest_checkpoint(killed), newest_checkpoint(whole))
    assert untimed_history(killed) == untimed_history(whole)


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
