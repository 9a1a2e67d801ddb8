"""Credentials that no longer hold are named at once, over gRPC to Google's own endpoint, too."""

import concurrent.futures
import datetime
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from tests.pipelines.cloud.servers import expired_sign_in, new_key, private

HOST = "us-central1-aiplatform.googleapis.com"


def certificate(folder):
    """Writes a certificate of HOST that signs itself; returns key and certificate."""
    key = new_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "roots.pem").write_bytes(made.public_bytes(Encoding.PEM))
    return private(key), made.public_bytes(Encoding.PEM)


def copy(source, target):
    """Copies bytes between sockets until one ends."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    finally:
        target.close()


@pytest.fixture
def google(tmp_path):
    """A proxy that leads to a gRPC server of this machine, with a certificate of HOST."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    credentials = grpc.ssl_server_credentials([certificate(tmp_path)])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    proxy = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                client, _ = proxy.accept()
            except OSError:
                return
            asked = client.recv(65536)
            assert asked.startswith(b"CONNECT " + HOST.encode())
            behind = socket.create_connection(("127.0.0.1", port))
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for pair in ((client, behind), (behind, client)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{proxy.getsockname()[1]}"
    proxy.shutdown(socket.SHUT_RDWR)
    proxy.close()
    thread.join()
    server.stop(None)


COMMANDS = """
from pipelines.commands.command_line import app, run
for arguments in (["schedule", "list"], ["cancel", "one"], ["promote", "digits"]):
    print(run(app, [*arguments, "--project", "my-project"]))
"""


def test_an_expired_sign_in_over_grpc_is_one_line_at_once(google, tmp_path):
    with expired_sign_in(tmp_path) as key:
        environment = {
            **os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "https_proxy": google,
            "no_proxy": "127.0.0.1", "GOOGLE_APPLICATION_CREDENTIALS": key,
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(tmp_path / "roots.pem"),
        }  # fmt: skip
        ended = subprocess.run(
            [sys.executable, "-c", COMMANDS],
            env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert ended.stdout.split() == ["1", "1", "1"]
    errors = ended.stderr.splitlines()
    assert len(errors) == 3
    assert all("Token has been expired or revoked." in error for error in errors)
    assert all("sign in: gcloud auth application-default login" in error for error in errors)
