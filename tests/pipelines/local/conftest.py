"""Fixtures and helpers of the tests that run pipelines and jobs on this machine."""

import json
import os
import pathlib
import time

import grpc
import pytest

from vertex.emulator.job_service import JobService
from vertex.emulator.operations import Operations
from vertex.emulator.processes import Guardian
from vertex.emulator.server import Emulator

REPLICA = pathlib.Path(__file__).with_name("stand_in_replica.py")


def wait_for(condition, seconds=240):
    """Poll a condition until it is true; return its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"still false after {seconds} s"
        time.sleep(0.05)
    return value


def is_alive(pid):
    """Return True if a process runs; a zombie does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def job_states(run_directory):
    """Return the content of every job.json below a run's folder."""
    return [json.loads(path.read_text()) for path in run_directory.glob("logs/*/job.json")]


def _compiled(name, tmp_path_factory):
    from tests.pipelines.local import package_runs, small_pipeline

    return package_runs.compile_to(tmp_path_factory.mktemp("build"), getattr(small_pipeline, name))


@pytest.fixture(scope="session")
def small_package(tmp_path_factory):
    """The small pipeline, compiled."""
    return _compiled("small", tmp_path_factory)


@pytest.fixture(scope="session")
def records_package(tmp_path_factory):
    """A pipeline that only writes records, twice, compiled."""
    return _compiled("records_only", tmp_path_factory)


@pytest.fixture
def service(tmp_path):
    """The emulator's service of training jobs."""
    with (
        Guardian() as guardian,
        JobService(Operations(), directory=tmp_path / "logs", guardian=guardian) as service,
    ):
        yield service


@pytest.fixture
def client(service):
    """Google's own client of the service."""
    with Emulator(service) as emulator:
        address = emulator.socket  # first, for the server is importing the same modules
        from google.cloud.aiplatform_v1 import JobServiceClient

        channel = grpc.insecure_channel(address)
        yield JobServiceClient(
            transport=JobServiceClient.get_transport_class("grpc")(channel=channel)
        )
        channel.close()


@pytest.fixture(autouse=True)
def no_cluster_around(monkeypatch):
    """Clear the environment of a replica."""
    for name in list(os.environ):
        if name.startswith(("AIP_", "CLOUD_ML_")) or name in ("TF_CONFIG", "CLUSTER_SPEC"):
            monkeypatch.delenv(name)
