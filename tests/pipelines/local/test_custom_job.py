"""Training jobs of the emulator: what replicas see, and when they are restarted and stopped."""

import json
import os
import pathlib
import re
import signal
import sys
import tempfile

import pytest

from tests.pipelines.local.conftest import REPLICA, is_alive, wait_for
from vertex.client.cloud_errors import is_capacity
from vertex.emulator.server import Emulator

PARENT = "projects/p/locations/us-central1"
FINAL = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


def job_of(base, *counts, scheduling=None, **actions):
    """Return a CustomJob with `counts[i]` replicas in pool i, which act by their role."""
    container = {
        "image_uri": "example.com/image:1",
        "command": ["python3", str(REPLICA)],
        "args": [f"--{role}={action}" for role, action in actions.items()],
        "env": [{"name": "COLOR", "value": "green"}],
    }
    pool = {"machine_spec": {"machine_type": "n1-standard-4"}, "container_spec": container}
    return {
        "display_name": "train",
        "job_spec": {
            "worker_pool_specs": [{**pool, "replica_count": n} if n else {} for n in counts],
            "base_output_directory": {"output_uri_prefix": str(base)},
            "scheduling": scheduling or {},
        },
    }


def begin(client, base, job, *replicas):
    """Create a job and wait until these replicas have started; return its name."""
    name = client.create_custom_job(parent=PARENT, custom_job=job).name
    wait_for(lambda: all((base / f"{replica}.json").exists() for replica in replicas))
    return name


def ended(client, name, state):
    """Wait for the end of a job, which must be in this state; return the job."""

    def final():
        job = client.get_custom_job(name=name)
        return job if job.state.name in FINAL else None

    job = wait_for(final)
    assert job.state.name == f"JOB_STATE_{state}"
    return job


def finish(client, job, state):
    """Create a job and wait for its end in this state; return it."""
    return ended(client, client.create_custom_job(parent=PARENT, custom_job=job).name, state)


def seen_by(base, replica):
    """Return the environment that a replica has noted."""
    return json.loads((base / f"{replica}.json").read_text())["environment"]


def test_replicas_see_their_cluster_until_the_chief_ends(client, service, tmp_path):
    actions = dict.fromkeys(("worker", "ps", "evaluator"), "serve")
    job = job_of(tmp_path, 1, 2, 1, 1, chief="wait", **actions)
    replicas = ("chief-0", "worker-0", "worker-1", "ps-0", "evaluator-0")
    name = begin(client, tmp_path, job, *replicas)
    pids = [replica.process.pid for replica in service.jobs[0].replicas]
    assert all(map(is_alive, pids))
    (tmp_path / "go").touch()
    ended(client, name, "SUCCEEDED")
    assert not any(map(is_alive, pids))
    states = [replica.state for replica in service.jobs[0].replicas]
    assert states == ["SUCCEEDED", *["STOPPED"] * 4]

    chief = seen_by(tmp_path, "chief-0")
    spec = json.loads(chief["CLUSTER_SPEC"])
    assert spec["task"] == {"type": "workerpool0", "index": 0}
    assert spec["environment"] == "cloud"
    pools = {pool: len(addresses) for pool, addresses in spec["cluster"].items()}
    assert pools == {"workerpool0": 1, "workerpool1": 2, "workerpool2": 1, "workerpool3": 1}
    roles = {"chief": "workerpool0", "worker": "workerpool1", "ps": "workerpool2"}
    cluster = {role: spec["cluster"][pool] for role, pool in roles.items()}
    config = json.loads(chief["TF_CONFIG"])
    assert config["cluster"] == cluster
    assert config["job"] == json.loads(chief["CLUSTER_SPEC"])["job"]
    addresses = [address for pool in spec["cluster"].values() for address in pool]
    assert len(set(addresses)) == 5
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", address) for address in addresses)
    for replica in replicas:
        role, _, index = replica.partition("-")
        task = json.loads(seen_by(tmp_path, replica)["TF_CONFIG"])["task"]
        assert task == {"type": role, "index": int(index)}
    assert chief["AIP_MODEL_DIR"] == f"{tmp_path}/model/"
    assert chief["AIP_CHECKPOINT_DIR"] == f"{tmp_path}/checkpoints/"
    assert chief["AIP_TENSORBOARD_LOG_DIR"] == f"{tmp_path}/logs/"
    assert chief["CLOUD_ML_PROJECT_ID"]
    assert (chief["COLOR"], chief["CUDA_VISIBLE_DEVICES"]) == ("green", "")


