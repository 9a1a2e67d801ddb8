"""An HTTP server whose port also accepts gRPC, as Vertex AI's does."""

import contextlib
import http.server
import socket
import threading
from collections.abc import Callable
from typing import Any

_PREFACE = b"PRI"
"""The first bytes of an HTTP/2 connection, which gRPC uses; no HTTP/1.1 method has this name."""
_CHUNK = 65536


class RelayingServer(http.server.ThreadingHTTPServer):
    """A server that handles HTTP/1.1 and relays HTTP/2 to the port of a gRPC server."""

    daemon_threads = True
    request_queue_size = 1024  # With 5, the default, parallel connections are reset.

    def __init__(self, handler: type, grpc_port: Callable[[], int]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._grpc_port = grpc_port  # waits until the gRPC server listens

    def shutdown(self) -> None:
        # Without a connection, serve_forever looks for a shutdown only every poll_interval.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        super().shutdown()

    def finish_request(self, request: Any, client_address: Any) -> None:
        # The client may have closed the connection.
        with contextlib.suppress(ConnectionError):
            if request.recv(len(_PREFACE), socket.MSG_PEEK) != _PREFACE:
                super().finish_request(request, client_address)
                return
            with socket.create_connection(("127.0.0.1", self._grpc_port())) as server:
                back = threading.Thread(target=_copy, args=(server, request), daemon=True)
                back.start()
                _copy(request, server)
                back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Forward what one socket receives to another, until either is closed."""
    with contextlib.suppress(OSError):
        while content := source.recv(_CHUNK):
            target.sendall(content)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
