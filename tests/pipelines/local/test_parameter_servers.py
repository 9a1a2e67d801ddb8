"""A job with parameter servers, whose replicas are killed one after the other."""

import json
import os
import pathlib
import signal

import pytest

from tests.pipelines.local.conftest import job_states, wait_for
from trainer.config import TrainingConfig, write_config
from trainer.machines.worker_pools import MachineOptions, build_worker_pool_specs

PARENT = "projects/p/locations/us-central1"
ROLES = ("evaluator", "worker", "ps", "chief")
EPOCHS, STEPS = 80, 63


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_job_survives_the_death_of_each_role(client, digit_records, tmp_path):
    base = tmp_path / "base"
    options = {"epochs": EPOCHS, "batch_size": 16, "learning_rate": 0.001, "checkpoint_steps": 25}
    config = TrainingConfig(strategy="parameter_server", **options)
    machines = MachineOptions(worker_count=2, ps_count=1, evaluator_count=1)
    flags = [f"--dataset={digit_records.uri}", f"--base_output_directory={base}"]
    pools = build_worker_pool_specs(
        machines, [*flags, f"--config={write_config(config, str(base))}"]
    )
    job = {"display_name": "train", "job_spec": {"worker_pool_specs": pools}}
    name = client.create_custom_job(parent=PARENT, custom_job=job).name
    wait_for(lambda: job_states(tmp_path))

    def replica(role):
        (state,) = job_states(tmp_path)
        assert "endTime" not in state["job"], state
        return next(
            state_of_role for state_of_role in state["replicas"] if state_of_role["role"] == role
        )

    def position():
        """Return the steps that the newest checkpoint has completed."""
        try:
            newest = (base / "checkpoints" / "checkpoint").read_text().split('"')[1]
        except FileNotFoundError:
            return 0
        epochs, step = divmod(int(newest.rpartition("-")[2]), 10**9)
        return epochs * STEPS + step

    for role in ROLES:
        goal = position() + 50
        wait_for(lambda goal=goal: replica("chief") and position() >= goal, 200)
        assert position() < EPOCHS * STEPS
        killed = replica(role)
        os.kill(killed["pid"], signal.SIGKILL)
        wait_for(lambda role=role, n=killed["starts"]: replica(role)["starts"] > n, 60)
        if role == "ps":
            # The weights are lost with it: the chief restarts itself as a new process.
            log = pathlib.Path(replica("chief")["log"])
            wait_for(lambda log=log: "a peer of chief 0 is gone" in log.read_text(), 60)

    def ended():
        state = client.get_custom_job(name=name).state.name
        return state if state not in ("JOB_STATE_PENDING", "JOB_STATE_RUNNING") else None

    assert wait_for(ended, 400) == "JOB_STATE_SUCCEEDED"
    metrics = json.loads((base / "metrics.json").read_text())
    assert (metrics["epochs"], metrics["steps"]) == (EPOCHS, EPOCHS * STEPS)
    assert position() == EPOCHS * STEPS
    assert metrics["validation"]["accuracy"] > 0.8
    (state,) = job_states(tmp_path)
    states = {
        (replica["role"], replica["index"]): replica["state"] for replica in state["replicas"]
    }
    assert states["chief", 0] == "SUCCEEDED"
    starts = {
        (replica["role"], replica["index"]): replica["starts"] for replica in state["replicas"]
    }
    assert [starts[role, 0] for role in ROLES] == [2] * len(ROLES)
    assert {states[role, 0] for role in ("worker", "ps")} == {"STOPPED"}
    assert (base / "evaluations.csv").read_text().count("\n") > 2
