"""Test the server's process as Vertex AI runs it: started, killed, restarted, drained."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from tests.child_processes import ROOT, started
from tests.trainer.serving.serving_processes import ENVIRONMENT, b64, png, serve

AS_USER = "setpriv --reuid=1000 --regid=1000 --clear-groups --inh-caps=+dac_read_search"
AS_USER = f"{AS_USER} --ambient-caps=+dac_read_search".split() if os.geteuid() == 0 else []
"""Prefix of a command run by another user than root, who may read the interpreter anywhere."""
_READ_ONLY = """
for folder in $(awk '{print $5}' /proc/self/mountinfo); do
    mount -o remount,bind,ro "$folder" 2> /dev/null
done
if touch /tmp/x 2> /dev/null; then exit 1; fi
exec "$@"
"""
UNSHARE = ["unshare", "--mount"]
MAY_MOUNT = bool(AS_USER) and subprocess.run([*UNSHARE, "true"], check=False).returncode == 0
READ_ONLY = [*UNSHARE, "sh", "-c", _READ_ONLY, "sh"] if MAY_MOUNT else []
"""Prefix of a command for which every file system is read-only, as by `docker run --read-only`;
empty where this user may not mount."""
BLANK = np.zeros((8, 8)).tolist()


def serve_as_the_image(image_model):
    """Run the image's code as a user who may write nothing; return its port and an answer."""
    folder = Path(tempfile.mkdtemp())
    try:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "trainer", folder / "app" / "trainer", ignore=ignore)
        shutil.copytree(image_model, folder / "model")
        os.chmod(folder, 0o755)  # noqa: PTH101
        environment = {
            "AIP_HEALTH_ROUTE": "/v1/ready",
            "AIP_PREDICT_ROUTE": "/v1/endpoints/1/deployedModels/2:predict",
            "AIP_DEPLOYED_MODEL_ID": "2",
            "AIP_MODE": "PREDICTION",
            "MODEL_VERSION": "",
            "HOME": "/nonexistent",
        }
        with serve(
            str(folder / "model"), folder / "app", environment, [*READ_ONLY, *AS_USER]
        ) as server:
            assert server.url.endswith(environment["AIP_PREDICT_ROUTE"])
            assert server.send("GET", "/v1/ready") == (200, {"model_version": "2"})
            body = json.dumps({"instances": [BLANK, b64(png(np.zeros((8, 8), np.uint8)))]})
            status, content = server.send("POST", environment["AIP_PREDICT_ROUTE"], body)
            answer, _ = content["predictions"]
            assert (status, answer["model_version"]) == (200, "2")
            if AS_USER:
                status = Path(f"/proc/{server.process.pid}/status").read_text()
                assert "\nUid:\t1000\t1000\t1000\t1000\n" in status
        return server.port, answer["probabilities"]
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
def test_server_returns_on_its_port_and_is_drained(image_model, capfd):
    port, expected = serve_as_the_image(image_model)
    body = json.dumps({"instances": [BLANK]}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with serve(image_model, environment={"AIP_HTTP_PORT": str(port)}) as server:
        assert server.port == port
        status, content = server.ask([BLANK])
        assert (status, content["predictions"][0]["probabilities"]) == (200, expected)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.sendall(head + body[:5])
            # An answer on another connection: the server has read what came before.
            assert server.ask([BLANK])[0] == 200
            server.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(OSError):
                while True:
                    socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
            server.process.send_signal(signal.SIGINT)
            client.sendall(body[5:])
            answer = b""
            while chunk := client.recv(65536):
                answer += chunk
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b'"label"' in answer
        assert server.process.wait(60) == 0
    # The second signal leaves no stack trace.
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
def test_ctrl_c_twice_while_loading_ends_the_server(image_model):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    settings = {"AIP_STORAGE_URI": image_model, "AIP_HTTP_PORT": str(address[1])}
    command = [sys.executable, "-m", "trainer.serving"]
    with started(command, cwd=ROOT, env=ENVIRONMENT | settings) as server:
        answered = False
        while not answered:
            with contextlib.suppress(OSError), socket.create_connection(address, 60) as client:
                client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                answered = bool(client.recv(1))
        server.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):
            while True:
                socket.create_connection(address, 60).close()
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=60)
    assert server.returncode == 0, errors


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("AIP_STORAGE_URI", "", "AIP_STORAGE_URI is not set; set it to the folder of a SavedMode"),
        ("AIP_STORAGE_URI", "/nowhere", "no SavedModel at /nowhere ("),
        ("AIP_HTTP_PORT", "http", "can't listen on port 'http' of 127.0.0.1 ("),
        ("AIP_HTTP_PORT", "{0}", "'{0}' of 127.0.0.1 (Address already in use); use another port"),
    ],
)
def test_unusable_environment_is_one_line(name, value, words):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        environment = {**ENVIRONMENT, "AIP_STORAGE_URI": "/nowhere", name: value.format(port)}
        result = subprocess.run(
            [sys.executable, "-m", "trainer.serving"],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert result.returncode == 2
    (error,) = result.stderr.splitlines()
    assert error.startswith("error: ") and words.format(port) in error
    assert not result.stdout


def test_log_on_a_full_disk_loses_no_answer(row_server):
    for _ in range(3):
        assert row_server.ask([{"hour": 1}] * 100)[0] == 200
    warning = "/dev/full can't be written ([Errno 28] No space left on device); requests are "
    assert row_server.errors.read_text().count(warning) == 1


@pytest.mark.slow
def test_predictor_runs_in_googles_handler(image_model, monkeypatch):
    import asyncio

    from google.cloud.aiplatform.prediction import PredictionHandler

    from trainer.serving.predictor import Predictor

    class Request:
        headers = MappingProxyType({"content-type": "application/json"})

        async def body(self):
            return json.dumps({"instances": [BLANK, BLANK]}).encode()

    monkeypatch.setenv("MODEL_VERSION", "model@7")
    handler = PredictionHandler(image_model, predictor=Predictor)
    answer = json.loads(asyncio.run(handler.handle(Request())).body)
    assert [prediction["model_version"] for prediction in answer["predictions"]] == ["model@7"] * 2


@pytest.fixture(scope="module")
def limited_server(row_model, tmp_path_factory):
    """A server that may open 256 files."""
    errors = tmp_path_factory.mktemp("limited") / "errors"
    with serve(row_model, prefix=["prlimit", "--nofile=256"], errors=errors) as server:
        yield server


def test_endless_headers_are_refused_and_take_no_memory(limited_server):
    before = limited_server.resident_bytes()
    with socket.create_connection(("127.0.0.1", limited_server.port)) as client:
        client.sendall(b"POST /predict HTTP/1.1\r\nX-Long: ")
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                client.sendall(bytes(1 << 16).replace(b"\0", b"x"))
    assert limited_server.resident_bytes() - before < 16 << 20
    assert limited_server.send("GET", "/health")[0] == 200


_HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
_POST = b"POST /predict HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        _POST,
        _HEALTH,
        _HEALTH * 5000,
        _POST + b'Content-Length: 9000\r\n\r\n{"instances":',
        _POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
        _POST + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    ],
    ids=[
        "idle",
        "slow headers",
        "answered",
        "many at once",
        "slow body",
        "slow chunks",
        "awaits 100",
    ],
)
def test_400_connections_with_parts_of_requests_keep_nobody_out(limited_server, content):
    server = limited_server
    with contextlib.ExitStack() as stack:
        before = server.resident_bytes()
        for _ in range(400):
            client = socket.create_connection(("127.0.0.1", server.port), 60)
            stack.enter_context(client)
            with contextlib.suppress(OSError):  # The server has closed it.
                client.sendall(content)
        for _ in range(5):
            assert server.send("GET", "/health")[0] == 200
            assert server.ask([{}])[0] == 400
        assert server.resident_bytes() - before < 50e6
    assert "Traceback" not in server.errors.read_text()


def test_request_before_the_answer_to_the_last_is_refused(row_server):
    with socket.create_connection(("127.0.0.1", row_server.port), 60) as client:
        client.sendall(_HEALTH * 2)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert b" 400 " in answer
    assert answer.endswith(b"Send the next request after the answer to the last one.")
