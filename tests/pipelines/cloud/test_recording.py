"""VERTEX_RECORD_REQUESTS records requests and answers, in one form for REST and gRPC."""

import concurrent.futures
import json
import os
import re
import socket
import subprocess
import sys
import threading

import grpc
import pytest
from google.cloud.aiplatform_v1 import types

from components.vertex.recording import VARIABLE
from pipelines.cloud import first_hour
from tests.child_processes import ROOT
from tests.gcs.proxy import write_certificate
from tests.pipelines.cloud.cloud_servers import TokenServer, tcp_server, write_key
from tests.pipelines.cloud.scripted_vertex import VertexEmulator
from vertex_emulator.operations import Operations
from vertex_emulator.server import forward
from vertex_facts.emulation import TOKEN_VARIABLE

LINES = (
    "run digits --name first",
    "status",
    "schedule apply digits",
    "schedule pause digits",
    "schedule delete digits --yes",
    "clean --older-than 0h --yes",
)


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Record; return a function that returns the exchanges so far and forgets them."""
    path = tmp_path / "exchanges"
    monkeypatch.setenv(VARIABLE, str(path))

    def take():
        text = path.read_text()
        path.unlink()
        return [json.loads(line) for line in text.splitlines()]

    return take


def strip(exchanges):
    """Return exchanges without what differs each time."""
    kept = []
    for exchange in exchanges:
        # Google's client of Cloud Storage sends the first in a thread, whenever it comes to it.
        if exchange["call"] == "GET /storage/v1/b/bucket" or "/operations/" in exchange["call"]:
            continue
        different = dict.fromkeys(("at", "seconds", "host"))
        text = json.dumps({**exchange, **different}, sort_keys=True)
        text = re.sub(r'"request": "\w+"|"done": true[^}]+}', "", first_hour.TIME.sub("", text))
        kept.append(text)
    return kept


def test_rest_and_grpc_are_recorded_alike(
    settings, storage, command, record, tmp_path, monkeypatch
):
    recorded = {}
    for transport in ("rest", "grpc"):
        with VertexEmulator(tmp_path / transport) as server:
            monkeypatch.setenv("VERTEX_AI_ENDPOINT", server.url)
            monkeypatch.setenv(TOKEN_VARIABLE, server.secret)
            monkeypatch.setenv("VERTEX_AI_TRANSPORT", transport)
            for line in LINES:
                assert command(line)[0] == 0, line
        recorded[transport] = strip(record())
    parent = "/v1/projects/my-project/locations/us-central1"
    for call in (f"POST {parent}/pipelineJobs", f"GET {parent}/schedules"):
        assert any(f'"{call}"' in text for text in recorded["rest"])
    assert recorded["grpc"] == recorded["rest"]


def test_errors_are_recorded_alike(vertex, refused, record, monkeypatch):
    recorded = {}
    for transport in ("rest", "grpc"):
        monkeypatch.setenv("VERTEX_AI_TRANSPORT", transport)
        vertex.fail("ListPipelineJobs", 403, "PERMISSION_DENIED", "no list for you")
        refused("status", code=1)
        (exchange,) = record()
        assert exchange["status"] == 403
        recorded[transport] = {**exchange["answer"]["error"], "call": exchange["call"]}
    assert recorded["rest"]["message"] == "no list for you"
    assert recorded["grpc"] == recorded["rest"]


def test_answer_that_this_client_does_not_know_is_recorded(vertex, command, record, monkeypatch):
    build = Operations._build_operation

    def build_with_metadata(operations, name):
        operation = build(operations, name)
        operation.metadata.type_url = "type.googleapis.com/google.cloud.aiplatform.v9.Metadata"
        return operation

    monkeypatch.setattr(Operations, "_build_operation", build_with_metadata)
    monkeypatch.setenv("VERTEX_AI_TRANSPORT", "grpc")
    assert command("schedule apply digits")[0] == 0
    assert command("schedule delete digits --yes")[0] == 0
    (answer,) = (one["answer"] for one in record() if one["call"].startswith("DELETE "))
    assert "v9.Metadata" in answer and "/operations/" in answer


def test_lost_answers_and_other_servers_are_recorded(vertex, storage, registry, command, record):
    vertex.drop("GetPipelineJob")
    assert command("status gone")[0] == 2
    first, second = record()
    assert (first["status"], first["answer"][:16]) == (0, "ConnectionError:")
    assert second["status"] == 404
    assert command("compile digits --upload")[0] == 0
    _, upload = record()
    assert upload["body"].endswith(" bytes of multipart/form-data")
    assert upload["answer"].startswith("training-digits/sha256:")


def test_tokens_are_not_recorded(vertex, command, record, tmp_path, monkeypatch):
    assert command("status")[0] == 0
    monkeypatch.setenv("VERTEX_AI_TRANSPORT", "grpc")
    assert command("status")[0] == 0
    text = (tmp_path / "exchanges").read_text()
    assert vertex.secret not in text
    monkeypatch.delenv(VARIABLE)
    assert command("status")[0] == 0
    assert (tmp_path / "exchanges").read_text() == text
    assert TOKEN_VARIABLE not in text


class Tokens(TokenServer):
    """A token endpoint that accepts every account."""

    def refresh(self, request):
        return {"access_token": "ya29.issued", "expires_in": 3600}


def test_grpc_to_google_is_recorded(settings, record, tmp_path, monkeypatch):
    host = "us-central1-aiplatform.googleapis.com"
    pem = write_certificate(tmp_path / "server.pem", host).read_bytes()
    answer = types.ListPipelineJobsResponse(pipeline_jobs=[{"name": "projects/1/x/y"}])
    serialized = types.ListPipelineJobsResponse.serialize(answer)
    handler = grpc.unary_unary_rpc_method_handler(lambda *_: serialized)
    service = "google.cloud.aiplatform.v1.PipelineService"
    generic = grpc.method_handlers_generic_handler(service, {"ListPipelineJobs": handler})
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((generic,))
    port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([(pem, pem)]))
    server.start()

    def tunnel(client):
        client.recv(4096)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with socket.create_connection(("localhost", port)) as upstream:
            back = threading.Thread(target=forward, args=(upstream, client), daemon=True)
            back.start()
            forward(client, upstream)

    with Tokens() as tokens, tcp_server(tunnel) as proxy:
        variables = {
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(tmp_path / "server.pem"),
            "GOOGLE_APPLICATION_CREDENTIALS": write_key(tmp_path / "key", f"{tokens.url}/token"),
            "https_proxy": f"http://{proxy}",
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "pipelines", "status"]
        environment = {**os.environ, **variables}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    server.stop(None)
    assert done.returncode == 0, done.stderr
    (exchange,) = record()
    assert exchange["host"] == f"{host}:443"
    parent = "/v1/projects/my-project/locations/us-central1"
    assert exchange["call"] == f"GET {parent}/pipelineJobs"
    assert exchange["answer"] == {"pipelineJobs": [{"name": "projects/1/x/y"}]}
