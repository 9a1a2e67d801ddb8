"""Limits of connections: size and time of a request's head, connections that wait for a request.

uvicorn limits neither: a client could fill the memory with headers or requests, or take every file
descriptor by connections on which it sends nothing, or little.
"""

import asyncio
import resource

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 << 10
"""Largest size of a request's first line and headers, of which Vertex AI's take 2 kB."""
HEAD_SECONDS = 10.0
"""Time for them to arrive, from the connection, the last answer or the first of their bytes."""
MAX_WAITING = 512
"""Largest number of connections that wait for a request or for the rest of one, unless this process
may open fewer than four times as many files."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol of a connection, with these limits.

    Where too many wait, the one that has waited for the longest time is closed. A request that
    arrives before the last one is answered is refused: uvicorn would queue thousands per
    connection.
    """

    _waiting: dict["LimitedHttpProtocol", None] = {}  # noqa: RUF012 - those of all servers of the process

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._refusal = ""
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_idle and not self._head_bytes:
            self._wait()
        self._head_bytes += len(data)
        super().data_received(data)
        if self._timer and self._head_bytes > HEAD_BYTES:
            self.send_400_response(f"The request's headers have over {HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        if not self._is_idle:
            self._refusal = "Send the next request after the answer to the last one."
            raise httptools.HttpParserError
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._is_idle:
            self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._wait()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(self._refusal or msg)

    @property
    def _is_idle(self) -> bool:
        """Return whether the last request, if any, has been answered."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        """Count the connection among those that wait for a request, as the last."""
        self._stop_waiting()
        self._head_bytes = 0
        self._waiting[self] = None
        self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self._waiting) > min(MAX_WAITING, files // 4):
            next(iter(self._waiting)).drop()

    def _stop_waiting(self) -> None:
        self._waiting.pop(self, None)
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def drop(self) -> None:
        """Close the connection at once."""
        self._stop_waiting()
        self.transport.abort()
