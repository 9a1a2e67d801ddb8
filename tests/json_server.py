"""A server on 127.0.0.1 that answers with JSON, for stand-ins of Google's services."""

import http.server
import json
import threading
from collections.abc import Callable
from typing import Any


class JsonServer(http.server.ThreadingHTTPServer):
    """A server of what reply(verb, path, headers, body) returns; a context manager.

    `reply` returns the status and the content, text or JSON; status 0 closes the connection.
    """

    daemon_threads = True

    def __init__(self, reply: Callable[..., tuple[int, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply = reply

    def __enter__(self):
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: JsonServer

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, answer = self.server.reply(self.command, self.path, self.headers, body)
        if not status:
            self.close_connection = True
            return
        is_text = isinstance(answer, str)
        content = answer.encode() if is_text else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if is_text else "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve  # noqa: N815
