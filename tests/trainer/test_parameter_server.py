"""Parameter servers: who dies, dies; the run ends at its exact step all the same."""

import contextlib
import csv
import json
import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.records import digits
from trainer.config import TrainingConfig
from trainer.errors import RETRY_EXIT_CODE
from trainer.training import checkpoint, replica, synchronous
from trainer.training.job import Job

ROLES = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return digits(tmp_path_factory.mktemp("records"), (500, 340, 160), 120)


@contextlib.contextmanager
def training(records, folder: Path, epochs: int, *more: str, roles=()):
    """A cluster that has saved a checkpoint, of a job in `run` whose epochs have 63 steps."""
    flags = [
        f"--dataset={records.uri}",
        f"--base_output_directory={folder / 'run'}",
        f"--epochs={epochs}",
        "--strategy=parameter_server",
        "--learning_rate=0.002",
        "--batch_size=16",
        *more,
    ]
    with replicas.Cluster("trainer.task", flags, [*ROLES, *roles], folder / "logs") as cluster:
        cluster.start_all()
        cluster.wait_for(lambda: replicas.position(folder / "run") > (0, 0))
        yield cluster


def test_a_worker_that_dies_leaves_the_exact_steps_to_the_others(records, tmp_path):
    epochs, steps = 5, 63
    run, more = tmp_path / "run", [("evaluator", 0)]
    with training(records, tmp_path, epochs, "--evaluator_pool=3", roles=more) as cluster:
        cluster.kill("worker", 1)
        assert _position(run, steps) < epochs * steps
        for role in ("chief", "evaluator"):
            assert cluster.processes[role, 0].wait(240) == 0, cluster.tails()
        # The others are shut down by whoever has started them.
        assert [cluster.processes[one].poll() for one in (("worker", 0), ("ps", 0))] == [None] * 2
    assert "/task:1 is gone; the others continue" in (tmp_path / "logs/chief-0.log").read_text()

    metrics = json.loads((run / "metrics.json").read_text())
    assert (metrics["epochs"], metrics["steps"], metrics["replicas"]) == (epochs, epochs * steps, 2)
    assert _position(run, steps) == _optimizer_steps(run) == epochs * steps
    assert metrics["validation"]["accuracy"] > 0.6

    evaluations = _rows(run / "evaluations.csv")
    assert evaluations[-1]["step"] == str(epochs * steps)
    assert float(evaluations[-1]["accuracy"]) == pytest.approx(metrics["validation"]["accuracy"])
    history = {int(row["epoch"]) * steps: row for row in _rows(run / "history.csv")}
    assert list(history) == [steps * epoch for epoch in range(1, epochs + 1)]
    assert history[epochs * steps]["validation_accuracy"]
    for row in evaluations:  # What came too late for the chief is in evaluations.csv alone.
        assert history[int(row["step"])]["validation_loss"] in ("", row["loss"])
    assert list((run / "logs" / "evaluator").glob("events.*"))

    served = tf.saved_model.load(str(run / "model")).signatures["serving_default"]
    assert served(image=tf.zeros([2, 8, 8, 1], tf.uint8))["probabilities"].shape == (2, 10)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_frozen_worker_is_named_and_the_others_go_on(records, tmp_path):
    epochs, steps = 16, 63
    run, log = tmp_path / "run", tmp_path / "logs/chief-0.log"
    with training(records, tmp_path, epochs) as cluster:
        cluster.processes["worker", 1].send_signal(signal.SIGSTOP)
        cluster.wait_for(lambda: "worker 1 does not answer; the others continue" in log.read_text())
        assert cluster.processes["chief", 0].wait(300) == 0, cluster.tails()
    assert _position(run, steps) == _optimizer_steps(run) == epochs * steps


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_frozen_parameter_server_ends_the_try(records, tmp_path):
    epochs, steps = 8, 63
    run = tmp_path / "run"
    with training(records, tmp_path, epochs) as cluster:
        cluster.processes["ps", 0].send_signal(signal.SIGSTOP)
        assert cluster.processes["chief", 0].wait(300) == RETRY_EXIT_CODE, cluster.tails()
        assert "error: ps 0 does not answer" in (tmp_path / "logs/chief-0.log").read_text()
        for process in cluster.processes.values():  # As the job's next try does.
            process.kill()
            process.wait()
        cluster.start_all()
        assert cluster.processes["chief", 0].wait(300) == 0, cluster.tails()
    assert _position(run, steps) == _optimizer_steps(run) == epochs * steps


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_whoever_is_killed_the_run_ends_at_its_exact_step(records, tmp_path):
    epochs, steps = 64, 63
    run, log = tmp_path / "run", tmp_path / "logs" / "chief-0.log"
    with training(records, tmp_path, epochs, "--checkpoint_steps=25") as cluster:

        def has_moved_on() -> None:
            goal = _position(run, steps) + 50
            cluster.wait_for(lambda: _position(run, steps) >= goal)

        has_moved_on()
        # The chief alone starts again.
        cluster.kill("chief")
        cluster.start("chief")
        has_moved_on()
        # The chief notices the loss of the weights, waits, and goes on from the checkpoint.
        cluster.kill("ps")
        cluster.wait_for(lambda: "a peer of chief 0 is gone" in log.read_text())
        cluster.start("ps")
        has_moved_on()
        # Told to stop, it keeps what it has.
        cluster.processes["chief", 0].terminate()
        assert cluster.processes["chief", 0].wait(240) == RETRY_EXIT_CODE, cluster.tails()
        cluster.start("chief")
        has_moved_on()
        # A worker joins again: the other one is gone for good, and still the run ends.
        cluster.kill("worker", 1)
        cluster.start("worker", 1)
        cluster.wait_for(lambda: "/task:1 is back" in log.read_text())
        cluster.kill("worker", 0)
        assert _position(run, steps) < epochs * steps
        assert cluster.processes["chief", 0].wait(400) == 0, cluster.tails()

    assert json.loads((run / "metrics.json").read_text())["steps"] == epochs * steps
    assert _position(run, steps) == _optimizer_steps(run) == epochs * steps
    assert [int(row["epoch"]) for row in _rows(run / "history.csv")] == [*range(1, epochs + 1)]
    assert float(_rows(run / "history.csv")[-1]["validation_accuracy"]) > 0.8
    assert log.read_text().count("resuming from the checkpoint at epoch") == 3


