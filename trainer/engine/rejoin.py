"""Restart a replica that lost a peer, in place, to wait for the peer.

Vertex AI restarts a lost replica, but a replica that exits with a failure may end the whole job
("Understand the training service"), and TensorFlow can't readmit a peer to a running cluster. So a
surviving replica does not exit: a new interpreter replaces its process, with the same process ID,
waits until all peers have done the same, and resumes from the checkpoint.

If the service ends the whole job instead, the new process ends with it, and the job's next
attempt resumes from that checkpoint.
"""

import os
import sys
import time

WAITED_SINCE = "PEER_GONE_SINCE"
"""Environment variable with the time, in seconds, since when a process has waited for a peer."""

PATIENCE_SECONDS = 1800.0
"""Time after a loss during which a replica restarts itself: a new virtual machine takes minutes.

The last restart may wait longer, until TensorFlow gives up on a peer after an hour.
"""

_PAUSE_SECONDS = 1.0


def restart(command: list[str]) -> None:
    """Replace this process with that of a command; return if `PATIENCE_SECONDS` have passed."""
    now = time.time()
    since = float(os.environ.setdefault(WAITED_SINCE, str(now)))
    if now - since > PATIENCE_SECONDS:
        return
    time.sleep(_PAUSE_SECONDS)  # Until the peer is back, each attempt may fail immediately.
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], command)  # noqa: S606 - no shell is needed


def end_wait() -> None:
    """Clear the time of the loss: all peers are back and training has continued."""
    os.environ.pop(WAITED_SINCE, None)
