"""Decode the image files of requests in processes that can be ended.

A process that takes too long is ended and replaced; the other requests go on.
concurrent.futures and loky can kill only all processes of a pool, and anyio.to_process imports the
server's main module into each process. So this class starts the processes of
trainer/process_pool.py, which import only the decoder (0.3 s) and end with the server.

An image first gets a short time. One that is large, or needs more time, waits until few others of
its kind are decoded, because they could occupy all processes. For the same reason one process is
reserved for small files: even a file's header can take long to parse if it has many parts. The
first files of a request are decoded before the others of requests with many, which could otherwise
delay a request of a single photo until its end.
"""

import asyncio
import contextlib
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trainer import process_pool
from trainer.serving import MAX_INSTANCES, image_files
from trainer.serving.batching import Batcher
from trainer.serving.image_files import Outcome

MAX_PROCESSES = 8
CAPACITY = 4 * MAX_INSTANCES
GROUP = 4
"""Largest number of small files that a process gets at once, which saves switches of processes."""
SMALL_FILE = 256 << 10
"""Size in bytes up to which a file may use the reserved process."""
WAIT_SECONDS = 8.0
"""Time to wait for an image; before, the process ends itself, unless the machine is very busy."""
_START_SECONDS = 20.0

Decode = Callable[[image_files.Task, Any], list[Outcome]]
"""`trainer.serving.image_files.decode_in_process` for a model's records."""


class UnavailableError(Exception):
    """No process that decodes images can be started."""


class DecodingProcesses:
    """Processes that decode images with a function, until `close` is called."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._cores = cores = min(process_pool.available_cores(), MAX_PROCESSES)
        count = cores + 1
        self._several = asyncio.Semaphore(cores)
        self._large = asyncio.Semaphore(max(1, cores // 2))
        self._threads = ThreadPoolExecutor(cores, thread_name_prefix="decoding")
        self._small = Batcher(
            lambda files: self._run(files, False),
            limit=GROUP,
            delay=0,
            capacity=CAPACITY,
            threads=count,
        )
        # A thread takes a process from the queue; None: one has to be started.
        self._idle: queue.SimpleQueue[_Process | None] = queue.SimpleQueue()
        self._processes: set[_Process] = set()
        self._closed = False
        for _ in range(count):
            self._idle.put(self._start())

    async def decode(self, files: Sequence[bytes]) -> list[Outcome]:
        """Decode the files of a request.

        Raise RequestError if they have too many pixels together, QueueFullError if too many files
        are waiting, and UnavailableError.
        """
        loop, total = asyncio.get_running_loop(), image_files.RequestPixels()

        async def run(content: bytes, large: bool, *lanes: asyncio.Semaphore) -> Outcome:
            async with contextlib.AsyncExitStack() as stack:
                for lane in lanes:
                    await stack.enter_async_context(lane)
                total.check()
                (outcome,) = await loop.run_in_executor(self._threads, self._run, [content], large)
                return outcome

        # Of a request's files, only some wait for the processes at a time.
        own = asyncio.Semaphore(self._cores)

        async def begin(number: int, content: bytes) -> Outcome:
            if len(content) > SMALL_FILE:
                outcome = await run(content, False, own, self._several)
            else:
                outcome = await self._small.submit(content, 1, rank=number // GROUP)
            total.add(outcome)
            return outcome

        outcomes = await asyncio.gather(*(begin(*item) for item in enumerate(files)))
        total.check()
        for number, outcome in enumerate(outcomes):
            if outcome.is_large:
                outcomes[number] = await run(files[number], True, self._large, self._several)
        return outcomes

    async def work(self) -> None:
        """Decode small files until cancelled."""
        await self._small.work()

    def check(self) -> bool:
        """Return whether all idle processes are running; replace those that are not."""
        processes = []
        with contextlib.suppress(queue.Empty):
            while True:
                processes.append(self._idle.get_nowait())
        running = [process is not None and process.is_running for process in processes]
        for process, is_running in zip(processes, running, strict=True):
            self._idle.put(process if is_running else self._replace(process))
        return all(running)

    def close(self) -> None:
        """End the processes, even those that decode an image."""
        self._closed = True
        for process in list(self._processes):
            process.kill()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, files: Sequence[bytes], large: bool) -> list[Outcome]:
        """Decode images in an idle process."""
        process = self._idle.get()
        try:
            process = process or self._start()
            if process is None:
                raise UnavailableError
            return process.ask((files, large))
        except UnavailableError:
            process = self._replace(process)
            raise
        except (EOFError, OSError):
            process = self._replace(process)
            if not large:
                return [Outcome(is_large=True)] * len(files)
            seconds = image_files.LARGE_SECONDS
            problem = f"takes over {seconds:.0f} s to decode; send an image with fewer pixels"
            return [Outcome(problem=problem)] * len(files)
        finally:
            self._idle.put(process)

    def _start(self) -> "_Process | None":
        if not self._closed:
            with contextlib.suppress(OSError):
                process = _Process(self._decode)
                self._processes.add(process)
                return process
        return None

    def _replace(self, process: "_Process | None") -> "_Process | None":
        if process:
            process.kill()
            self._processes.discard(process)
        return self._start()


class _Process:
    """A process that decodes one image after another."""

    def __init__(self, decode: Decode) -> None:
        modules = [image_files.__name__, "cv2"]
        self._connection, self._process = process_pool.start_process(modules)
        self._decode, self._is_ready = decode, False

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def ask(self, task: image_files.Task) -> list[Outcome]:
        """Decode images.

        Raise UnavailableError if the process does not start, and EOFError or OSError if it ends or
        takes too long.
        """
        if not self._is_ready:
            try:
                self._receive(_START_SECONDS)
                self._connection.send((process_pool.WORK, self._decode))
            except (EOFError, OSError):
                raise UnavailableError from None
            self._is_ready = True
        self._connection.send((process_pool.TASK, task))
        end = time.monotonic() + WAIT_SECONDS
        while isinstance(answer := self._receive(end - time.monotonic()), int):
            pass  # The number of tasks done since the last message.
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _receive(self, seconds: float) -> Any:
        if not self._connection.poll(max(0.0, seconds)):
            raise TimeoutError
        return self._connection.recv()
