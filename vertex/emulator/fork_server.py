"""A process that has imported slow modules, and forks itself to run others.

    with ForkServer(["tensorflow"], environment) as server:
        child = server.fork([sys.executable, "-m", "trainer.task"], environment, log)

Such a process starts in milliseconds, and shares the memory of the imported code. It behaves as one
of `python -m MODULE` does, except that its parent is the server. It ends with the server, and the
server with the thread that entered the context, even if that is killed.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pathlib
import queue
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

_READ_BY_IMPORTS = ("PYTHON", "TF_", "KERAS_", "LD_", "OMP_", "MKL_", "XLA_", "GRPC_", "GLOG_")
"""Beginnings of names of variables that imports may read, and so can't change afterwards."""
_READ_LATER = ("TF_CONFIG",)
_PR_SET_PDEATHSIG = 1
"""From <sys/prctl.h>."""
_LONGEST_SECONDS = 60.0
"""Time limit for the server's imports; after it, commands start anew."""


class ForkServer:
    """A server for commands `python -m`, whose environment imports the modules as its own does."""

    def __init__(
        self, modules: Sequence[str], environment: Mapping[str, str], holding: Sequence[int] = ()
    ) -> None:
        """`holding` has the file descriptors that the server and its processes keep open."""
        self._modules, self._environment, self._holding = modules, environment, tuple(holding)
        self._lock = threading.Lock()
        self._forked: queue.SimpleQueue[Child | None] = queue.SimpleQueue()
        self._children: dict[int, Child] = {}
        self._is_ready = False
        self._has_begun = threading.Event()  # or failed to begin

    def __enter__(self) -> "ForkServer":
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", __name__, str(os.getpid()), *self._modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(self._environment),
            start_new_session=True,
            pass_fds=self._holding,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def fork(
        self, command: Sequence[str], environment: Mapping[str, str], log: pathlib.Path
    ) -> "Child | None":
        """Start a command whose output is appended to a log; return None if it must start anew."""
        if not self._is_ready or [*command[:2]] != [sys.executable, "-m"]:
            return None
        if _select(environment) != _select(self._environment):
            return None
        request = {"words": command[2:], "environment": {**environment}, "log": str(log.absolute())}
        with self._lock:
            return self._forked.get() if self._send(request) else None

    def wait(self) -> None:
        """Wait until the modules are imported, which takes less long than to import them again."""
        self._has_begun.wait(_LONGEST_SECONDS)

    def reap(self, pid: int) -> None:
        """Let a process ID be used again, of a child that has exited."""
        with self._lock:
            self._children.pop(pid, None)
            self._send({"reap": pid})

    def _send(self, message: dict[str, Any]) -> bool:
        assert self._process.stdin
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
            return True
        return False

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            message = json.loads(line)
            self._is_ready = True
            self._has_begun.set()
            if forked := message.get("forked"):
                self._children[forked] = Child(forked, self)
                self._forked.put(self._children[forked])
            elif exited := message.get("exited"):
                self._children[exited].note_exit(message["code"])
        self._is_ready = False
        self._has_begun.set()
        self._forked.put(None)  # For a caller that waits for an answer.
        for child in list(self._children.values()):
            # Its exit can no longer be known.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.note_exit(-signal.SIGKILL)


class Child:
    """A process that a fork server has started, and which leads its own process group."""

    stdin = None

    def __init__(self, pid: int, server: ForkServer) -> None:
        self.pid, self._server = pid, server
        self._code = 0
        self._exited = threading.Event()

    def note_exit(self, code: int) -> None:
        self._code = code
        self._exited.set()

    def has_exited(self) -> bool:
        return self._exited.is_set()

    def wait(self) -> int:
        """Return the exit code, -n for signal n, once the process has exited; reap it."""
        self._exited.wait()
        self._server.reap(self.pid)
        return self._code


def _select(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that imports may read."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_BY_IMPORTS) and name not in _READ_LATER
    }


def _serve() -> dict[str, Any]:
    """Fork for each request; in the child, return the request."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: set[int] = set()
    received = b""
    _report(ready=True)
    while True:
        readable, _, _ = select.select([0, woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
        for pid in [*running]:
            # The zombie keeps its ID until the client has killed its group.
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended:
                running.remove(pid)
                was_killed = ended.si_code != os.CLD_EXITED
                _report(exited=pid, code=-ended.si_status if was_killed else ended.si_status)
        if 0 not in readable:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            sys.exit(0)
        *lines, received = (received + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if "reap" in request:
                os.waitpid(request["reap"], 0)
                continue
            leads, begins = os.pipe()
            server = os.getpid()
            pid = os.fork()
            if not pid:
                _end_with(server)
                os.setsid()
                for descriptor in (woken, wakes, leads, begins):
                    os.close(descriptor)
                return dict(request)
            os.close(begins)
            os.read(leads, 1)  # Until the child leads its group.
            os.close(leads)
            running.add(pid)
            _report(forked=pid)


def _end_with(parent: int) -> None:
    """Let the kernel kill this process as soon as its parent has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # It has already ended.
        os._exit(1)


def _report(**message: Any) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _become(words: Sequence[str], environment: Mapping[str, str], log: str) -> int:
    """Run a module in this process as `python -m` does; return the exit code."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT),
    ):
        opened = os.open(path, flags, 0o666)
        os.dup2(opened, number)
        os.close(opened)
    os.dup2(1, 2)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # An import may have asked for the server's.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.argv = ["-m", *words[1:]]
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _exit_at_once(codes: list[int]) -> None:
    """End the process without freeing the imported modules one by one, which takes a second."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(codes[0] & 0xFF)


if __name__ == "__main__":
    exit_codes: list[int] = [0]
    atexit.register(_exit_at_once, exit_codes)  # Called last, as it is registered first.
    _end_with(int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()  # The garbage collector would copy the pages that it looks at.
    exit_codes[0] = _become(**_serve())
