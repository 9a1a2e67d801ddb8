"""A server that takes requests and never answers: each call has a deadline, and says so."""

import socketserver
import threading

import pytest

from components import vertex_client
from pipelines.cloud import connection
from tests.pipelines.cloud.conftest import IMAGE

COMMANDS = {
    "status": ["status"],
    "status of a run": ["status", "one"],
    "logs": ["logs", "one"],
    "cancel": ["cancel", "one"],
    "run": ["run", "digits", "--detach"],
    "schedule list": ["schedule", "list"],
    "schedule apply": ["schedule", "apply", "digits"],
    "schedule pause": ["schedule", "pause", "digits"],
    "promote": ["promote", "digits"],
    "clean": ["clean", "--older-than", "1d"],
}


@pytest.fixture
def silent(monkeypatch):
    """The address of a server that never answers."""
    ended = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            ended.wait()

    for module in (vertex_client, connection):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(vertex_client, "_RETRY_SECONDS", 0.5)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    monkeypatch.setenv("VERTEX_PIPELINE_ROOT", "gs://bucket/runs")
    monkeypatch.setenv("VERTEX_IMAGE", IMAGE)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        ended.set()
        server.shutdown()


def test_the_doctor_asks_a_silent_server_once(silent, command):
    code, out, _ = command("doctor", "digits", "--endpoint", silent)
    assert code == 1
    tick, first, rest = out.splitlines()
    assert tick.startswith("✓ credentials: ")
    assert first.startswith("✗ Vertex AI: listing the runs: no connection (")
    assert rest.startswith(
        "? not checked, as no answer came in time: API aiplatform.googleapis.com, "
    )
    for name in ("own rights", "bucket", "image", "quota custom_model_training_cpus"):
        assert f", {name}" in rest


@pytest.mark.parametrize("transport", ["rest", "grpc"])
@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_each_command_gives_up_on_a_silent_server_with_one_line(
    silent, command, arguments, transport
):
    code, out, err = command(*arguments, "--endpoint", silent, "--transport", transport)
    assert code == 1
    *signs, last = err.splitlines()
    assert last.startswith("error: ")
    shown = [*signs, *out.splitlines()]
    assert shown and all(line.startswith("no answer: ") for line in shown)
