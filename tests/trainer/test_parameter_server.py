"""Training with parameter servers ends at its exact step, no matter which replica dies."""

import contextlib
import csv
import json
import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.learned_weights import newest_checkpoint
from tests.small_records import digits
from trainer.training import loop, replica
from trainer.training.config import TrainingConfig
from trainer.training.job import Job
from vertex.errors import RETRY_EXIT_CODE

STEPS = 63
"""Steps of an epoch."""
WITH_EVALUATOR = (("worker", 1), ("evaluator", 0))


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return digits(tmp_path_factory.mktemp("records"), (500, 340, 160), 120)


@contextlib.contextmanager
def training(records, folder: Path, epochs: int, more: str = "", roles=(("worker", 1),)):
    """Yield a cluster that trains a job in `run`, which logs to `folder`: it compiles its steps."""
    options = f"--strategy=parameter_server --learning_rate=0.002 --batch_size=16 {more}"
    flags = replicas.flags(records, folder / "run", f"--epochs={epochs} {options}")
    roles = [("chief", 0), ("worker", 0), ("ps", 0), *roles]
    with replicas.Cluster("trainer.task", flags, roles, folder) as cluster:
        cluster.start_all()
        cluster.wait_for(lambda: "compiling the" in (folder / "chief-0.log").read_text())
        yield cluster


def position(folder: Path) -> int:
    """Return the number of steps before the newest checkpoint."""
    epochs, step = replicas.position(folder / "run")
    return epochs * STEPS + step


def assert_ended_at(steps: int, folder: Path) -> None:
    """Check the newest checkpoint's position and the optimizer's count, its one integer."""
    assert position(folder) == steps
    numbers = newest_checkpoint(folder / "run").values()
    integers = [value for value in numbers if np.issubdtype(value.dtype, np.integer)]
    assert {int(value) for value in integers if value.shape == ()} == {steps}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_cancelled_job_ends_at_once_even_while_it_compiles(records, tmp_path):
    with training(records, tmp_path, epochs=1, roles=()) as cluster:
        for process in cluster.processes.values():
            process.send_signal(signal.SIGTERM)
        assert cluster.processes["chief", 0].wait(20) == RETRY_EXIT_CODE, cluster.tails()
    assert "told to stop, and the parameter servers are gone" in cluster.tails()


