"""Profile some steps of a run: TensorBoard's trace, and where the time of a step goes."""

import os
import re
import socket
import time
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

from trainer.data import storage
from trainer.data.schema import join

_ALL_REDUCE = re.compile(r"CollectiveReduce|AllReduce|nccl", re.IGNORECASE)
"""Names of operations and of kernels that sum over replicas, or wait for them to begin."""


class StepProfiler:
    """Profiles the chief in a run's steps [first, last], from 1, but not beyond their epoch."""

    def __init__(self, steps: list[int], base: str, *, is_chief: bool) -> None:
        self._first, self._last = steps or (0, 0)
        self._logs = join(base, "logs")
        self._is_chief = is_chief
        self._began: tuple[float, float] | None = None
        self.result: dict[str, Any] = {}

    def begin_step(self, step: int, waited: float) -> None:
        """Begin the trace if `step` is the first; `waited` are the epoch's seconds for input."""
        if step == self._first and self._is_chief:
            tf.profiler.experimental.start(self._logs)
            self._began = time.monotonic(), waited

    def is_last(self, step: int, ends_epoch: bool) -> bool:
        """Return whether the trace ends with a step: the last, or its epoch's."""
        return self._began is not None and (step == self._last or ends_epoch)

    def end(self, step: int, waited: float) -> None:
        """End the trace after `step`, whose results are there."""
        assert self._began
        (began, waited_before), self._began = self._began, None
        seconds, count = time.monotonic() - began, step - self._first + 1
        tf.profiler.experimental.stop()
        spent = {"step": seconds, "input": waited - waited_before}
        spent["all_reduce"] = self._read_all_reduce()
        spent["compute"] = max(0.0, seconds - spent["input"] - spent["all_reduce"])
        self.result = {
            "first_step": self._first,
            "last_step": step,
            **{f"{name}_seconds": value / count for name, value in spent.items()},
        }

    def _read_all_reduce(self) -> float:
        """Return the seconds of the trace in which all-reduces ran, on any thread."""
        pattern = join(self._logs, f"plugins/profile/*/{socket.gethostname()}.xplane.pb")
        newest = max(tf.io.gfile.glob(pattern), key=os.path.dirname)
        spans = []
        for plane in XSpace.FromString(storage.read(newest)).planes:
            names = {key: metadata.name for key, metadata in plane.event_metadata.items()}
            for line in plane.lines:
                for event in line.events:
                    if _ALL_REDUCE.search(names[event.metadata_id]):
                        start = line.timestamp_ns * 1000 + event.offset_ps
                        spans.append((start, start + event.duration_ps))
        total, end = 0, 0
        for start, stop in sorted(spans):
            total += max(0, stop - max(start, end))
            end = max(end, stop)
        return total / 1e12
