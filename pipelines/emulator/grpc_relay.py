"""An HTTP server whose port takes gRPC, too, as Vertex AI's does."""

import contextlib
import http.server
import socket
import threading
from collections.abc import Callable
from typing import Any

_PREFACE = b"PRI"
"""Begins each connection of HTTP/2, which is gRPC's; no method of HTTP/1.1 has this name."""
_CHUNK = 65536


class RelayingServer(http.server.ThreadingHTTPServer):
    """Answers HTTP/1.1 by a handler, and passes HTTP/2 on to the port of a gRPC server.

    Args:
        grpc_port: returns the port once the gRPC server listens there.
    """

    daemon_threads = True

    def __init__(self, handler: type, grpc_port: Callable[[], int]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._grpc_port = grpc_port

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
    """Send what one socket receives on by another, until either is closed."""
    with contextlib.suppress(OSError):
        while content := source.recv(_CHUNK):
            target.sendall(content)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
