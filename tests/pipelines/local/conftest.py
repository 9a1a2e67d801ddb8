import json
import os
import pathlib
import time

import grpc
import pytest
from kfp import compiler

from pipelines.emulator.job_service import JobService
from pipelines.emulator.operations import Operations
from pipelines.emulator.processes import Guardian
from pipelines.emulator.server import Emulator

REPLICA = pathlib.Path(__file__).with_name("replica.py")


def wait_for(condition, seconds=240):
    """The first true value of `condition`, which is asked again and again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s in vain")


def is_alive(pid):
    """Return whether a process runs (a zombie that nobody has waited for does not)."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def job_states(run_directory):
    """The content of every job.json below a run's folder."""
    return [json.loads(path.read_text()) for path in run_directory.glob("logs/*/job.json")]


@pytest.fixture(scope="session")
def small_package(tmp_path_factory):
    """The small pipeline, compiled."""
    from tests.pipelines.local.small_pipeline import small

    path = tmp_path_factory.mktemp("build") / "small.yaml"
    compiler.Compiler().compile(small, str(path))
    return path


@pytest.fixture(scope="session")
def records_package(tmp_path_factory):
    """A pipeline that only writes records, twice, compiled."""
    from tests.pipelines.local.small_pipeline import records_only

    path = tmp_path_factory.mktemp("build") / "records.yaml"
    compiler.Compiler().compile(records_only, str(path))
    return path


@pytest.fixture
def service(tmp_path):
    folder = tmp_path / "logs"
    with Guardian() as guardian, JobService(folder, guardian, Operations()) as service:
        yield service


@pytest.fixture
def emulator(service):
    with Emulator(service) as emulator:
        yield emulator


@pytest.fixture
def client(emulator):
    """Google's own client."""
    address = emulator.socket  # first, for the server is importing the same modules
    from google.cloud.aiplatform_v1.services.job_service import JobServiceClient
    from google.cloud.aiplatform_v1.services.job_service.transports import JobServiceGrpcTransport

    channel = grpc.insecure_channel(address)
    yield JobServiceClient(transport=JobServiceGrpcTransport(channel=channel))
    channel.close()


@pytest.fixture(autouse=True)
def no_cluster_around(monkeypatch):
    """A test's own environment is not a replica's."""
    for name in list(os.environ):
        if name.startswith(("AIP_", "CLOUD_ML_")) or name in ("TF_CONFIG", "CLUSTER_SPEC"):
            monkeypatch.delenv(name)