@pytest.mark.slow
def test_other_workers_take_a_dead_workers_steps(records, tmp_path):
    epochs, run = 5, tmp_path / "run"
    # The chief leaves validation to the evaluator.
    options = "--keep_epoch=last --evaluator_pool=3"
    with training(records, tmp_path, epochs, options, WITH_EVALUATOR) as cluster:
        cluster.wait_for(lambda: position(tmp_path) > 0)
        cluster.kill("worker", 1)
        assert position(tmp_path) < epochs * STEPS
        for role in ("chief", "evaluator"):
            assert cluster.processes[role, 0].wait(240) == 0, cluster.tails()
        # Vertex AI shuts the others down.
        assert [cluster.processes[place].poll() for place in (("worker", 0), ("ps", 0))] == [
            None
        ] * 2
    assert "/task:1 is gone; the others continue" in (tmp_path / "chief-0.log").read_text()

    metrics = json.loads((run / "metrics.json").read_text())
    assert (metrics["epochs"], metrics["steps"], metrics["replicas"]) == (epochs, epochs * STEPS, 2)
    assert_ended_at(epochs * STEPS, tmp_path)
    assert metrics["validation"]["accuracy"] > 0.6

    evaluations = rows(run / "evaluations.csv")
    assert evaluations[-1]["step"] == str(epochs * STEPS)
    assert float(evaluations[-1]["accuracy"]) == pytest.approx(metrics["validation"]["accuracy"])
    history = {int(row["epoch"]) * STEPS: row for row in rows(run / "history.csv")}
    assert list(history) == [STEPS * epoch for epoch in range(1, epochs + 1)]
    assert history[epochs * STEPS]["validation_accuracy"]
    for row in evaluations:  # What came too late for the chief is in evaluations.csv alone.
        assert history[int(row["step"])]["validation_loss"] in ("", row["loss"])
    assert list((run / "logs" / "evaluator").glob("events.*"))

    served = tf.saved_model.load(str(run / "model")).signatures["serving_default"]
    assert served(image=tf.zeros([2, 8, 8, 1], tf.uint8))["probabilities"].shape == (2, 10)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_others_continue_without_a_frozen_worker(records, tmp_path):
    epochs, log = 16, tmp_path / "chief-0.log"
    with training(records, tmp_path, epochs) as cluster:
        cluster.wait_for(lambda: position(tmp_path) > 0)
        cluster.processes["worker", 1].send_signal(signal.SIGSTOP)
        cluster.wait_for(lambda: "worker 1 does not answer; the others continue" in log.read_text())
        assert cluster.processes["chief", 0].wait(300) == 0, cluster.tails()
    assert_ended_at(epochs * STEPS, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_frozen_parameter_server_asks_for_a_retry(records, tmp_path):
    epochs = 8
    with training(records, tmp_path, epochs) as cluster:
        cluster.wait_for(lambda: position(tmp_path) > 0)
        cluster.processes["ps", 0].send_signal(signal.SIGSTOP)
        assert cluster.processes["chief", 0].wait(300) == RETRY_EXIT_CODE, cluster.tails()
        assert "error: ps 0 does not answer" in (tmp_path / "chief-0.log").read_text()
        for process in cluster.processes.values():  # As before the job's next try.
            process.kill()
            process.wait()
        cluster.start_all()
        assert cluster.processes["chief", 0].wait(300) == 0, cluster.tails()
    assert_ended_at(epochs * STEPS, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_run_of_killed_replicas_ends_at_its_exact_step(records, tmp_path):
    epochs, run, log = 64, tmp_path / "run", tmp_path / "chief-0.log"
    options = "--checkpoint_steps=25 --evaluator_pool=3"
    with training(records, tmp_path, epochs, options, WITH_EVALUATOR) as cluster:

        def wait_for_progress() -> None:
            goal = position(tmp_path) + 50
            cluster.wait_for(lambda: position(tmp_path) >= goal)

        wait_for_progress()
        cluster.kill("evaluator")
        cluster.start("evaluator")
        # The chief alone starts again.
        cluster.kill("chief")
        cluster.start("chief")
        wait_for_progress()
        # The chief notices the loss of the weights, waits, and continues from the checkpoint.
        cluster.kill("ps")
        cluster.wait_for(lambda: "a peer of chief 0 is gone" in log.read_text())
        cluster.start("ps")
        wait_for_progress()
        # A chief that is asked to end saves a checkpoint.
        cluster.processes["chief", 0].send_signal(signal.SIGTERM)
        assert cluster.processes["chief", 0].wait(240) == RETRY_EXIT_CODE, cluster.tails()
        cluster.start("chief")
        wait_for_progress()
        # One worker joins again, the other is gone for good, and still the run ends.
        cluster.kill("worker", 1)
        cluster.start("worker", 1)
        cluster.wait_for(lambda: "/task:1 is back" in log.read_text())
        cluster.kill("worker", 0)
        assert position(tmp_path) < epochs * STEPS
        for role in ("chief", "evaluator"):
            assert cluster.processes[role, 0].wait(400) == 0, cluster.tails()

    assert rows(run / "evaluations.csv")[-1]["step"] == str(epochs * STEPS)
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["steps"] == epochs * STEPS
    assert_ended_at(epochs * STEPS, tmp_path)
    history = rows(run / "history.csv")
    assert [int(row["epoch"]) for row in history] == [*range(1, epochs + 1)]
    assert float(history[-1]["validation_accuracy"]) > 0.8
    losses = [float(row["validation_loss"]) for row in history]
    assert losses[metrics["kept_epoch"] - 1] == metrics["validation"]["loss"] == min(losses)
    assert log.read_text().count("resuming from the checkpoint at epoch") == 3


@pytest.mark.parametrize(
    ("kind", "message", "raised"),
    [
        ("InvalidArgument", "Unable to find the relevant tensor remote_handle", "PeerGoneError"),
        ("InvalidArgument", "Incompatible shapes: [2] vs. [3]", "InvalidArgumentError"),
        ("ResourceExhausted", "No space left on device", "InputError: no space left to write to"),
        ("ResourceExhausted", "OOM when allocating", "InputError: batch_size=64 and model="),
        ("Unimplemented", "no kernel", "UnimplementedError"),
    ],
)
def test_error_of_tensorflow_names_its_cause(records, tmp_path, monkeypatch, kind, message, raised):
    def train(job, cluster):
        raise getattr(tf.errors, f"{kind}Error")(None, None, message)

    monkeypatch.setattr(loop, "train", train)
    # It would hold for all tests that follow.
    monkeypatch.setattr(tf.config.experimental, "enable_op_determinism", lambda: None)
    config = TrainingConfig(strategy="one_device")
    with pytest.raises(Exception) as error:
        replica.run(Job(dataset=records.uri, base_output_directory=str(tmp_path), config=config))
    assert f"{error.typename}: {error.value}".startswith(raised)
