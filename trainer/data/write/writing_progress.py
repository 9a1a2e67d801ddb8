"""Progress lines of record writing, about one a second."""

import time
from collections.abc import Callable

from trainer import formats

Clock = Callable[[], float]


class ProgressLines:
    """Prints the progress, speed and remaining time of some work.

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
        self._started = self._last = clock()

    def advance(self, count: int) -> None:
        """Count `count` more as done; print a line if the last one is `interval` old."""
        self.done += count
        if self._clock() - self._last >= self._interval:
            self._last = self._clock()
            self._emit(self._format_line())

    def _format_line(self) -> str:
        rate = self.done / max(self._clock() - self._started, 1e-3)
        speed = f"{rate:,.0f} {self._unit}/s"
        if self._total is None:
            return f"{self._name}: {format_count(self.done, self._unit)} listed, {speed}"
        line = f"{self._name}: {self.done:,}/{format_count(self._total, self._unit)}, {speed}"
        if not self.done:
            return line
        return f"{line}, {formats.clock((self._total - self.done) / rate)} left"


def format_count(number: int, unit: str) -> str:
    """Return a number of a unit that is given in the plural: 1 row, 2 rows."""
    return f"{number:,} {unit.removesuffix('s') if number == 1 else unit}"
