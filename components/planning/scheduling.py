"""Check the requirements of Vertex AI's scheduling strategies for a training job's machines."""

import re
from decimal import Decimal

from components.planning.worker_pools import MachineOptions
from vertex.errors import InputError
from vertex.formats import choices, duration
from vertex.machines.machine_types import accelerators, types

_FLEX_START_GPUS = tuple(sorted(name for name, gpu in accelerators().items() if gpu.flex_start))
_DURATION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?s")
_MAX_TASK_SECONDS = 7 * 24 * 3600
"""Vertex AI cancels a pipeline task after 7 days, including its job's time in a queue.

"Maximum running time for a pipeline task" in machine-learning/quotas.
"""


def check_duration(strategy: str, timeout: str, max_wait: str) -> None:
    """Raise InputError for an invalid duration, or a job that may outlive the pipeline's task.

    Durations are in seconds, such as "3600s". Only FLEX_START has a `max_wait`; 0s means no limit.
    The launcher of CustomTrainingJobOp leaves it out of requests for other strategies.
    """
    for name, value in (("timeout", timeout), ("max_wait_duration", max_wait)):
        if not _DURATION.fullmatch(value):
            raise InputError(f"{name}={value!r} is not a duration in seconds, such as '3600s'")
    if not Decimal(timeout.removesuffix("s")):
        raise InputError(f"timeout={timeout!r} leaves no time to train; set a longer timeout")
    flexible = strategy == "FLEX_START"
    wait = Decimal(max_wait.removesuffix("s")) if flexible else Decimal(0)
    if flexible and not wait:
        raise InputError(
            f"max_wait_duration={max_wait!r} waits for machines without limit, but a pipeline's "
            "task ends after 7 days; set it to '86400s', for example"
        )
    longest = _MAX_TASK_SECONDS - wait
    if Decimal(timeout.removesuffix("s")) > longest:
        remedy = f"set timeout='{longest}s' or less" if longest > 0 else "shorten max_wait_duration"
        waits = f" and max_wait_duration={max_wait!r} add up to" if flexible else " is"
        raise InputError(
            f"timeout={timeout!r}{waits} more than the 7 days that a pipeline's task may last; "
            f"{remedy}"
        )


def check_search_duration(strategy: str, timeout: str, max_wait: str, rounds: int) -> None:
    """Raise InputError for a search whose trials, in `rounds`, may outlive the pipeline's task.

    The durations are those of a trial, which `check_duration` has checked.
    """
    wait = Decimal(max_wait.removesuffix("s")) if strategy == "FLEX_START" else Decimal(0)
    each = Decimal(timeout.removesuffix("s")) + wait
    if rounds * each <= _MAX_TASK_SECONDS:
        return
    longest = duration(float(rounds * each))
    shorter = _MAX_TASK_SECONDS // rounds - wait
    remedy = f"set timeout='{shorter}s' or less, " if shorter > 0 else ""
    raise InputError(
        f"timeout={timeout!r}: the trials, in {rounds} rounds, may take {longest}, but the "
        f"pipeline's task that waits for them ends after 7 days; {remedy}raise parallel, or lower "
        "trials"
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
                f"scheduling_strategy={strategy!r} does not provide {name} ({role}_machine_type) "
                "without a reservation; set scheduling_strategy to "
                f"{' or '.join(provided)}"
            )
    if strategy != "FLEX_START":
        return
    setting = "scheduling_strategy='FLEX_START'"
    if machines.accelerator_type not in _FLEX_START_GPUS:
        raise InputError(
            f"{setting} with accelerator_type={machines.accelerator_type!r}: it provides machines "
            f"with {choices(_FLEX_START_GPUS)}; use one of these, or STANDARD or SPOT"
        )
    for role in machines.replicas:
        machine_type = machines.machine_type(role)
        if not machines.has_accelerators(role) or machine_type != machines.chief_machine_type:
            raise InputError(
                f"{setting} with {role}_machine_type={machine_type!r}: it provides the same "
                "machines, with the same accelerators, to every role; leave out parameter servers "
                "and the evaluator, and set the same machine type for chief and workers, or use "
                "STANDARD or SPOT"
            )
