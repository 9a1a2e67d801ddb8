"""Google's hosts on this machine: a proxy that leads clients, as they are, to an emulator.

    tokens = TokenService()
    with (
        Emulator(..., tokens) as emulator,
        GoogleHosts(emulator, tokens, "my-project", "us-central1") as hosts,
    ):
        os.environ.update(hosts.environment)  # From now on, aiplatform.init() leads here.

Google's clients accept a proxy and other root certificates from the environment. For a host of
Google's APIs the proxy answers itself, with a certificate of its own; what is not emulated is
refused by name, so that nothing which runs in this environment reaches Google. Other hosts, such
as that of an index of packages, are reached through the proxy.
"""

import asyncio
import contextlib
import datetime
import hmac
import json
import os
import pathlib
import re
import ssl
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

from vertex.emulator.api_error import ApiError
from vertex.emulator.environment import bypass_proxies
from vertex.emulator.server import Emulator, HttpRequest

NAMES = ("*.googleapis.com", "*.pkg.dev", "*.vertexai.goog")
"""Names in the certificate; `*` is one label."""
_GOOGLE = re.compile(r"(?:[\w.-]+\.)?googleapis\.com|[\w-]+-kfp\.pkg\.dev|[\w.-]+\.vertexai\.goog")
_CONNECT = re.compile(rb"CONNECT ([\w.-]+):([0-9]+) HTTP/1\.[01]\r\n")
_CHUNK = 65536
_VALID = datetime.timedelta(days=365)
_ROOTS = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH")


class TokenService:
    """OAuth's token endpoint for the credentials that `GoogleHosts` writes."""

    routes = (("POST", "/token", "RefreshToken"),)
    without_token = ("RefreshToken",)

    def __init__(self) -> None:
        self.tokens: tuple[str, ...] = ()  # the emulator's

    def refresh_token(self, request: HttpRequest) -> dict[str, Any]:
        """Return the access token, which is the refresh token."""
        given = parse_qs(request.body.decode()).get("refresh_token", [""])[-1]
        if not any(hmac.compare_digest(given.encode(), token.encode()) for token in self.tokens):
            raise ApiError("UNAUTHENTICATED", "invalid_grant", 400)
        return {"access_token": given, "token_type": "Bearer", "expires_in": 3600}


class GoogleHosts:
    """A proxy for the clients of an emulator; a context manager.

    Args:
        tokens: a resource of the emulator.
        project: ID of the clients' default project.
        location: the clients' default region.
    """

    def __init__(
        self, emulator: Emulator, tokens: TokenService, project: str, location: str
    ) -> None:
        self._emulator, self._tokens = emulator, tokens
        self._folder = pathlib.Path(emulator.folder)
        self._project, self._location = project, location
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._upstream = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY") or ""

    def __enter__(self) -> "GoogleHosts":
        certificate = self._folder / "certificate.pem"
        certificate.write_bytes(make_certificate())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.set_alpn_protocols(["h2", "http/1.1"])
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(self._start(context), self._loop)
        self._port = started.result()
        self._write_files(certificate)
        self._emulator.task_variables = self._variables("task.json")
        return self

    def __exit__(self, *_: Any) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                self._loop.run_until_complete(task)
        self._loop.close()

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that lead Google's clients here."""
        return self._variables("credentials.json")

    def _variables(self, credentials: str) -> dict[str, str]:
        proxy, roots = f"http://127.0.0.1:{self._port}", str(self._folder / "roots.pem")
        return {
            "HTTPS_PROXY": proxy,
            "https_proxy": proxy,
            **bypass_proxies({}),
            **dict.fromkeys(_ROOTS, roots),
            "GOOGLE_APPLICATION_CREDENTIALS": str(self._folder / credentials),
            "GOOGLE_CLOUD_PROJECT": self._project,
            "CLOUDSDK_CORE_PROJECT": self._project,
            "GOOGLE_CLOUD_LOCATION": self._location,
        }

    def _write_files(self, certificate: pathlib.Path) -> None:
        import certifi

        before = next((os.environ[name] for name in _ROOTS if os.environ.get(name)), "")
        roots = pathlib.Path(before or certifi.where()).read_bytes()
        public = certificate.read_bytes().partition(b"-----BEGIN PRIVATE KEY")[0]
        (self._folder / "roots.pem").write_bytes(roots + b"\n" + public)
        tokens = {
            "credentials.json": self._emulator.secret,
            "task.json": self._emulator.task_token,
        }
        for name, token in tokens.items():
            credentials = {
                "type": "authorized_user",
                "client_id": "emulator",
                "client_secret": "emulator",
                "refresh_token": token,
                "quota_project_id": self._project,
            }
            (self._folder / name).write_text(json.dumps(credentials))
        self._tokens.tokens = tuple(tokens.values())

    async def _start(self, context: ssl.SSLContext) -> int:
        """Start the proxy and the server of Google's hosts; return the proxy's port."""
        encrypted = await asyncio.start_server(self._relay, "127.0.0.1", 0, ssl=context)
        proxy = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self._servers = encrypted, proxy
        self._encrypted_port = encrypted.sockets[0].getsockname()[1]
        return int(proxy.sockets[0].getsockname()[1])

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a CONNECT request, and forward what follows."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b"\r\n\r\n")
            match = _CONNECT.match(head)
            if not match:
                writer.write(b"HTTP/1.1 405 Only CONNECT is served\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
                writer.close()
                return
            host, port = match[1].decode().lower(), int(match[2])
            try:
                other = await self._open(host, port)
            except OSError as error:
                reason = f"HTTP/1.1 502 {host} can't be reached ({error.strerror})\r\n"
                writer.write(reason.encode() + b"Content-Length: 0\r\n\r\n")
                await writer.drain()
                writer.close()
                return
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _join((reader, writer), other)

    async def _open(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if _GOOGLE.fullmatch(host):
            return await asyncio.open_connection("127.0.0.1", self._encrypted_port)
        if not self._upstream:
            return await asyncio.open_connection(host, port)
        proxy = urlsplit(self._upstream)
        reader, writer = await asyncio.open_connection(proxy.hostname, proxy.port or 80)
        writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        if b" 200 " not in (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0]:
            writer.close()
            raise ConnectionRefusedError(111, f"refused by {proxy.hostname}")
        return reader, writer

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a decrypted connection to the emulator."""
        with contextlib.suppress(OSError):
            port = urlsplit(self._emulator.endpoint).port
            await _join((reader, writer), await asyncio.open_connection("127.0.0.1", port))


async def _join(*ends: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Forward between two connections until either ends."""
    (left, to_left), (right, to_right) = ends

    async def forward(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await source.read(_CHUNK):
                target.write(content)
                await target.drain()
        target.close()

    await asyncio.gather(forward(left, to_right), forward(right, to_left))


def make_certificate() -> bytes:
    """Return a self-signed certificate of Google's hosts and its key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "vertex-emulator")])
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - _VALID, now + _VALID
    ).add_extension(x509.SubjectAlternativeName(map(x509.DNSName, NAMES)), critical=False)
    pem, unencrypted = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, unencrypted)
    return built.sign(key, hashes.SHA256()).public_bytes(pem) + private
