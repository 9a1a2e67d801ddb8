import json
import os
import pathlib
import re
import signal
import sys
import tempfile

import pytest

from pipelines.emulator.server import Emulator
from tests.pipelines.local.conftest import REPLICA, is_alive, wait_for

PARENT = "projects/p/locations/l"
FINAL = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


def job_of(base, *counts, scheduling=None, **actions):
    """A CustomJob with `counts[i]` replicas in pool i, each doing what its role is told."""
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


def command(base, code):
    """A CustomJob whose one replica is a Python program."""
    job = job_of(base, 1)
    container = job["job_spec"]["worker_pool_specs"][0]["container_spec"]
    container |= {"command": ["python3", "-c", code], "args": []}
    return job


def begin(client, base, job, *replicas):
    """Creates a job and waits until those replicas are there; returns its name."""
    name = client.create_custom_job(parent=PARENT, custom_job=job).name
    wait_for(lambda: all((base / f"{replica}.json").exists() for replica in replicas))
    return name


def ended(client, name, state=""):
    """Waits for the end of a job, in a state where one is given; returns the job."""

    def found():
        job = client.get_custom_job(name=name)
        return job if job.state.name in FINAL else None

    job = wait_for(found)
    assert job.state.name.endswith(state)
    return job


def finish(client, job):
    """Creates a job and waits for its end; returns it with its last state."""
    return ended(client, client.create_custom_job(parent=PARENT, custom_job=job).name)


def seen_by(base, replica):
    return json.loads((base / f"{replica}.json").read_text())["environment"]


def test_replicas_see_the_cluster_until_the_chief_is_done(client, service, tmp_path):
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
    assert {pool: len(them) for pool, them in spec["cluster"].items()} == {
        "workerpool0": 1,
        "workerpool1": 2,
        "workerpool2": 1,
        "workerpool3": 1,
    }
    config = json.loads(chief["TF_CONFIG"])
    assert config["cluster"] == {
        "chief": spec["cluster"]["workerpool0"],
        "worker": spec["cluster"]["workerpool1"],
        "ps": spec["cluster"]["workerpool2"],
    }
    addresses = [address for pool in spec["cluster"].values() for address in pool]
    assert len(set(addresses)) == 5
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", address) for address in addresses)
    tasks = {r: json.loads(seen_by(tmp_path, r)["TF_CONFIG"])["task"] for r in replicas}
    assert tasks == {
        "chief-0": {"type": "chief", "index": 0},
        "worker-0": {"type": "worker", "index": 0},
        "worker-1": {"type": "worker", "index": 1},
        "ps-0": {"type": "ps", "index": 0},
        "evaluator-0": {"type": "evaluator", "index": 0},
    }
    assert chief["AIP_MODEL_DIR"] == f"{tmp_path}/model/"
    assert chief["AIP_CHECKPOINT_DIR"] == f"{tmp_path}/checkpoints/"
    assert chief["AIP_TENSORBOARD_LOG_DIR"] == f"{tmp_path}/logs/"
    assert chief["CLOUD_ML_JOB_ID"] == name.rpartition("/")[2]
    assert chief["COLOR"] == "green"
    assert chief["CUDA_VISIBLE_DEVICES"] == ""


def test_a_skipped_pool_keeps_the_position_of_those_behind_it(client, tmp_path):
    assert finish(client, job_of(tmp_path, 1, 0, 1, ps="serve")).state.name == FINAL[0]
    cluster = json.loads(seen_by(tmp_path, "chief-0")["TF_CONFIG"])["cluster"]
    assert sorted(cluster) == ["chief", "ps"]


def test_a_single_replica_has_a_cluster_spec_but_no_tf_config(client, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"left": "over"}')
    finish(client, job_of(tmp_path, 1))
    environment = seen_by(tmp_path, "chief-0")
    assert "TF_CONFIG" not in environment
    assert json.loads(environment["CLUSTER_SPEC"])["task"]["type"] == "workerpool0"


def test_replicas_run_this_interpreter_and_find_the_repository(client, service, tmp_path):
    job = command(tmp_path, "import sys, trainer.errors; print(sys.executable)")
    assert finish(client, job).state.name == "JOB_STATE_SUCCEEDED"
    assert (service.jobs[0].directory / "chief-0.log").read_text().strip() == sys.executable


@pytest.mark.parametrize("action", ["exit:134", "exit:139", "abort"])
def test_a_transient_exit_has_the_whole_job_tried_again(client, service, tmp_path, action):
    job = finish(client, job_of(tmp_path, 1, 1, chief="serve", worker=action))
    assert job.state.name == "JOB_STATE_FAILED"
    status = 139 if action == "exit:139" else 134
    assert job.error.message == (
        f"The replica workerpool1-0 exited with a non-zero status of {status}. "
        "Termination reason: Error."
    )
    assert [replica.starts for replica in service.jobs[0].replicas] == [4, 4]


def test_a_lost_replica_is_restarted_in_place_five_times(client, service, tmp_path):
    job = finish(client, job_of(tmp_path, 1, 1, chief="serve", worker="die"))
    assert job.state.name == "JOB_STATE_FAILED"
    # Six starts in each of four attempts.
    assert [replica.starts for replica in service.jobs[0].replicas] == [4, 24]
    log = (service.jobs[0].directory / "worker-0.log").read_text()
    assert log.count("--- restart 5 of 5 ---") == 4


