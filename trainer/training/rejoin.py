"""A replica that lost a peer starts again in its own place and waits there for the peer.

Vertex AI restarts a replica that was lost, but a replica that exits with a failure may end the
whole job ("Understand the training service"). TensorFlow can't take a peer back into a running
cluster. So a survivor does not exit: a fresh interpreter replaces its process, under the same
process id, waits until all peers have done the same, and goes on from the checkpoint.

Where the service ends the whole job instead, the fresh process ends with it, and the job's next
try goes on from the same checkpoint.
"""

import os
import sys
import time

WAITED_SINCE = "PEER_GONE_SINCE"
"""Environment variable of a process that waits for a peer: the time of the loss, in seconds."""

PATIENCE_SECONDS = 1800.0
"""Time after a loss in which a replica starts again: a new virtual machine takes minutes.

The last start may wait longer: TensorFlow gives up on a peer after an hour.
"""

_PAUSE_SECONDS = 1.0


def restart(arguments: list[str]) -> None:
    """Replaces this process by a fresh one; returns only where the peer was waited for too long.

    Args:
        arguments: of `python -m trainer.task`.
    """
    now = time.time()
    since = float(os.environ.setdefault(WAITED_SINCE, str(now)))
    if now - since > PATIENCE_SECONDS:
        return
    time.sleep(_PAUSE_SECONDS)  # Attempts may fail at once until the peer is back.
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-m", "trainer.task", *arguments]
    os.execv(command[0], command)  # noqa: S606 - there is no shell to start it by


def end_wait() -> None:
    """Forgets the loss: all peers are back and training has gone on."""
    os.environ.pop(WAITED_SINCE, None)
