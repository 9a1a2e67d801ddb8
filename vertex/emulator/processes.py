"""Child processes that end with the run, and a guardian process that ensures it."""

import contextlib
import json
import os
import pathlib
import resource
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from vertex.emulator.fork_server import Child, ForkServer

_POLL_SECONDS = 0.05

# Ends when the pipe is closed, and so when its parent ends for any reason.
_GUARDIAN = """
import json, os, signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
groups, commands = set(), []
for line in sys.stdin:
    if line[0] == "!":
        commands.append(json.loads(line[1:]))
    elif line[0] == ".":
        commands.clear()
    else:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
for command in commands:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""


class Guardian:
    """A small process that kills a run's process groups if the run's own process is killed.

    The guardian reads from a pipe. When the run ends, even by kill -9, the pipe is closed and the
    guardian kills all groups that are still watched. A guardian that is killed is replaced. The
    guardian and the processes keep the file descriptors in `holding` open, such as that of a lock,
    which is so released when all of them have ended. A context manager.

    The processes are forked by `fork_server` where it can.
    """

    def __init__(self, holding: Sequence[int] = (), fork_server: ForkServer | None = None) -> None:
        self.holding = tuple(holding)
        self.fork_server = fork_server
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._messages: dict[str, None] = {}  # for the guardian's process, without withdrawn ones

    def __enter__(self) -> "Guardian":
        self._start()
        threading.Thread(target=self._replace_killed, name="guardian", daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._ended.set()
            self._write(".\n")
            with contextlib.suppress(BrokenPipeError):
                self._stdin.close()
        self._process.wait()

    def watch(self, group: int) -> None:
        self._send(f"+{group}\n")

    def release(self, group: int) -> None:
        with self._lock:
            self._messages.pop(f"+{group}\n", None)
            self._write(f"-{group}\n")

    def run_after_death(self, command: Sequence[str]) -> None:
        """Run `command` if this process is killed, after the groups have been killed."""
        self._send(f"!{json.dumps(list(command))}\n")

    def make_folder(self, *, prefix: str, dir: str | None = None) -> str:
        """Make a folder as tempfile.mkdtemp does; remove it if this process is killed."""
        folder = os.path.abspath(  # noqa: PTH100
            f"{dir or tempfile.gettempdir()}/{prefix}{secrets.token_hex(8)}"
        )
        # Before mkdir: this process may be killed as soon as the folder exists.
        self.run_after_death(["rm", "-rf", folder])
        os.mkdir(folder, 0o700)  # noqa: PTH102
        return folder

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARDIAN],
            stdin=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
            pass_fds=self.holding,
        )
        assert self._process.stdin
        self._stdin = self._process.stdin
        for message in self._messages:
            self._write(message)

    def _replace_killed(self) -> None:
        """Start another guardian's process whenever it is killed, until the end."""
        while not self._ended.wait(_POLL_SECONDS):
            self._process.wait()
            # OSError: too many processes; another attempt follows.
            with self._lock, contextlib.suppress(OSError):
                if not self._ended.is_set():
                    self._start()

    def _send(self, message: str) -> None:
        with self._lock:
            self._messages[message] = None
            self._write(message)

    def _write(self, message: str) -> None:
        # The guardian's process may just have been killed, or this guardian have ended.
        with contextlib.suppress(ValueError, BrokenPipeError):
            self._stdin.write(message)


class Process:
    """A child process that leads its own process group and appends its output to a log file."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: pathlib.Path,
        guardian: Guardian,
        stdin: int = subprocess.DEVNULL,
        folder: str | None = None,  # working folder
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._child: subprocess.Popen | Child | None = None
        with log.open("ab") as output:
            if guardian.fork_server and stdin == subprocess.DEVNULL and folder is None:
                self._child = guardian.fork_server.fork(command, environment, log)
            if self._child is None:
                self._child = subprocess.Popen(
                    list(command),
                    stdin=stdin,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    cwd=folder,
                    start_new_session=True,
                    pass_fds=guardian.holding,
                )
        self.pid = self._child.pid  # also of its group
        self.stdin = self._child.stdin
        self.log = log
        self.returncode: int | None = None  # None while it runs; -n if signal n ended it
        self.peak_memory = 0  # largest resident set so far, in bytes
        self.finished = threading.Event()  # set once it has ended and its group has been killed
        self._guardian = guardian
        guardian.watch(self.pid)
        threading.Thread(target=self._wait, name=f"wait-{self.pid}", daemon=True).start()

    def terminate(self, *, group: bool = False) -> None:
        """Send SIGTERM to the process, as to a container, or to its whole group."""
        self._signal(signal.SIGTERM, group)

    def kill(self) -> None:
        self._signal(signal.SIGKILL, group=True)

    def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM, then SIGKILL after the grace period; wait until the process has ended."""
        self.terminate()
        if not self.finished.wait(grace_seconds):
            self.kill()
            self.finished.wait()

    def _signal(self, number: int, group: bool) -> None:
        # Until `finished` the leader is at most a zombie, so that its PID can't be reused.
        if not self.finished.is_set():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if group else os.kill)(self.pid, number)

    def _wait(self) -> None:
        with contextlib.ExitStack() as end:
            # Callbacks run in reverse order, each despite errors of the others: threads that
            # wait for `finished` must not hang.
            end.callback(self.finished.set)
            end.callback(self._reap)
            end.callback(self._guardian.release, self.pid)
            end.callback(self._signal, signal.SIGKILL, group=True)
            while not self._has_exited():
                self._sample_memory()
                time.sleep(_POLL_SECONDS)

    def _reap(self) -> None:
        assert self._child
        self.returncode = self._child.wait()
        if self.stdin:
            with contextlib.suppress(OSError):
                self.stdin.close()
        if not self.peak_memory:
            self.peak_memory = _children_peak()

    def _has_exited(self) -> bool:
        if isinstance(self._child, Child):
            return self._child.has_exited()
        # WNOWAIT leaves the zombie, so that the group's ID can't be reused until it is killed.
        if hasattr(os, "waitid"):
            options = os.WEXITED | os.WNOWAIT | os.WNOHANG
            return os.waitid(os.P_PID, self.pid, options) is not None
        assert self._child
        return self._child.poll() is not None

    def _sample_memory(self) -> None:
        self._note_memory_of(self.pid)

    def _note_memory_of(self, pid: int) -> None:
        # Not wait4's ru_maxrss: on Linux it starts at the size of the process that forked.
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    self.peak_memory = max(self.peak_memory, int(line.split()[1]) * 1024)


def _children_peak() -> int:
    """Return the peak memory of the largest child so far, for systems without /proc."""
    # macOS counts in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit


def new_folder(parent: pathlib.Path, name: str) -> pathlib.Path:
    """Make a folder and return it, numbered if its name is taken."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1


def reserve_port() -> int:
    """Return a port that the system reserves for a minute for a server that binds it by number.

    A connection closed by the listening side leaves the port in TIME_WAIT: the system does not
    choose it as a free port, but a server can bind it with SO_REUSEADDR, as gRPC does. Keeping
    a socket open until the spawn would leave the port unprotected while the child imports.
    """
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        client = stack.enter_context(socket.create_connection(listener.getsockname()))
        accepted, _ = listener.accept()
        accepted.close()
        client.recv(1)
        return int(listener.getsockname()[1])
