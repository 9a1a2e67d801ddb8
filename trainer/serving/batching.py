"""Batch requests: a single call answers the requests that arrive within a few milliseconds.

    batcher = Batcher(run, limit=64, delay=0.003, capacity=1024)
    result = await batcher.submit(item, size)      # while `work` runs

The call runs in a separate thread, so that the event loop can read and parse other requests.
"""

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import anyio


class QueueFullError(Exception):
    """The queue has no room for an item."""


class _Entry(NamedTuple):
    rank: int
    number: int  # in the order of arrival; no two are equal, so the other fields are not compared
    item: Any
    size: int
    time: float
    result: asyncio.Future[Any]


class Batcher:
    """Collect items into batches.

    Args:
        run: called with items; returns one result per item, in order.
        limit: target size of a batch; its last item may exceed the limit.
        delay: maximum time in seconds that an item waits for others while `run` is idle.
        capacity: maximum total size of waiting items; beyond it, `submit` raises QueueFullError.
        threads: number of concurrent calls.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Any]], Sequence[Any]],
        *,
        limit: int,
        delay: float,
        capacity: int,
        threads: int = 1,
    ) -> None:
        self._run = run
        self._limit, self._delay, self._capacity = limit, delay, capacity
        self._waiting, self._started = 0, math.inf
        self._queue: asyncio.PriorityQueue[_Entry] = asyncio.PriorityQueue()
        self._numbers = itertools.count()
        self._count = threads
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="batches")

    async def submit(self, item: Any, size: int, rank: int = 0) -> Any:
        """Return the result of `item`; if this call is cancelled in time, the item is not run.

        Items of a lower rank are run first, those of one rank in the order of arrival.
        Raise QueueFullError if the queue has no room, or the exception that `run` raised.
        """
        if self._waiting + size > self._capacity:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        entry = _Entry(rank, number, item, size, loop.time(), loop.create_future())
        self._waiting += size
        self._queue.put_nowait(entry)
        return await entry.result

    @property
    def running_seconds(self) -> float:
        """Return for how long the last call of `run` has lasted; 0 if there is none."""
        return max(0.0, time.monotonic() - self._started)

    async def work(self) -> None:
        """Run batches until cancelled."""
        await asyncio.gather(*(self._run_batches() for _ in range(self._count)))

    async def _run_batches(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = [entry for entry in await self._take_batch() if not entry.result.done()]
            if not batch:
                continue
            items = [entry.item for entry in batch]
            self._started = time.monotonic()
            try:
                results = await loop.run_in_executor(self._threads, self._run, items)
            except Exception as error:
                results = [error] * len(batch)
            self._started = math.inf
            for entry, result in zip(batch, results, strict=True):
                if entry.result.done():
                    continue
                if isinstance(result, Exception):
                    entry.result.set_exception(result)
                else:
                    entry.result.set_result(result)

    async def _take_batch(self) -> list[_Entry]:
        batch = [await self._queue.get()]
        size = batch[0].size
        # The deadline counts from arrival: add all items that waited while `run` was busy.
        with anyio.CancelScope(deadline=batch[0].time + self._delay):
            while size < self._limit:
                batch.append(await self._queue.get())
                size += batch[-1].size
        self._waiting -= size
        return batch
