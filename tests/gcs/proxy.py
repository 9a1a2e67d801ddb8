"""The way from clients that know only Google's hosts to a Cloud Storage of this machine.

TensorFlow's gs:// speaks TLS to googleapis.com and nothing else, but through a proxy where
https_proxy names one: this one, which ends the TLS itself. google-cloud-storage comes without
TLS, led by STORAGE_EMULATOR_HOST. On the way a request may meet a fault, drawn from a seed:

    unavailable    503, and the request had no effect
    lost           it had its effect, but the connection ends without an answer
    slow           it is answered late
    cut upload     the connection ends in the middle of the body, which had no effect
    cut download   the connection ends in the middle of the answer
"""

import collections
import http.client
import http.server
import json
import random
import re
import ssl
import threading
import time
from pathlib import Path
from urllib.parse import unquote

from tests.gcs.certificates import write_certificate

HOSTS = ("www.googleapis.com", "storage.googleapis.com")
SLOW_SECONDS = 0.5
KINDS = ("unavailable", "lost", "slow", "cut upload", "cut download")

_HOP_BY_HOP = ("connection", "content-length", "expect", "proxy-connection", "transfer-encoding")
_STATUS_QUERY = re.compile(r"bytes \*/\d+")


class FaultyProxy:
    """A proxy on a port of 127.0.0.1; a context manager.

    Attributes:
        requests: how many have come.
        faults: how many of each kind were met.
        downloads: how often the content of each object was asked for, by bucket/name.
        composed: objects (as bucket/name) that Cloud Storage would tell no MD5 of.
        rate: share of requests that meet one.
        kinds: which of them there are.
        refusal: status of those that are unavailable.
        authority: file with the certificate that its clients are to trust.
    """

    def __init__(self, upstream_port: int, folder: Path, *, rate: float = 0.0, seed: int = 0):
        self.requests = 0
        self.faults: collections.Counter[str] = collections.Counter()
        self.downloads: collections.Counter[str] = collections.Counter()
        self.composed: set[str] = set()
        self.upstream_port = upstream_port
        self.authority, shown = write_certificate(folder, *HOSTS)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(shown)
        # Resumable uploads whose last byte has come.
        self.completed: set[str] = set()
        self.rate = rate
        self.kinds = KINDS
        self.refusal = 503
        self._random = random.Random(seed)
        # By sort of request, which of the next ones meet a fault.
        self._left: dict[tuple[bool, bool], list[bool]] = collections.defaultdict(list)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead a process's gs:// here."""
        return {
            "https_proxy": self.url,
            "no_proxy": "127.0.0.1,localhost",
            "CURL_CA_BUNDLE": str(self.authority),
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "a-token",
            "NO_GCE_CHECK": "true",
            "STORAGE_EMULATOR_HOST": self.url,
        }

    def __enter__(self) -> "FaultyProxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def draw(self, *, has_body: bool, is_download: bool) -> str:
        """The fault that the next request meets; mostly empty."""
        with self._lock:
            self.requests += 1
            if not self.rate:
                return ""
            # Chance places the faults, but leaves out neither uploads nor downloads.
            left = self._left[has_body, is_download]
            if not left:
                left += [True] + [False] * (round(1 / self.rate) - 1)
                self._random.shuffle(left)
            if not left.pop():
                return ""
            fits = {"cut upload": has_body, "cut download": is_download}
            kinds = [kind for kind in self.kinds if fits.get(kind, True)]
            # The rarest so far.
            kind = min(kinds, key=lambda kind: (self.faults[kind], self._random.random()))
            self.faults[kind] += 1
            return kind


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    proxy: FaultyProxy

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that is gone is no error of this server's."""


class _EndError(Exception):
    """The connection is to be closed, whatever was said on it."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None:
        """Nothing: the proxy counts."""

    def do_CONNECT(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.connection = self.server.proxy.context.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)
        self.close_connection = False

    def finish(self) -> None:
        super().finish()
        # wrap_socket has taken the connection out of the server's hands.
        self.connection.close()

    def serve(self) -> None:
        try:
            self._serve()
        except _EndError:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = serve  # noqa: N815

    def _serve(self) -> None:
        proxy = self.server.proxy
        # libcurl sends both, and then the length does not count.
        chunked = "chunked" in self.headers.get("Transfer-Encoding", "")
        length = int(self.headers.get("Content-Length") or 0)
        is_download = self.command == "GET" and (
            "alt=media" in self.path or "/storage/v1/" not in self.path
        )
        if is_download:
            proxy.downloads[unquote(self.path.partition("?")[0]).lstrip("/")] += 1
        fault = proxy.draw(has_body=chunked or length > 0, is_download=is_download)
        if fault == "cut upload":
            self.rfile.read(1)
            raise _EndError
        body = self._chunks() if chunked else self.rfile.read(length)
        if fault == "slow":
            time.sleep(SLOW_SECONDS)
        if fault == "unavailable":
            error = {"error": {"code": proxy.refusal, "message": "backendError"}}
            content = json.dumps(error).encode()
            self._answer(proxy.refusal, [("Content-Type", "application/json")], content)
            return
        status, headers, content = self._forward(body)
        if fault == "lost":
            raise _EndError
        self._answer(status, headers, content, cut=fault == "cut download")

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """The server's answer: status, headers and content."""
        proxy = self.server.proxy
        if _STATUS_QUERY.fullmatch(self.headers.get("Content-Range", "")):
            # fake-gcs-server would take it for the upload's end. As Google has it: 200 when all
            # has come, else 308 with the bytes that were kept, of which there are none.
            # https://cloud.google.com/storage/docs/performing-resumable-uploads#status-check
            return (200 if self.path in proxy.completed else 308), [], b""
        connection = http.client.HTTPConnection("127.0.0.1", proxy.upstream_port)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
        headers["Content-Length"] = str(len(body))
        try:
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if proxy.composed and b'"storage#objects"' in content:
            # As Google has it: https://docs.cloud.google.com/storage/docs/composite-objects
            listing = json.loads(content)
            for item in listing.get("items", []):
                if f"{item['bucket']}/{item['name']}" in proxy.composed:
                    del item["md5Hash"]
            content = json.dumps(listing).encode()
        if self.command == "PUT" and answer.status == 200:
            proxy.completed.add(self.path)
        # Where an upload goes on; the server does not know of the TLS before it.
        kept = [
            (name, value.replace("http://www.", "https://www.") if name == "Location" else value)
            for name, value in answer.getheaders()
            if name.lower() not in _HOP_BY_HOP
        ]
        return answer.status, kept, content

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.connection.sendall(content[: len(content) // 2] if cut else content)
        if cut:
            raise _EndError

    def _chunks(self) -> bytes:
        """A chunked body."""
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            """Trailers say nothing here."""
        return b"".join(parts)
