"""Detect frozen replicas: gRPC servers that accept connections but do not answer.

A process that is stopped, or whose machine hangs, keeps its connections open, so a call to it
never returns. The chief closes its connections to a frozen worker. Calls then fail as for a lost
worker, and ClusterCoordinator reschedules the step on another worker. TensorFlow offers no way to
close them, so they are found in /proc. A frozen parameter server
blocks training, and Vertex AI does not restart a process that has not ended. The chief therefore
exits, so that the whole job is retried from the checkpoint.

Without parameter servers, TensorFlow notices a peer that stops answering, and ends the step. Should
a collective wait nevertheless, as one of NCCL may, `StepWatch` ends the process.
"""

import contextlib
import os
import pathlib
import socket
import sys
import threading
import time
from collections.abc import Sequence

from vertex.errors import RETRY_EXIT_CODE

PATIENCE_SECONDS = 60.0
"""Time limit for an answer; a server answers immediately, even while it computes a step."""

STEP_SECONDS = 1800.0
"""Time limit for a step of training or validation, for compiling it, and for a checkpoint."""

_PERIOD_SECONDS = 10.0
_STOP_PERIOD_SECONDS = 0.2
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""HTTP/2 connection preface with empty settings (RFC 9113, section 3.4)."""


def watch(role: str, addresses: Sequence[str]) -> None:
    """Watch workers or parameter servers ("host:port" each) until the process ends."""
    watch_replica = {"worker": _watch_worker, "ps": _watch_server}[role]
    for index, address in enumerate(addresses):
        threading.Thread(target=watch_replica, args=(index, address), daemon=True).start()


def exit_without(servers: Sequence[str], name: str) -> None:
    """End the process, which was told to stop, once a parameter server is gone.

    Without the weights there is no checkpoint to save, and without workers no step to wait for.
    """

    def watch() -> None:
        while all(map(_is_up, servers)):
            time.sleep(_STOP_PERIOD_SECONDS)
        print(f"{name}: told to stop, and the parameter servers are gone", flush=True)
        os._exit(RETRY_EXIT_CODE)

    threading.Thread(target=watch, daemon=True).start()


class StepWatch:
    """End the process, to be retried, if `beat` is not called for a long time.

    A context manager: it watches until it is left.
    """

    def __init__(self, name: str, seconds: float = STEP_SECONDS) -> None:
        self._name, self._seconds = name, seconds
        self._left = threading.Event()

    def __enter__(self) -> "StepWatch":
        self.beat()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()

    def beat(self) -> None:
        self._beaten = time.monotonic()

    def _watch(self) -> None:
        while not self._left.wait(self._beaten + self._seconds - time.monotonic()):
            if time.monotonic() - self._beaten < self._seconds:
                continue
            _end_to_retry(f"a step of {self._name} has not ended in {self._seconds:,.0f} s")


def _is_up(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, int(port)), PATIENCE_SECONDS),
    ):
        return True
    return False


def _watch_worker(index: int, address: str) -> None:
    frozen = False
    while True:
        time.sleep(_PERIOD_SECONDS)
        was_frozen, frozen = frozen, _is_frozen(address)
        # Close connections each time, because TensorFlow keeps reconnecting to a lost worker.
        if frozen and _close_connections(address) and not was_frozen:
            print(f"worker {index} does not answer; the others continue", flush=True)


def _watch_server(index: int, address: str) -> None:
    while not _is_frozen(address):
        time.sleep(_PERIOD_SECONDS)
    _end_to_retry(f"ps {index} does not answer, and every step needs its weights")


def _end_to_retry(problem: str) -> None:
    print(f"error: {problem}; retry the job from the last checkpoint", file=sys.stderr, flush=True)
    os._exit(RETRY_EXIT_CODE)


def _is_frozen(address: str) -> bool:
    """Return whether a server accepts a connection but sends nothing; False if it is down."""
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host, int(port)), PATIENCE_SECONDS)
    except OSError:
        return False
    with connection:
        try:
            connection.sendall(_PREFACE)
            connection.recv(1)
        except TimeoutError:
            return True
        except OSError:
            return False
    return False


def _close_connections(address: str) -> int:
    """Close this process's connections to `address`; return their number."""
    host, _, port = address.rpartition(":")
    peers = {info[4][:2] for info in socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)}
    closed = 0
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        try:
            if not entry.is_socket():
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                peer, *rest = connection.getpeername()
                # gRPC's sockets are IPv6, where an IPv4 address is written ::ffff:10.0.0.2.
                if (str(peer).removeprefix("::ffff:"), *rest[:1]) in peers:
                    connection.shutdown(socket.SHUT_RDWR)
                    closed += 1
        except (OSError, ValueError):  # The socket is already closed, or has no peer.
            continue
    return closed
