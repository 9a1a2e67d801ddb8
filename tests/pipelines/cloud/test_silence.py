"""A server that takes requests and never answers: each call has a deadline."""

import threading

import pytest

from pipelines.project import connection
from tests.pipelines.cloud.cloud_servers import COMMANDS, tcp_server
from vertex.client import vertex_client


@pytest.fixture
def silent(settings, monkeypatch):
    """The address of a server that never answers."""
    for module in (vertex_client, connection):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(vertex_client, "_RETRY_SECONDS", 0.2)
    ended = threading.Event()
    with tcp_server(lambda _: ended.wait()) as address:
        yield f"http://{address}"
        ended.set()


def test_doctor_calls_a_silent_server_once(silent, command):
    code, out, _ = command(f"doctor digits --endpoint {silent}")
    assert code == 1
    tick, first, rest = out.splitlines()
    assert tick.startswith("✓ credentials: ")
    assert first.startswith("✗ Vertex AI: listing the runs: no connection (")
    assert rest.startswith("? not checked, as no answer came in time: API aiplatform.googleap")
    for name in ("your permissions", "bucket", "image", "quota custom_model_training_cpus"):
        assert f", {name}" in rest


@pytest.mark.parametrize("transport", ["rest", pytest.param("grpc", marks=pytest.mark.slow)])
@pytest.mark.parametrize("line", COMMANDS)
def test_command_gives_up_on_a_silent_server(silent, command, line, transport):
    code, out, err = command(f"{line} --endpoint {silent} --transport {transport}")
    assert code == 1
    *retries, last = err.splitlines()
    assert last.startswith("error: ")
    shown = [*retries, *out.splitlines()]
    assert shown and all(line.startswith("no answer: ") for line in shown)