def test_empty_pool_keeps_the_positions_of_later_pools(client, tmp_path):
    finish(client, job_of(tmp_path, 1, 0, 1, ps="serve"), "SUCCEEDED")
    cluster = json.loads(seen_by(tmp_path, "chief-0")["TF_CONFIG"])["cluster"]
    assert sorted(cluster) == ["chief", "ps"]


def test_single_replica_has_no_tf_config(client, service, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"left": "over"}')
    # The replica runs this interpreter, in the repository.
    code = """import json, os, sys, time, vertex.errors
block = bytearray(150_000_000)
time.sleep(0.3)
print(json.dumps([sys.executable, json.loads(os.environ["CLUSTER_SPEC"]), *os.environ]))"""
    job = job_of(tmp_path, 1)
    container = job["job_spec"]["worker_pool_specs"][0]["container_spec"]
    container |= {"command": ["python3", "-c", code], "args": []}
    finish(client, job, "SUCCEEDED")
    log = service.jobs[0].directory / "chief-0.log"
    interpreter, cluster, *variables = json.loads(log.read_text())
    assert interpreter == sys.executable
    assert cluster["task"]["type"] == "workerpool0"
    assert "TF_CONFIG" not in variables
    # The memory of this process is not counted.
    assert 150e6 < service.jobs[0].replicas[0].peak_memory < 190e6


ONCE = {"disable_retries": True}
ALL = {"restart_job_on_worker_restart": True}


@pytest.mark.parametrize(
    ("action", "scheduling", "status", "starts"),
    [
        # Transient: the whole job is retried three times.
        ("exit:134", {}, 134, [4, 4]),
        pytest.param("exit:139", {}, 139, [4, 4], marks=pytest.mark.slow),
        ("abort", {}, 134, [4, 4]),
        # Lost: the replica is restarted five times in each of the four attempts.
        pytest.param("die", {}, 137, [4, 24], marks=pytest.mark.slow),
        ("exit:1", {}, 1, [1, 1]),
        ("exit:7", {}, 7, [1, 1]),
        ("complain", {}, 2, [1, 1]),
        ("exit:134", ONCE, 134, [1, 1]),
        pytest.param("exit:134", {**ONCE, **ALL}, 134, [1, 1], marks=pytest.mark.slow),
        # The replica is restarted alone; the job is not retried.
        ("die", ONCE, 137, [1, 6]),
        pytest.param("die", {**ONCE, **ALL}, 137, [1, 6], marks=pytest.mark.slow),
    ],
)
def test_exit_code_decides_restarts(client, service, tmp_path, action, scheduling, status, starts):
    job = job_of(tmp_path, 1, 1, chief="serve", worker=action, scheduling=scheduling)
    assert finish(client, job, "FAILED").error.message == (
        f"The replica workerpool1-0 exited with a non-zero status of {status}. "
        "Termination reason: Error."
    )
    assert [replica.starts for replica in service.jobs[0].replicas] == starts
    log = (service.jobs[0].directory / "worker-0.log").read_text()
    assert log.count("--- restart 5 of 5 ---") == {24: 4, 6: 1}.get(starts[1], 0)


