"""Scheduling strategies of Vertex AI for a training job's machines, and their requirements."""

import re
from decimal import Decimal

from trainer.errors import InputError
from trainer.machines.machine_types import accelerators, types
from trainer.machines.worker_pools import MachineOptions

SCHEDULING_STRATEGIES = ("STANDARD", "SPOT", "FLEX_START")

_FLEXIBLE = tuple(sorted(name for name, gpu in accelerators().items() if gpu.flex_start))
_DURATION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?s")
_LONGEST_SECONDS = 7 * 24 * 3600
"""Vertex AI cancels a pipeline task after 7 days, which include its job's time in a queue.

"Maximum running time for a pipeline task" in machine-learning/quotas.
"""


def check_duration(strategy: str, timeout: str, max_wait: str) -> None:
    """Raise InputError for an invalid duration, or a job that may outlive the pipeline's task.

    Durations are in seconds, such as "3600s". With FLEX_START, a `max_wait` of 0s has no limit.
    """
    for name, value in (("timeout", timeout), ("max_wait_duration", max_wait)):
        if not _DURATION.fullmatch(value):
            raise InputError(f"{name}={value!r} is not a duration in seconds, such as '3600s'")
    if not Decimal(timeout.removesuffix("s")):
        raise InputError(f"timeout={timeout!r} leaves no time to train; use more")
    wait = Decimal(max_wait.removesuffix("s"))
    if strategy == "FLEX_START" and not wait:
        raise InputError(
            f"max_wait_duration={max_wait!r} waits for machines without limit, but a pipeline's "
            "task ends after 7 days; set it to '86400s', for example"
        )
    left = _LONGEST_SECONDS - wait
    if Decimal(timeout.removesuffix("s")) > left:
        remedy = f"set timeout='{left}s' or less" if left > 0 else "shorten max_wait_duration"
        raise InputError(
            f"timeout={timeout!r} and max_wait_duration={max_wait!r} are more than the 7 days that "
            f"a pipeline's task lasts; {remedy}"
        )


def check_scheduling(strategy: str, machines: MachineOptions) -> None:
    """Raise InputError for machines that a scheduling strategy does not provide.

    FLEX_START requires L4, A100, H100, H200 or B200 accelerators, and the same machines in all
    worker pools.
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/schedule-jobs-dws#requirements

    SPOT provides all machine types of training.
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/use-spot-vms
    """
    for role in machines.replicas:
        name = machines.machine_type(role)
        provided = types()[name].strategies
        if provided and strategy not in provided:
            raise InputError(
                f"scheduling_strategy={strategy!r} does not provide {name} ({role}_machine_type), "
                f"which needs a reservation otherwise; set it to {' or '.join(provided)}"
            )
    if strategy != "FLEX_START":
        return
    what = "scheduling_strategy='FLEX_START'"
    if machines.accelerator_type not in _FLEXIBLE:
        raise InputError(
            f"{what} with accelerator_type={machines.accelerator_type!r}: it provides machines "
            f"with {', '.join(_FLEXIBLE[:-1])} or {_FLEXIBLE[-1]}; use one of these, or STANDARD "
            "or SPOT"
        )
    for role in machines.replicas:
        other = machines.machine_type(role)
        if not machines.has_accelerators(role) or other != machines.chief_machine_type:
            raise InputError(
                f"{what} with {role}_machine_type={other!r}: it provides the same machines, with "
                "the same accelerators, to every role; leave out parameter servers and the "
                "evaluator, and give chief and workers one machine type, or use STANDARD or SPOT"
            )
