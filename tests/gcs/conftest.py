"""A bucket for all tests here, and proxies to it."""

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
    """Start a proxy, with the faults given, and direct this process to it."""
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
