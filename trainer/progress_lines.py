"""Print progress lines, about one a second."""

import time
from collections.abc import Callable

from vertex import formats

Clock = Callable[[], float]


class ProgressLines:
    """Prints progress, speed and remaining time.

    The speed is that since the first step, because worker processes take seconds to start.

    lines = ProgressLines("create_tfrecords", "images", total=1797, emit=print)
    lines.advance(64)   # create_tfrecords: 64/1,797 images, 812 images/s, 2.0 s left
    """

    def __init__(
        self,
        name: str,
        unit: str,
        *,
        total: int | None = None,
        emit: Callable[[str], None] = print,
        interval: float = 1.0,
        clock: Clock = time.monotonic,
    ) -> None:
        self.done = 0
        self._name, self._unit, self._total = name, unit, total
        self._emit, self._interval, self._clock = emit, interval, clock
        self._last = clock()
        self._first: tuple[float, int] | None = None  # the time and `done` after the first step

    def advance(self, count: int) -> None:
        """Count `count` more as done; print a line if the last one was `interval` seconds ago."""
        self.done += count
        now = self._clock()
        if self.done and self._first is None:
            self._first = now, self.done
        if now - self._last >= self._interval:
            self._last = now
            self._emit(f"{self._name}: {self._format_state(now)}")

    def _format_state(self, now: float) -> str:
        state = f"{formats.number_of(self.done, self._unit)} listed"
        if self._total is not None:
            state = f"{self.done:,}/{formats.number_of(self._total, self._unit)}"
        start, before = self._first or (now, self.done)
        if self.done == before:
            return state
        rate = (self.done - before) / max(now - start, 1e-3)
        state += f", {rate:,.0f} {self._unit}/s"
        if self._total is None:
            return state
        return f"{state}, {formats.clock((self._total - self.done) / rate)} left"
