"""Find the cause of an error of TensorFlow, so that a replica can retry it or name the remedy.

TensorFlow raises a class for each status code, and one code has several causes: a lost peer and a
store that does not answer are both UNAVAILABLE, a full disk and a full memory RESOURCE_EXHAUSTED.
Only the message tells them apart; TensorFlow's own ClusterCoordinator compares it, too
(`_is_worker_failure` in cluster_coordinator.py).
"""

import enum

import tensorflow as tf

PEER_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,  # At startup, TensorFlow waits for peers for an hour.
)
"""Errors of a call to a lost peer."""


class Cause(enum.Enum):
    """The cause of an error."""

    PEER_LOST = enum.auto()
    STORAGE_UNREACHABLE = enum.auto()
    DISK_FULL = enum.auto()
    MEMORY_FULL = enum.auto()
    NO_XLA_KERNEL = enum.auto()  # XLA has no deterministic form of an operation.
    XLA_MERGE_CALL = enum.auto()  # A layer waits for other devices, which XLA can't compile.


_CAUSES = (
    # The Cloud Storage client's text: tsl/platform/retrying_utils.cc.
    (PEER_ERRORS, "retry attempts failed", Cause.STORAGE_UNREACHABLE),
    (PEER_ERRORS, "", Cause.PEER_LOST),
    # A replica restarted, or ended, before its loss was noticed.
    (
        tf.errors.InvalidArgumentError,
        "Unable to find the relevant tensor remote_handle",
        Cause.PEER_LOST,
    ),
    (
        tf.errors.InvalidArgumentError,
        "Resource input tensor contains an invalid device",
        Cause.PEER_LOST,
    ),
    (tf.errors.ResourceExhaustedError, "No space left", Cause.DISK_FULL),
    (tf.errors.ResourceExhaustedError, "", Cause.MEMORY_FULL),
    (tf.errors.UnimplementedError, "", Cause.NO_XLA_KERNEL),
    (RuntimeError, "merge_call", Cause.XLA_MERGE_CALL),
)
"""Classes of errors, a part of their message, and the cause; the first that fits is the cause."""


def find_cause(error: Exception) -> Cause | None:
    """Return the cause of an error, or None if it is not a known one."""
    fitting = (
        cause for kinds, text, cause in _CAUSES if isinstance(error, kinds) and text in str(error)
    )
    return next(fitting, None)
