"""A bucket for all tests here, and the way of this process and of others to it."""

import contextlib

import pytest

from tests.gcs.bucket import BucketServer
from tests.gcs.proxy import FaultyProxy


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    with BucketServer("bucket", tmp_path_factory.mktemp("server") / "log") as server:
        yield server


@pytest.fixture
def start_proxy(server, tmp_path_factory, monkeypatch):
    """Starts a proxy, with faults if any are given, to which this process's environment leads."""
    with contextlib.ExitStack() as stack:

        def start(**faults):
            proxy = FaultyProxy(server.port, tmp_path_factory.mktemp("proxy"), **faults)
            for name, value in stack.enter_context(proxy).environment.items():
                monkeypatch.setenv(name, value)
            return proxy

        yield start


@pytest.fixture
def proxy(start_proxy):
    return start_proxy()
