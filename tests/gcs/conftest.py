"""A bucket for all tests here, and the way of this process and of others to it."""

import pytest

from tests.gcs.bucket import BucketServer
from tests.gcs.proxy import FaultyProxy


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    with BucketServer("bucket", tmp_path_factory.mktemp("server") / "log") as server:
        yield server


@pytest.fixture
def proxy(server, tmp_path, monkeypatch):
    """A proxy without faults, to which this process's environment leads."""
    (tmp_path / "proxy").mkdir()
    with FaultyProxy(server.port, tmp_path / "proxy") as proxy:
        for name, value in proxy.environment.items():
            monkeypatch.setenv(name, value)
        yield proxy
