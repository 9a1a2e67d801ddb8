"""CustomJobs of the emulator are created, cancelled and deleted, whichever process runs them."""

import contextlib
import os

import pytest
from google.api_core import exceptions
from google.cloud.aiplatform_v1 import JobServiceClient

from tests.pipelines.emulator.idle_services import PARENT, POOL, REQUESTS, changed
from tests.pipelines.local.conftest import is_alive, wait_for
from vertex import checked_json
from vertex.client.vertex_client import connect_service, local_credentials
from vertex.emulator import files, job_state
from vertex.emulator.job_service import JobService
from vertex.emulator.operations import Operations
from vertex.emulator.processes import Guardian, Process
from vertex.emulator.server import Emulator

SLEEPING = changed(POOL, container_spec__command=["/bin/sh", "-c", "echo begun; exec sleep 60"])
JOB = changed(REQUESTS["custom_job"], job_spec__worker_pool_specs=[SLEEPING])


@pytest.fixture
def clients(tmp_path):
    """Clients, by REST and by gRPC, of two emulators that share a folder."""
    with contextlib.ExitStack() as stack:
        connected = []
        for transport in ("rest", "grpc"):
            operations = Operations()
            guardian = stack.enter_context(Guardian())
            jobs = JobService(operations, directory=tmp_path / "jobs", guardian=guardian)
            stack.enter_context(jobs)
            server = stack.enter_context(Emulator(jobs, operations))
            options = {"credentials": local_credentials(server.environment), "transport": transport}
            connected.append(connect_service(JobServiceClient, server.endpoint, **options))
        yield connected


def test_job_is_cancelled_and_deleted_by_another_process(clients):
    first, second = clients
    name = first.create_custom_job(parent=PARENT, custom_job=JOB).name
    wait_for(lambda: first.get_custom_job(name=name).state.name == "JOB_STATE_RUNNING")
    (listed,) = second.list_custom_jobs(parent=PARENT)
    assert (listed.name, listed.state.name) == (name, "JOB_STATE_RUNNING")
    second.cancel_custom_job(name=name)
    wait_for(lambda: first.get_custom_job(name=name).state.name == "JOB_STATE_CANCELLED")
    assert first.get_custom_job(name=name).error.code == 1
    first.delete_custom_job(name=name).result()
    for client in clients:
        with pytest.raises(exceptions.NotFound):
            client.get_custom_job(name=name)


def test_job_in_the_folder_of_a_deleted_run_is_not_mistaken_for_its_job(clients, tmp_path):
    client, _ = clients
    earlier = client.create_custom_job(parent=PARENT, custom_job=JOB).name
    client.cancel_custom_job(name=earlier)
    wait_for(lambda: client.get_custom_job(name=earlier).state.name == "JOB_STATE_CANCELLED")
    # A run that is created again under its name has its folders removed.
    (folder,) = (tmp_path / "jobs").iterdir()
    folder.rename(tmp_path / "removed")  # At once, because the job's end may still be written.
    name = client.create_custom_job(parent=PARENT, custom_job=JOB).name
    assert folder.exists()
    wait_for(lambda: client.get_custom_job(name=name).state.name == "JOB_STATE_RUNNING")
    assert client.get_custom_job(name=name).name == name
    with pytest.raises(exceptions.NotFound):
        client.get_custom_job(name=earlier)


def test_file_of_a_job_is_parsed_once_until_it_changes(clients, tmp_path, monkeypatch):
    first, second = clients
    name = first.create_custom_job(parent=PARENT, custom_job=JOB).name
    first.cancel_custom_job(name=name)
    (folder,) = (tmp_path / "jobs").iterdir()
    wait_for(lambda: not job_state.is_locked(folder))
    parsed, parse = [], checked_json.parse
    monkeypatch.setattr(checked_json, "parse", lambda text: parsed.append(text) or parse(text))
    for _ in range(3):
        (listed,) = second.list_custom_jobs(parent=PARENT)
    assert (listed.state.name, len(parsed)) == ("JOB_STATE_CANCELLED", 1)
    content = job_state.read(folder)
    content.job["displayName"] = "another"
    job_state.write(folder, content)
    (listed,) = second.list_custom_jobs(parent=PARENT)
    assert listed.display_name == "another"


def test_damaged_job_state_is_reported_to_clients(clients, tmp_path):
    first, second = clients
    name = first.create_custom_job(parent=PARENT, custom_job=JOB).name
    first.cancel_custom_job(name=name)
    (folder,) = (tmp_path / "jobs").iterdir()
    wait_for(lambda: '"JOB_STATE_CANCELLED"' in (folder / "job.json").read_text())
    for job in ({}, {"name": name, "state": []}, {"name": name, "text": 5}, None):
        content = {"job": job, "retries": 0, "replicas": []} if job is not None else {}
        files.write_checked(folder / "job.json", content)
        with pytest.raises(exceptions.GoogleAPICallError, match=r"job\.json can't be read"):
            second.get_custom_job(name=name)
        assert not [*second.list_custom_jobs(parent=PARENT)]
    assert first.get_custom_job(name=name).state.name == "JOB_STATE_CANCELLED"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_error_at_the_end_of_a_process_leaves_no_waiter(tmp_path):
    class Broken(Guardian):
        def release(self, group):
            raise RuntimeError("not expected")

    with Broken() as guardian:
        process = Process(
            ["sleep", "600"], environment=os.environ, log=tmp_path / "log", guardian=guardian
        )
        process.terminate()
        assert process.finished.wait(30)
        assert process.returncode == -15
        assert not is_alive(process.pid)
