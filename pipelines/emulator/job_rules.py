"""What Vertex AI checks of a CustomJob before it takes it."""

import re
from typing import Any

from pipelines.emulator.api_error import invalid

MAX_POOLS = 4
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check(job: Any) -> None:
    """Raise ApiError where Vertex AI would refuse `job`, a CustomJob message."""
    if not job.display_name:
        raise invalid("custom_job.display_name is required")
    pools = list(job.job_spec.worker_pool_specs)
    path = "custom_job.job_spec.worker_pool_specs"
    if not pools:
        raise invalid(f"{path} is required: at least the chief's pool")
    if len(pools) > MAX_POOLS:
        raise invalid(f"{path} has {len(pools)} pools; at most {MAX_POOLS} are allowed")
    if pools[0].replica_count != 1:
        raise invalid(
            f"{path}[0].replica_count is {pools[0].replica_count}; the primary pool (the chief) "
            "must have exactly 1 replica"
        )
    for index, pool in enumerate(pools):
        if index == 0 or not is_empty(pool):
            _check_pool(pool, f"{path}[{index}]")


def is_empty(pool: Any) -> bool:
    """Whether a WorkerPoolSpec is `{}`, which skips its position."""
    return bool(pool == type(pool)())


def _check_pool(pool: Any, path: str) -> None:
    if pool.replica_count < 1:
        raise invalid(f"{path}.replica_count is {pool.replica_count}; it must be positive")
    machine = pool.machine_spec
    if not machine.machine_type:
        raise invalid(f"{path}.machine_spec.machine_type is required")
    if machine.accelerator_type and machine.accelerator_count < 1:
        raise invalid(
            f"{path}.machine_spec.accelerator_count is {machine.accelerator_count}; with "
            f"accelerator_type {machine.accelerator_type.name} it must be positive"
        )
    if machine.accelerator_count and not machine.accelerator_type:
        raise invalid(
            f"{path}.machine_spec.accelerator_type is required with accelerator_count "
            f"{machine.accelerator_count}"
        )
    container = pool.container_spec
    if not container.image_uri:
        raise invalid(
            f"{path}.container_spec.image_uri is required (python_package_spec is not run here)"
        )
    if not (container.command or container.args):
        raise invalid(
            f"{path}.container_spec.command is required here: no image is pulled, so its "
            "entry point is unknown"
        )
    names = [variable.name for variable in container.env]
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise invalid(f"{path}.container_spec.env has the invalid name {name!r}")
        if names.count(name) > 1:
            raise invalid(f"{path}.container_spec.env sets {name!r} more than once")
