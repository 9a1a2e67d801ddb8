"""How Vertex AI provides the machines of a training job, and what it wants for that."""

from decimal import Decimal

from trainer.errors import InputError
from trainer.worker_pools import BUILT_IN, MachineOptions

SCHEDULING_STRATEGIES = ("STANDARD", "SPOT", "FLEX_START", "ON_DEMAND", "LOW_COST")

_FLEXIBLE = tuple(sorted({kind for kind, _ in BUILT_IN.values()}))
"""Accelerators that FLEX_START provides: L4, A100, H100, H200 and B200 in each of their sizes."""
_LONGEST_SECONDS = 7 * 24 * 3600


def check_scheduling(strategy: str, machines: MachineOptions, timeout: str) -> None:
    """Raises InputError where a job does not meet the documented requirements of FLEX_START.

    They are L4, A100, H100, H200 or B200 accelerators, the same machines in all worker pools,
    and a timeout of at most 7 days. Of the wait, max_wait_duration, nothing is required.
    https://cloud.google.com/vertex-ai/docs/training/schedule-jobs-dws#requirements

    Spot machines may be of any type that training has.
    https://cloud.google.com/vertex-ai/docs/training/use-spot-vms

    Args:
        timeout: seconds, as "3600s".
    """
    if strategy != "FLEX_START":
        return
    what = "scheduling_strategy='FLEX_START'"
    if machines.accelerator_type not in _FLEXIBLE:
        raise InputError(
            f"{what} with accelerator_type={machines.accelerator_type!r}: it provides machines "
            f"with {', '.join(_FLEXIBLE[:-1])} or {_FLEXIBLE[-1]}; take one of these, or STANDARD "
            "or SPOT"
        )
    for role in machines.replicas:
        if role == "chief" and machines.has_accelerators(role):
            continue
        other = getattr(machines, f"{role}_machine_type") or machines.chief_machine_type
        if not machines.has_accelerators(role) or other != machines.chief_machine_type:
            raise InputError(
                f"{what} with {role}_machine_type={other!r}: it provides the same machines, with "
                "the same accelerators, to every role; leave out parameter servers and the "
                "evaluator, and give chief and workers one machine type, or take STANDARD or SPOT"
            )
    if Decimal(timeout.removesuffix("s")) > _LONGEST_SECONDS:
        raise InputError(
            f"{what} with timeout={timeout!r}: it provides machines for 7 days at most; set "
            f"timeout={_LONGEST_SECONDS}s or less"
        )
