"""Profile some steps of a run: TensorBoard's trace, and where the time of a step goes."""

import os
import re
import socket
import time
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

from trainer.data import storage
from trainer.data.storage import join

_PARTS = {
    "input": re.compile(r"^IteratorGetNextOp::"),
    "all_reduce": re.compile(r"CollectiveReduce|AllReduce|nccl", re.IGNORECASE),
}
"""Names of operations and of kernels that wait for input, and that sum over replicas or wait for
them to begin."""


class StepProfiler:
    """Profiles the chief in a run's steps [first, last], from 1, but not beyond their epoch."""

    def __init__(self, steps: list[int], base: str, *, is_chief: bool) -> None:
        self._first, self._last = steps or (0, 0)
        self.edges = (self._first - 1, self._last) if steps else ()
        """Steps after which the trace begins and ends, on the chief."""
        self._logs = join(base, "logs")
        self._is_chief = is_chief
        self._began: float | None = None
        self.result: dict[str, Any] = {}

    def begin_step(self, step: int) -> None:
        """Begin the trace if `step` is the first."""
        if step == self._first and self._is_chief:
            tf.profiler.experimental.start(self._logs)
            self._began = time.monotonic()

    def end_step(self, step: int, *, ends_epoch: bool) -> None:
        """End the trace if `step`, whose results are there, is the last or the epoch's last."""
        if self._began is None or not (step == self._last or ends_epoch):
            return
        seconds, count = time.monotonic() - self._began, step - self._first + 1
        self._began = None
        tf.profiler.experimental.stop()
        parts = self._read_parts()
        spent = {"step": seconds, **parts, "compute": max(0.0, seconds - sum(parts.values()))}
        self.result = {
            "first_step": self._first,
            "last_step": step,
            **{f"{name}_seconds": value / count for name, value in spent.items()},
        }

    def _read_parts(self) -> dict[str, float]:
        """Return the seconds of the trace in which each of _PARTS ran, on any thread."""
        pattern = join(self._logs, f"plugins/profile/*/{socket.gethostname()}.xplane.pb")
        newest = max(tf.io.gfile.glob(pattern), key=os.path.dirname)
        spans: dict[str, list[tuple[int, int]]] = {part: [] for part in _PARTS}
        for plane in XSpace.FromString(storage.read(newest)).planes:
            names = {key: metadata.name for key, metadata in plane.event_metadata.items()}
            for line in plane.lines:
                for event in line.events:
                    start = line.timestamp_ns * 1000 + event.offset_ps
                    for part, name in _PARTS.items():
                        if name.search(names[event.metadata_id]):
                            spans[part].append((start, start + event.duration_ps))
        return {part: _measure(found) / 1e12 for part, found in spans.items()}


def _measure(spans: list[tuple[int, int]]) -> int:
    """Return the length of the union of spans, each from a start to an end."""
    total, end = 0, 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total
