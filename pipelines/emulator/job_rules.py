"""Checks of Vertex AI on a CustomJob before it takes it: a function a rule."""

import re
from collections.abc import Sequence
from typing import Any

from pipelines import resource_names
from pipelines.emulator.api_error import invalid
from pipelines.emulator.field_rules import check_form, check_key, check_name, check_region
from pipelines.emulator.labels import check_labels
from trainer.errors import InputError
from trainer.machines.machine_types import accelerators, check_disk, check_machine

MAX_POOLS = 4
MAX_VARIABLES = 100
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SMALLEST_DISK_GB, _LARGEST_DISK_GB = 100, 64_000
_LONGEST_SECONDS = 7 * 24 * 3600


def check(job: Any, parent: str) -> None:
    """Raise ApiError where Vertex AI would refuse `job`, a CustomJob message.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec

    Args:
        parent: projects/P/locations/L.
    """
    check_name(job, "custom_job")
    check_labels(job.labels)
    check_resources(job, parent)
    pools = list(job.job_spec.worker_pool_specs)
    path = "custom_job.job_spec.worker_pool_specs"
    check_pools(pools, path)
    for index, pool in enumerate(pools):
        if index == 0 or not is_empty(pool):
            where = f"{path}[{index}]"
            if pool.replica_count < 1:
                raise invalid(f"{where}.replica_count is {pool.replica_count}; it must be positive")
            check_machine_spec(pool.machine_spec, where)
            check_boot_disk(pool, where)
            check_container(pool.container_spec, where)
            check_variables(pool.container_spec, where)
    check_flex_start(job.job_spec, path)


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


def check_boot_disk(pool: Any, path: str) -> None:
    """Refuse a boot disk that the machine does not take, that is not one, or of another size.

    https://cloud.google.com/vertex-ai/docs/training/configure-compute
    """
    disk, size = pool.disk_spec.boot_disk_type, pool.disk_spec.boot_disk_size_gb
    if size and not _SMALLEST_DISK_GB <= size <= _LARGEST_DISK_GB:
        raise invalid(
            f"{path}.disk_spec.boot_disk_size_gb is {size}; it must be {_SMALLEST_DISK_GB} to "
            f"{_LARGEST_DISK_GB}"
        )
    if disk:
        try:
            check_disk(disk, {f"{path}.disk_spec": pool.machine_spec.machine_type})
        except InputError as error:
            raise invalid(str(error)) from None


def check_flex_start(spec: Any, path: str) -> None:
    """Refuse FLEX_START for other GPUs, a longer job, or machines that differ between pools.

    https://cloud.google.com/vertex-ai/docs/training/schedule-jobs-dws
    """
    if spec.scheduling.strategy.name != "FLEX_START":
        return
    machines = [pool.machine_spec for pool in spec.worker_pool_specs if not is_empty(pool)]
    provided = [name for name, one in accelerators().items() if one.flex_start]
    if any(one.accelerator_type.name not in provided for one in machines):
        raise invalid(f"{path}: FLEX_START provides machines with {', '.join(provided)}")
    if any(one != machines[0] for one in machines):
        raise invalid(f"{path}: FLEX_START provides the same machines to every pool")
    if spec.scheduling.timeout.total_seconds() > _LONGEST_SECONDS:
        raise invalid("scheduling.timeout is more than 7 days")


def check_resources(job: Any, parent: str) -> None:
    """Refuse a network, key, account or TensorBoard that is misnamed or of another region.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec
    https://cloud.google.com/vertex-ai/docs/experiments/tensorboard-training
    """
    spec = job.job_spec
    for name in ("network", "service_account", "tensorboard"):
        check_form(name, getattr(spec, name))
    check_key(job, parent)
    check_region("tensorboard", spec.tensorboard, parent)
    if spec.tensorboard and not spec.base_output_directory.output_uri_prefix:
        raise invalid("job_spec.base_output_directory is required with a tensorboard")
    try:
        resource_names.check_tensorboard(spec.tensorboard, spec.service_account)
        for pool in spec.worker_pool_specs:
            accelerator = pool.machine_spec.accelerator_type
            resource_names.check_peering(spec.network, accelerator.name if accelerator else "")
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
    """Refuse more than 100 variables, one that is set twice, and a name that is no C identifier.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/EnvVar
    """
    names = [variable.name for variable in container.env]
    if len(names) > MAX_VARIABLES:
        raise invalid(f"{path}.container_spec.env has {len(names)}; at most {MAX_VARIABLES}")
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise invalid(f"{path}.container_spec.env has the invalid name {name!r}")
        if names.count(name) > 1:
            raise invalid(f"{path}.container_spec.env sets {name!r} more than once")
