"""The first pass over a source, and processes that are started during it.

A process takes 0.2 s until it can write. If the source turns out to have enough work for several,
they are started before the plan is made; until then they share the pass itself, which would
otherwise take as long on 32 cores as on one.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from trainer.data import storage
from trainer.data.sources import Example, ImageSource, Rejection
from trainer.data.write.process_pool import Processes
from trainer.data.write.totals import Totals
from trainer.data.write.writing_progress import ProgressLines

CHECK_EVERY = 250
"""Examples listed between two checks for enough work."""

SAMPLE = 8
"""Examples that are encoded to measure the time for one."""

PIECE = 64
"""Files that a process or a thread takes at once."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def listed(
    source: ImageSource,
    lines: ProgressLines,
    processes: Processes,
    count: int,
    pool_min_seconds: float,
) -> Iterator[Example | Rejection]:
    """Yield what `source` lists; start `count` processes once they pay off.

    Args:
        lines: advanced by each example and rejection.
        count: 0 or 1 starts no process.
        pool_min_seconds: seconds of work from which several processes pay off.
    """
    # Next to remote reads, 0.3 s are negligible.
    early = count > 1 and not storage.is_remote(source.location)
    sample: list[Example] = []
    examples, seconds_each = 0, 0.0

    def mapped(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Map in this process until others are ready."""
        waiting = iter(items)
        if storage.is_remote(source.location):
            pieces = iter(lambda: list(itertools.islice(waiting, PIECE)), [])
            of_pieces = storage.read_ahead(
                lambda piece: list(map(function, piece)), pieces, uri=source.location
            )
            yield from itertools.chain.from_iterable(of_pieces)
            return
        while not processes.ready and (piece := list(itertools.islice(waiting, PIECE))):
            yield from map(function, piece)
        if processes.ready:
            yield from map_in_processes(function, waiting, processes, size=PIECE)

    for one in source.examples(mapped):
        lines.advance(1)
        yield one
        if not early or processes.count or isinstance(one, Rejection):
            continue
        examples += 1
        if examples <= SAMPLE:
            sample.append(one)
        elif examples % CHECK_EVERY == 0:
            if not seconds_each:  # Of all but the first one, which takes longer.
                Totals(sample=sample[:1]).record_cost(source)
                seconds_each = Totals(sample=sample[1:]).record_cost(source)[1]
            if examples * seconds_each >= pool_min_seconds:
                processes.start(count, ("trainer.data.write.shards", type(source).__module__))


def map_in_processes(
    function: Callable[[Item], Result], items: Iterator[Item], processes: Processes, *, size: int
) -> Iterator[Result]:
    """Map in all processes, `size` items at a time; results keep the order of items."""
    pieces = iter(lambda: list(itertools.islice(items, size)), [])
    work = functools.partial(_mapped, function)
    results = processes.run(work, enumerate(pieces), lambda _: None)
    early: dict[int, list[Result]] = {}
    with contextlib.closing(results):
        wanted = 0
        for number, piece in results:
            early[number] = piece
            while wanted in early:
                yield from early.pop(wanted)
                wanted += 1


def _mapped(
    function: Callable[[Item], Result], task: tuple[int, list[Item]], _: Any
) -> tuple[int, list[Result]]:
    number, items = task
    return number, [function(item) for item in items]