@pytest.mark.parametrize(
    ("message", "raised"),
    [
        ("Unable to find the relevant tensor remote_handle: Op ID: 7", replica.PeerGoneError),
        ("Incompatible shapes: [2] vs. [3]", tf.errors.InvalidArgumentError),
    ],
)
def test_a_server_that_was_replaced_unseen_is_waited_for(
    records, tmp_path, monkeypatch, message, raised
):
    def train(job, cluster):
        raise tf.errors.InvalidArgumentError(None, None, message)

    monkeypatch.setattr(synchronous, "train", train)
    # It would hold for all tests that follow.
    monkeypatch.setattr(tf.config.experimental, "enable_op_determinism", lambda: None)
    config = TrainingConfig(strategy="one_device")
    with pytest.raises(raised):
        replica.run(Job(dataset=records.uri, base_output_directory=str(tmp_path), config=config))


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_damaged_index_of_a_checkpoint_is_noticed(tmp_path, kept):
    content = tf.train.Checkpoint(value=tf.Variable(tf.range(99.0)))
    manager = tf.train.CheckpointManager(content, str(tmp_path), max_to_keep=2)
    first, second = manager.save(), Path(manager.save() + ".index")
    data = second.read_bytes()
    second.write_bytes(data[: int(kept * len(data))] + b"damage")
    checkpoint.repair_lists(str(tmp_path))
    assert checkpoint.listed(str(tmp_path)) == [first]
    (tmp_path / "checkpoint").write_bytes(b"\xff")
    assert checkpoint.listed(str(tmp_path)) == []
    with pytest.raises(RuntimeError, match="can't be read; start the job again"):
        checkpoint.progress_in(str(tmp_path))


@pytest.mark.parametrize("folder", ["", "best"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: b"\xff" + text,
        lambda text: text[:30],
        lambda text: text.replace(b"ckpt-2", b"ckpt-7", 1),
        lambda text: text.replace(b"ckpt", b"\\xff", 1),
    ],
)
def test_a_damaged_list_is_made_from_the_files(tmp_path, capfd, folder, damage):
    content = tf.train.Checkpoint(value=tf.Variable(tf.range(9.0)))
    manager = tf.train.CheckpointManager(content, str(tmp_path / folder), max_to_keep=2)
    saved = [manager.save(), manager.save()]
    names = tmp_path / folder / "checkpoint"
    names.write_bytes(damage(names.read_bytes()))
    checkpoint.repair_lists(str(tmp_path))
    assert checkpoint.listed(str(tmp_path / folder)) == saved
    assert tf.train.latest_checkpoint(tmp_path / folder) == saved[-1]
    said = f"{names} does not name the newest checkpoint; resuming from {saved[-1]}\n"
    assert capfd.readouterr().out == said


def test_a_checkpoint_counts_once_it_is_whole_and_may_go_while_it_is_read(tmp_path):
    variable = tf.keras.Variable([1.0, 2.0])
    directory = str(tmp_path)
    assert checkpoint.listed(directory) == []
    content = tf.train.Checkpoint(variables=[variable.value])
    # The chief writes the data first and then the index, and the list of checkpoints last.
    content.write(f"{directory}/ckpt-1")
    assert checkpoint.listed(directory) == []
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"\nall_mod')
    assert checkpoint.listed(directory) == []
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: "ckpt-1"\n'
    )
    (path,) = checkpoint.listed(directory)
    data = next(tmp_path.glob("ckpt-1.data-*"))
    for damage in (data.unlink, lambda: data.write_bytes(b"")):
        damage()
        assert checkpoint.read(path, [variable]) is None


def _position(run: Path, steps: int) -> int:
    """Steps behind the newest checkpoint."""
    epochs, step = replicas.position(run)
    return epochs * steps + step


def _optimizer_steps(run: Path) -> int:
    """The optimizer's own count in the newest checkpoint, its one whole number."""
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(run / "checkpoints")))
    kinds = reader.get_variable_to_dtype_map()
    (count,) = {
        int(reader.get_tensor(name))
        for name, dtype in kinds.items()
        if dtype.is_integer
        and np.shape(reader.get_tensor(name)) == ()
        and "save_counter" not in name
    }
    return count


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))
