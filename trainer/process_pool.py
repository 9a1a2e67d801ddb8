"""A pool of processes that digest files, parse tables, write shards or decode requests' images.

multiprocessing's pool is unsuitable: its processes import the caller's main module, which usually
imports TensorFlow (4 s), and they outlive a parent that is killed. The processes of this pool
import only what a shard needs (0.3 s), and end with their parent, even in the middle of a shard: a
rerun never meets a writer of an earlier run.
"""

import contextlib
import functools
import importlib
import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from vertex.errors import InputError

START_SECONDS = 0.3
"""The time that a process needs to start; work that takes less time is done without a pool."""

_REPORT_SECONDS = 0.25
WORK, TASK = "work", "task"
"""Kinds of messages to a process; it answers a task by counts and, last, the result."""

MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
}
"""Variables that let glibc keep an image's memory for the next image (mallopt(3), in bytes).
Returning the memory and getting it again, page by page, takes as long as decoding, resizing and
encoding the image. For a table, Arrow's own allocator keeps 20 MB more than glibc, and an arena
per thread 15 MB more for ten million rows than a single arena."""

Task = TypeVar("Task")
Result = TypeVar("Result")
Report = Callable[[int], None]


class Processes:
    """A pool of processes that work on tasks until the end of the `with` block.

    with Processes() as processes:
        for example in processes.map(source.digest_file, files, size=64): ...
        processes.start(2)
        for result in processes.run(writer.write, tasks, report): ...
    """

    def __init__(self) -> None:
        self._workers: dict[Connection, subprocess.Popen] = {}

    @property
    def count(self) -> int:
        return len(self._workers)

    def start(self, count: int, modules: Iterable[str] = ()) -> None:
        """Start processes until there are `count`; each first imports `modules`."""
        for _ in range(self.count, count):
            connection, process = start_process(modules)
            self._workers[connection] = process

    @property
    def ready(self) -> bool:
        """Return whether all processes have imported their modules, or have died."""
        return bool(self._workers) and all(connection.poll() for connection in self._workers)

    def map(
        self,
        function: Callable[[Task], Result],
        items: Iterable[Task],
        *,
        size: int,
        modules: Iterable[str] = (),
    ) -> Iterator[Result]:
        """Map in this process and, if that takes long, in a process per core, in the items' order.

        A process gets `size` items at a time, and first imports `modules`.
        """
        pieces = cut(items, size)
        started, cores = time.monotonic(), available_cores()
        while not self.ready and (piece := next(pieces, None)):
            yield from map(function, piece)
            if cores > 1 and time.monotonic() - started >= START_SECONDS:
                self.start(cores, (*modules, function.__module__))
        if not self.ready:
            return
        work, next_number = functools.partial(_map_chunk, function), 0
        finished: dict[int, list[Result]] = {}  # results that are not yet yielded
        with contextlib.closing(self.run(work, enumerate(pieces), lambda _: None)) as results:
            for number, result in results:
                finished[number] = result
                while next_number in finished:
                    yield from finished.pop(next_number)
                    next_number += 1

    def run(
        self, work: Callable[[Task, Report], Result], tasks: Iterable[Task], report: Report
    ) -> Generator[Result]:
        """Yield what `work` returns for each task, in any order.

        If the generator ends before all tasks are done, so do the processes.

        Raises:
            InputError: as ShardWriter.write.
            RuntimeError: a process failed or was killed.
        """
        remaining, busy = iter(tasks), set(self._workers)

        def send_task(connection: Connection) -> None:
            task = next(remaining, None)
            if task is None:
                busy.discard(connection)
            else:
                connection.send((TASK, task))

        connection = None
        try:
            for connection in self._workers:
                connection.send((WORK, work))
                send_task(connection)
            while busy:
                for ready in wait(list(busy)):
                    assert isinstance(ready, Connection)
                    connection = ready
                    message = connection.recv()
                    if isinstance(message, int):
                        report(message)
                    elif isinstance(message, Exception):
                        raise message
                    else:
                        send_task(connection)
                        yield message
        except (EOFError, ConnectionError):
            assert connection is not None
            raise _death_error(self._workers[connection]) from None
        finally:
            if busy:
                self._end()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for connection, process in self._workers.items():
            connection.close()
            process.kill()
        for process in self._workers.values():
            process.wait()
        self._workers = {}


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cut(items: Iterable[Task], size: int) -> Iterator[list[Task]]:
    """Return the items in lists of `size`, the last perhaps shorter."""
    remaining = iter(items)
    return iter(lambda: list(itertools.islice(remaining, size)), [])


def _map_chunk(
    function: Callable[[Task], Result], task: tuple[int, list[Task]], _: Report
) -> tuple[int, list[Result]]:
    number, items = task
    return number, [function(item) for item in items]


def start_process(modules: Iterable[str]) -> tuple[Connection, subprocess.Popen]:
    """Start a process that imports modules and then sends 0; return the connection to it."""
    parent_end, child_end = Pipe()
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(child_end.fileno()), *modules],
        pass_fds=[child_end.fileno()],
        stdin=subprocess.DEVNULL,
        env={**MEMORY, **os.environ, "PYTHONPATH": path},
    )
    child_end.close()
    return parent_end, process


def _death_error(process: subprocess.Popen) -> RuntimeError:
    code = process.wait()
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    memory = " (out of memory?)" if code == -signal.SIGKILL else ""
    return RuntimeError(
        f"a process that writes shards {how}{memory}; run again: complete shards are kept"
    )


def main(descriptor: int, modules: Iterable[str]) -> None:
    """Receive work and then tasks, repeatedly; send counts, results and exceptions."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process.
    connection = Connection(descriptor)
    received: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, received), daemon=True).start()
    for name in modules:
        importlib.import_module(name)
    connection.send(0)  # Zero examples done, which signals readiness.
    while True:
        kind, content = received.get()
        if kind == WORK:
            work = content
        else:
            connection.send(_perform(work, content, connection))


def _receive(connection: Connection, received: queue.SimpleQueue) -> None:
    """Queue what the parent sends; end this process immediately when the parent is gone."""
    try:
        with contextlib.suppress(EOFError, OSError):
            while True:
                received.put(connection.recv())
    finally:  # Also if the memory does not suffice for a message.
        os._exit(1)


def _perform(work: Callable[[Any, Report], Any], task: Any, connection: Connection) -> Any:
    """Return the result of `work`, or the exception to raise; send counts of examples done."""
    done, last = 0, time.monotonic()

    def report(count: int) -> None:
        nonlocal done, last
        done += count
        if time.monotonic() - last >= _REPORT_SECONDS:
            connection.send(done)
            done, last = 0, time.monotonic()

    try:
        result = work(task, report)
    except InputError as error:
        return error
    except Exception:
        return RuntimeError(f"a process of the pool failed:\n{traceback.format_exc()}")
    if done:
        connection.send(done)
    return result


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
