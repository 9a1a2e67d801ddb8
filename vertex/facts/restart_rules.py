"""Vertex AI's rules for a replica that ends with an error: restart it, retry the job or fail.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/understanding-training-service
"""

from typing import Literal

MAX_RESTARTS = 5
"""Restarts of a replica in one attempt of the job."""
MAX_RETRIES = 3
"""Further attempts of the whole job."""
_MAX_SPOT_RETRIES = 6
"""The same after the loss of a Spot machine.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/use-spot-vms
"""

_KILLED, _TERMINATED = 128 + 9, 128 + 15
_ABORTED, _SEGMENTATION_FAULT = 128 + 6, 128 + 11


def choose_consequence(
    status: int,
    *,
    restarts: int,
    retries: int,
    disable_retries: bool,
    spot: bool = False,
    out_of_memory: bool = False,
) -> Literal["restart replica", "retry job", "fail job"]:
    """Return the consequence of a replica's failure.

    SIGKILL or SIGTERM is taken for the loss of the machine: "Agent Platform restarts the
    worker", "with up to five restarts per worker. After five restarts, if a worker fails again,
    Agent Platform retries the entire job up to three times". A job that loses a Spot machine
    fails and is restarted up to six times. SIGABRT and SIGSEGV are the "exit codes that could be
    transient": it "tries to restart the job up to three times".

    Args:
        status: exit status as a container reports it, not 0: 128 + n for signal n.
        restarts: of this replica in this attempt of the job.
        retries: of the job so far.
        disable_retries: of the job's scheduling: the job is not retried.
        spot: whether the job's machines are Spot machines.
        out_of_memory: whether the kernel killed the replica for lack of memory.
    """
    if out_of_memory:
        return "fail job"
    lost = is_lost(status)
    if lost and not spot and restarts < MAX_RESTARTS:
        return "restart replica"
    most = _MAX_SPOT_RETRIES if lost and spot else MAX_RETRIES
    transient = lost or status in (_ABORTED, _SEGMENTATION_FAULT)
    if transient and retries < most and not disable_retries:
        return "retry job"
    return "fail job"


def is_lost(status: int) -> bool:
    """Return whether an exit status is taken for the loss of the machine."""
    return status in (_KILLED, _TERMINATED)


def stockout_message(region: str) -> str:
    """Return the error of a job that has lost its Spot machines, in the words of the page."""
    return (
        f"Resources are insufficient in region: {region}. Try a different region or use a "
        "different accelerator."
    )


def error_message(replica: str, status: int, *, out_of_memory: bool = False) -> str:
    """Return the job's error, in the words of the page's table of common errors."""
    end = f"exited with a non-zero status of {status}."
    if out_of_memory:
        return f"The replica {replica} ran out of memory and {end}"
    return f"The replica {replica} {end} Termination reason: Error."
