"""What Vertex AI checks of a CustomJob before it takes it: a function a rule."""

import re
from collections.abc import Sequence
from typing import Any

from pipelines.emulator.api_error import invalid
from pipelines.emulator.labels import check_labels
from trainer.errors import InputError
from trainer.machine_types import check_machine

MAX_POOLS = 4
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check(job: Any) -> None:
    """Raise ApiError where Vertex AI would refuse `job`, a CustomJob message.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec
    """
    if not job.display_name:
        raise invalid("custom_job.display_name is required")
    check_labels(job.labels)
    pools = list(job.job_spec.worker_pool_specs)
    path = "custom_job.job_spec.worker_pool_specs"
    check_pools(pools, path)
    for index, pool in enumerate(pools):
        if index == 0 or not is_empty(pool):
            where = f"{path}[{index}]"
            if pool.replica_count < 1:
                raise invalid(f"{where}.replica_count is {pool.replica_count}; it must be positive")
            check_machine_spec(pool.machine_spec, where)
            check_container(pool.container_spec, where)
            check_variables(pool.container_spec, where)


def check_pools(pools: Sequence[Any], path: str) -> None:
    """Refuse no pool, more than four, and a primary pool that has not exactly one replica.

    https://cloud.google.com/vertex-ai/docs/training/distributed-training
    """
    if not pools:
        raise invalid(f"{path} is required: at least the chief's pool")
    if len(pools) > MAX_POOLS:
        raise invalid(f"{path} has {len(pools)} pools; at most {MAX_POOLS} are allowed")
    if pools[0].replica_count != 1:
        raise invalid(
            f"{path}[0].replica_count is {pools[0].replica_count}; the primary pool (the chief) "
            "must have exactly 1 replica"
        )


def is_empty(pool: Any) -> bool:
    """Return whether a WorkerPoolSpec is `{}`, which skips its position."""
    return bool(pool == type(pool)())


def check_machine_spec(machine: Any, path: str) -> None:
    """Refuse a machine type that training does not have, or not with these accelerators.

    https://cloud.google.com/vertex-ai/docs/training/configure-compute
    """
    kind, count = machine.accelerator_type, machine.accelerator_count
    where = f"{path}.machine_spec"
    if not machine.machine_type:
        raise invalid(f"{where}.machine_type is required")
    if kind and count < 1:
        raise invalid(
            f"{where}.accelerator_count is {count}; with accelerator_type {kind.name} it must be "
            "positive"
        )
    if count and not kind:
        raise invalid(f"{where}.accelerator_type is required with accelerator_count {count}")
    try:
        check_machine(
            f"{where}.machine_type", machine.machine_type, kind.name if kind else "", count
        )
    except InputError as error:
        raise invalid(str(error)) from None


def check_container(container: Any, path: str) -> None:
    """Refuse a container without an image or, since none is pulled here, without a command.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec#ContainerSpec
    """
    if not container.image_uri:
        raise invalid(
            f"{path}.container_spec.image_uri is required (python_package_spec is not run here)"
        )
    if not (container.command or container.args):
        raise invalid(
            f"{path}.container_spec.command is required here: no image is pulled, so its "
            "entry point is unknown"
        )


def check_variables(container: Any, path: str) -> None:
    """Refuse variables that are set twice, or whose name is no C identifier.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/EnvVar
    """
    names = [variable.name for variable in container.env]
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise invalid(f"{path}.container_spec.env has the invalid name {name!r}")
        if names.count(name) > 1:
            raise invalid(f"{path}.container_spec.env sets {name!r} more than once")
