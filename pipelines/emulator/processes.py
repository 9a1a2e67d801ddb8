"""Child processes that never outlive the run, and what became of each."""

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

_POLL_SECONDS = 0.05

# Ends with the pipe, and so with its parent, however that one ended.
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
    """A tiny process that kills the process groups of a run whose own process is gone.

    It holds the reading end of a pipe. kill -9 of the run closes the other end, and the
    guardian then kills all that was still watched. A context manager.

    Args:
        holding: file descriptors that it keeps open until then, such as that of a lock.
    """

    def __init__(self, holding: Sequence[int] = ()) -> None:
        self._holding = tuple(holding)

    def __enter__(self) -> "Guardian":
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARDIAN],
            stdin=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
            pass_fds=self._holding,
        )
        return self

    def __exit__(self, *_: Any) -> None:
        self._tell(".\n")
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def after_death(self, command: Sequence[str]) -> None:
        """Run `command` where this process is killed, once the groups are."""
        self._tell(f"!{json.dumps(list(command))}\n")

    def make_folder(self, *, prefix: str, dir: str | None = None) -> str:
        """Make a folder as tempfile.mkdtemp does, removed where this process is killed."""
        folder = os.path.abspath(  # noqa: PTH100
            f"{dir or tempfile.gettempdir()}/{prefix}{secrets.token_hex(8)}"
        )
        # First: this process may be killed as soon as the folder is there.
        self.after_death(["rm", "-rf", folder])
        os.mkdir(folder, 0o700)  # noqa: PTH102
        return folder

    def _tell(self, line: str) -> None:
        assert self._process.stdin
        with self._lock, contextlib.suppress(ValueError, BrokenPipeError):
            self._process.stdin.write(line)


class Process:
    """A child process, the leader of its own process group, that writes to a log file.

    Attributes:
        pid: of the process, and of its group.
        log: file that stdout and stderr are appended to.
        returncode: None while it runs; -n when signal n ended it.
        peak_memory: largest resident set so far, in bytes.
        finished: set once it is gone, and with it all that it had started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: pathlib.Path,
        guardian: Guardian,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                list(command),
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        self.pid = self._child.pid
        self.stdin = self._child.stdin
        self.log = log
        self.returncode: int | None = None
        self.peak_memory = 0
        self.finished = threading.Event()
        self._guardian = guardian
        guardian.watch(self.pid)
        threading.Thread(target=self._wait, name=f"wait-{self.pid}", daemon=True).start()

    def terminate(self, *, group: bool = False) -> None:
        """SIGTERM to the process, as to a container, or to its whole group."""
        self._signal(signal.SIGTERM, group)

    def kill(self) -> None:
        self._signal(signal.SIGKILL, group=True)

    def stop(self, grace_seconds: float) -> None:
        """SIGTERM; SIGKILL once the grace is over. Returns when the process is gone."""
        self.terminate()
        if not self.finished.wait(grace_seconds):
            self.kill()
            self.finished.wait()

    def _signal(self, number: int, group: bool) -> None:
        # Until `finished` the leader is at most a zombie: its number can't be another's.
        if not self.finished.is_set():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if group else os.kill)(self.pid, number)

    def _wait(self) -> None:
        with contextlib.ExitStack() as end:
            # Each of these is done, the last one first, whichever error comes before it: whoever
            # waits for a process must not wait for ever.
            end.callback(self.finished.set)
            end.callback(self._reap)
            end.callback(self._guardian.release, self.pid)
            end.callback(self._signal, signal.SIGKILL, group=True)
            while not self._has_exited():
                self._sample_memory()
                time.sleep(_POLL_SECONDS)

    def _reap(self) -> None:
        self.returncode = self._child.wait()
        if self.stdin:
            with contextlib.suppress(OSError):
                self.stdin.close()
        if not self.peak_memory:
            self.peak_memory = _children_peak()

    def _has_exited(self) -> bool:
        # WNOWAIT leaves the zombie, so that the group's number stays ours until it is killed.
        if hasattr(os, "waitid"):
            options = os.WEXITED | os.WNOWAIT | os.WNOHANG
            return os.waitid(os.P_PID, self.pid, options) is not None
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
    """Return the largest child so far, where /proc does not tell (macOS counts in bytes)."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit


def reserve_port() -> int:
    """Return a port that the system gives to nobody else for a minute, and to a server that asks.

    A connection closed from the listening side leaves the port in TIME_WAIT: never chosen
    for "any free port", yet free for whoever binds it by number with SO_REUSEADDR, as gRPC
    does. A socket kept open until the spawn would leave the seconds of the import open.
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