@pytest.mark.parametrize("action", ["exit:1", "exit:7", "complain"])
def test_another_exit_fails_the_job_at_once(client, service, tmp_path, action):
    job = finish(client, job_of(tmp_path, 1, 1, chief="serve", worker=action))
    assert job.state.name == "JOB_STATE_FAILED"
    status = {"exit:7": 7, "complain": 2}.get(action, 1)
    assert f"exited with a non-zero status of {status}. " in job.error.message
    assert [replica.starts for replica in service.jobs[0].replicas] == [1, 1]


def test_a_replica_without_memory_fails_the_job(client, service, tmp_path, monkeypatch):
    counters = tmp_path / "vmstat"
    counters.write_text("pgfault 7\noom_kill 3\n")
    monkeypatch.setattr("pipelines.emulator.restart_rules._KERNEL_COUNTERS", counters)
    name = begin(client, tmp_path, job_of(tmp_path, 1, chief="serve"), "chief-0")
    counters.write_text("pgfault 7\noom_kill 4\n")
    os.kill(service.jobs[0].replicas[0].process.pid, signal.SIGKILL)
    assert ended(client, name, "FAILED").error.message == (
        "The replica workerpool0-0 ran out of memory and exited with a non-zero status of 137."
    )


def test_a_killed_worker_is_started_again_by_itself(client, service, tmp_path):
    job = job_of(tmp_path, 1, 1, chief="wait", worker="again")
    name = begin(client, tmp_path, job, "worker-0")
    state = json.loads((service.jobs[0].directory / "job.json").read_text())
    worker = next(r for r in state["replicas"] if r["role"] == "worker")
    os.kill(worker["pid"], signal.SIGKILL)
    wait_for(lambda: service.jobs[0].replicas[1].state == "SUCCEEDED")
    (tmp_path / "go").touch()
    ended(client, name, "SUCCEEDED")
    assert [replica.restarts for replica in service.jobs[0].replicas] == [0, 1]


def test_the_whole_job_restarts_where_it_is_told_to(client, service, tmp_path):
    scheduling = {"restart_job_on_worker_restart": True}
    job = job_of(tmp_path, 1, 1, chief="again", worker="again", scheduling=scheduling)
    name = begin(client, tmp_path, job, "worker-0", "chief-0")
    os.kill(service.jobs[0].replicas[1].process.pid, signal.SIGKILL)
    ended(client, name, "SUCCEEDED")
    log = (service.jobs[0].directory / "chief-0.log").read_text()
    assert log.count("chief 0 is here") == 2


@pytest.mark.parametrize("options", [{}, {"restart_job_on_worker_restart": True}], ids=str)
@pytest.mark.parametrize("action", ["exit:134", "die"])
def test_with_disable_retries_nothing_is_restarted(client, service, tmp_path, action, options):
    scheduling = {"disable_retries": True, **options}
    job = finish(client, job_of(tmp_path, 1, chief=action, scheduling=scheduling))
    assert job.state.name == "JOB_STATE_FAILED"
    assert service.jobs[0].replicas[0].starts == 1


def test_a_command_that_no_process_can_have_fails_the_job(client, service, tmp_path):
    job = finish(client, job_of(tmp_path, 1, chief="exit 0\0"))
    assert job.state.name == "JOB_STATE_FAILED"
    assert job.error.message == "a replica could not be started: embedded null byte"


def test_a_job_ends_at_its_timeout(client, service, tmp_path):
    job = finish(client, job_of(tmp_path, 1, chief="serve", scheduling={"timeout": "0.5s"}))
    assert job.state.name == "JOB_STATE_FAILED"
    assert "timeout of 0.5 s. Raise the parameter timeout" in job.error.message
    assert not is_alive(service.jobs[0].replicas[0].process.pid)


def test_a_cancelled_job_may_save_a_checkpoint(client, service, tmp_path):
    job = job_of(tmp_path, 1, 1, chief="save", worker="serve")
    name = begin(client, tmp_path, job, "chief-0", "worker-0")
    client.cancel_custom_job(name=name)
    assert ended(client, name, "CANCELLED").error.code == 1
    assert (tmp_path / "checkpoint").read_text() == "weights"
    assert not any(is_alive(replica.process.pid) for replica in service.jobs[0].replicas)


def test_a_replica_that_is_deaf_to_sigterm_is_killed(client, service, tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.emulator.custom_job.CANCEL_GRACE_SECONDS", 0.3)
    name = begin(client, tmp_path, job_of(tmp_path, 1, chief="stubborn"), "chief-0")
    client.cancel_custom_job(name=name)
    ended(client, name, "CANCELLED")
    assert not is_alive(service.jobs[0].replicas[0].process.pid)


def test_peak_memory_is_the_replicas_own(client, service, tmp_path):
    code = "import time; block = bytearray(150_000_000); time.sleep(0.3)"
    finish(client, command(tmp_path, code))
    assert 150e6 < service.jobs[0].replicas[0].peak_memory < 190e6


def test_no_other_user_of_the_machine_can_start_a_process(tmp_path, monkeypatch):
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with Emulator() as emulator:
        scheme, _, path = emulator.socket.partition(":")
        assert scheme == "unix"
        assert pathlib.Path(path).is_socket()
        assert pathlib.Path(path).parent.stat().st_mode & 0o077 == 0
    assert not pathlib.Path(path).parent.exists()
