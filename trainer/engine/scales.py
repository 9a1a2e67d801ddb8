"""Scales by which the values of a step add up over the replicas."""

import enum
import threading
from typing import Any

import tensorflow as tf


class Scale(enum.Enum):
    """The factor of a replica's value in the sum over the replicas."""

    SHARE = "share"
    """The replica's part of the rows: the value is a mean over rows."""
    ONE = "one"
    """1: the value is a part of a sum over the batch."""
    SHARES = "shares"
    """Share times number of replicas, by which the step has divided a mean over rows."""

    def factor(self, share: Any, replicas: int) -> Any:
        if self is Scale.ONE:
            return tf.cast(share > 0, tf.float32)
        return share * replicas if self is Scale.SHARES else share


class Scales:
    """The scales of a step's values: those that it adds up, in their order, and its logs'.

    Without a trial, each is a mean over rows.
    """

    def __init__(self) -> None:
        self.values: list[Scale] = []
        self.logs: dict[str, Scale] = {}
        self._position = threading.local()  # tf.distribute traces each replica in its own thread.

    def begin(self) -> None:
        """Begin a replica's step."""
        self._position.next = 0

    def take(self) -> Scale:
        """Return the scale of the step's next value."""
        if not self.values:
            return Scale.SHARE
        self._position.next += 1
        return self.values[self._position.next - 1]


def flatten_logs(logs: dict[str, Any]) -> dict[str, Any]:
    """Return logs with the values of dicts in them, as Keras shows them."""
    flat: dict[str, Any] = {}
    for name, value in logs.items():
        flat |= flatten_logs(value) if isinstance(value, dict) else {name: value}
    return flat