def test_loss_of_a_spot_machine_restarts_the_job(client, service, tmp_path):
    job = job_of(tmp_path, 1, 1, chief="serve", worker="die", scheduling={"strategy": "SPOT"})
    error = finish(client, job, "FAILED").error.message
    assert is_capacity(error), error
    assert error.startswith("Resources are insufficient in region: us-central1.")
    assert [replica.starts for replica in service.jobs[0].replicas] == [7, 7]


def test_replica_out_of_memory_fails_the_job(client, service, tmp_path, monkeypatch):
    counters = tmp_path / "vmstat"
    counters.write_text("pgfault 7\noom_kill 3\n")
    monkeypatch.setattr("vertex.emulator.replica_process._KERNEL_COUNTERS", counters)
    name = begin(client, tmp_path, job_of(tmp_path, 1, chief="serve"), "chief-0")
    counters.write_text("pgfault 7\noom_kill 4\n")
    os.kill(service.jobs[0].replicas[0].process.pid, signal.SIGKILL)
    message = ended(client, name, "FAILED").error.message
    assert message.startswith("The replica workerpool0-0 ran out of memory and exited with a non-z")


@pytest.mark.parametrize(("scheduling", "starts"), [({}, [1, 2]), (ALL, [2, 2])])
def test_killed_worker_restarts_alone_by_default(client, service, tmp_path, scheduling, starts):
    job = job_of(tmp_path, 1, 1, chief="wait", worker="again", scheduling=scheduling)
    name = begin(client, tmp_path, job, "worker-0", "chief-0")
    state = json.loads((service.jobs[0].directory / "job.json").read_text())
    worker = next(r for r in state["replicas"] if r["role"] == "worker")
    os.kill(worker["pid"], signal.SIGKILL)
    wait_for(lambda: service.jobs[0].replicas[1].state == "SUCCEEDED")
    (tmp_path / "go").touch()
    ended(client, name, "SUCCEEDED")
    assert [replica.starts for replica in service.jobs[0].replicas] == starts
    log = (service.jobs[0].directory / "chief-0.log").read_text()
    assert log.count("chief 0 is here") == starts[0]


def test_impossible_command_fails_the_job(client, tmp_path):
    job = finish(client, job_of(tmp_path, 1, chief="exit 0\0"), "FAILED")
    assert job.error.message == "a replica could not be started: ValueError: embedded null byte"


def test_job_ends_at_its_timeout(client, service, tmp_path):
    job = job_of(tmp_path, 1, chief="serve", scheduling={"timeout": "0.5s"})
    error = finish(client, job, "FAILED").error.message
    assert "timeout of 0.5 s. Raise the parameter timeout" in error
    assert not is_alive(service.jobs[0].replicas[0].process.pid)


def test_cancelled_job_saves_a_checkpoint(client, service, tmp_path):
    job = job_of(tmp_path, 1, 1, chief="save", worker="serve")
    name = begin(client, tmp_path, job, "chief-0", "worker-0")
    client.cancel_custom_job(name=name)
    assert ended(client, name, "CANCELLED").error.code == 1
    assert (tmp_path / "checkpoint").read_text() == "weights"
    assert not any(is_alive(replica.process.pid) for replica in service.jobs[0].replicas)


def test_replica_that_ignores_sigterm_is_killed(client, service, tmp_path, monkeypatch):
    monkeypatch.setattr("vertex.emulator.job_service.CANCEL_GRACE_SECONDS", 0.3)
    name = begin(client, tmp_path, job_of(tmp_path, 1, chief="stubborn"), "chief-0")
    client.cancel_custom_job(name=name)
    ended(client, name, "CANCELLED")
    assert not is_alive(service.jobs[0].replicas[0].process.pid)


def test_only_the_user_can_open_the_emulators_socket(tmp_path, monkeypatch):
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with Emulator() as emulator:
        scheme, _, path = emulator.socket.partition(":")
        assert scheme == "unix"
        assert pathlib.Path(path).is_socket()
        assert pathlib.Path(path).parent.stat().st_mode & 0o077 == 0
    assert not pathlib.Path(path).parent.exists()
