"""A proxy from clients that know only Google's hosts to a Cloud Storage server on this machine.

TensorFlow's gs:// connects to googleapis.com by TLS, through the proxy in https_proxy: this one,
which ends the TLS itself. google-cloud-storage connects without TLS, to STORAGE_EMULATOR_HOST.
The proxy answers some requests with a fault, drawn from a seed:

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

from vertex.emulator.google_hosts import make_certificate

HOSTS = ("www.googleapis.com", "storage.googleapis.com")
SLOW_SECONDS = 0.5
KINDS = ("unavailable", "lost", "slow", "cut upload", "cut download")

_HOP_BY_HOP = ("connection", "content-length", "expect", "proxy-connection", "transfer-encoding")
_STATUS_QUERY = re.compile(r"bytes \*/\d+")


class FaultyProxy(http.server.ThreadingHTTPServer):
    """A proxy on a port of 127.0.0.1; a context manager.

    Attributes:
        requests: number of requests so far.
        faults: number of faults so far, by kind.
        downloads: number of requests for the content of each object, by bucket/name.
        composed: objects (as bucket/name) that Cloud Storage lists without an MD5.
        rate: share of requests that meet a fault.
        kinds: kinds of fault to draw from.
        refusal: status of the answer to an unavailable request.
        authority: file with the certificate that clients must trust.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        upstream_port: int,
        folder: Path,
        *,
        rate: float = 0.0,
        seed: int = 0,
    ):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.requests = 0
        self.faults: collections.Counter[str] = collections.Counter()
        self.downloads: collections.Counter[str] = collections.Counter()
        self.composed: set[str] = set()
        self.upstream_port = upstream_port
        self.authority = folder / "server.pem"
        self.authority.write_bytes(make_certificate())
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.authority)
        # Paths of resumable uploads that are complete.
        self.completed: set[str] = set()
        self.rate = rate
        self.kinds = KINDS
        self.refusal = 503
        self._random = random.Random(seed)
        # For each kind of request: does the next one meet a fault, the one after it, ...?
        self._left: dict[tuple[bool, bool], list[bool]] = collections.defaultdict(list)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that direct a process's gs:// here."""
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
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that have closed the connection."""

    def draw(self, *, has_body: bool, is_download: bool) -> str:
        """Draw the fault of the next request; mostly empty."""
        with self._lock:
            self.requests += 1
            if not self.rate:
                return ""
            # Chance places the faults, and each kind of request gets its share.
            left = self._left[has_body, is_download]
            if not left:
                left += [True] + [False] * (round(1 / self.rate) - 1)
                self._random.shuffle(left)
            if not left.pop():
                return ""
            fits = {"cut upload": has_body, "cut download": is_download}
            kinds = [kind for kind in self.kinds if fits.get(kind, True)]
            # The rarest kind so far.
            kind = min(kinds, key=lambda kind: (self.faults[kind], self._random.random()))
            self.faults[kind] += 1
            return kind


class _EndError(Exception):
    """Close the connection, whatever was sent on it."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FaultyProxy

    def log_message(self, *_: object) -> None:
        """Print nothing: the proxy counts."""

    def do_CONNECT(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.connection = self.server.context.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)
        self.close_connection = False

    def finish(self) -> None:
        super().finish()
        # The server no longer closes it, because wrap_socket has replaced it.
        self.connection.close()

    def serve(self) -> None:
        try:
            self._serve()
        except _EndError:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = serve  # noqa: N815

    def _serve(self) -> None:
        proxy = self.server
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
            kind = [("Content-Type", "application/json")]
            return self._answer(proxy.refusal, kind, json.dumps(error).encode())
        status, headers, content = self._forward(body)
        if fault == "lost":
            raise _EndError
        self._answer(status, headers, content, cut=fault == "cut download")

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return the server's answer: status, headers and content."""
        proxy = self.server
        if _STATUS_QUERY.fullmatch(self.headers.get("Content-Range", "")):
            # fake-gcs-server would end the upload. Google answers 200 for a complete upload, else
            # 308 with the bytes that it kept, here none.
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
            # Google: https://docs.cloud.google.com/storage/docs/composite-objects
            listing = json.loads(content)
            for item in listing.get("items", []):
                if f"{item['bucket']}/{item['name']}" in proxy.composed:
                    del item["md5Hash"]
            content = json.dumps(listing).encode()
        if self.command == "PUT" and answer.status == 200:
            proxy.completed.add(self.path)
        # The address of an upload: the server does not know that the proxy is reached by TLS.
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
        """Read a chunked body."""
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            """Ignore the trailers."""
        return b"".join(parts)
