"""Vertex AI's checks of a CustomJob."""

from collections.abc import Sequence
from typing import Any

from vertex.emulator.field_rules import (
    check_common,
    check_region,
    check_variables,
    refuse,
    region_of,
)
from vertex.facts import regions, resource_names
from vertex.facts.jobs import LARGEST_DISK_GB, SMALLEST_DISK_GB
from vertex.machines.machine_types import accelerators, check_disk, check_machine

MAX_POOLS = 4
MAX_VARIABLES = 100
_LONGEST_ARGUMENTS = 100_000
LONGEST_SECONDS = 7 * 24 * 3600
"""Longest timeout with FLEX_START, and the timeout of a job that sets none."""


def check(job: Any, parent: str) -> None:
    """Refuse a CustomJob that breaks a rule; `parent` is projects/P/locations/L."""
    check_common(job, "custom_job", parent)
    check_spec(job.job_spec, "custom_job.job_spec", parent)


def check_spec(spec: Any, path: str, parent: str) -> None:
    """Refuse a CustomJobSpec that breaks a rule; `path` is its field."""
    check_resources(spec, parent)
    pools, path = list(spec.worker_pool_specs), f"{path}.worker_pool_specs"
    check_pools(pools, path)
    for index, pool in enumerate(pools):
        if index == 0 or not is_empty(pool):
            where, count = f"{path}[{index}]", pool.replica_count
            refuse(count < 1, f"{where}.replica_count is {count}; it must be positive")
            check_machine_spec(pool, where, parent)
            package = pool.python_package_spec
            if package.python_module or package.executor_image_uri:
                check_package(package, f"{where}.python_package_spec")
            else:
                check_container(pool.container_spec, f"{where}.container_spec")
    check_scheduling(spec, path)


def check_pools(pools: Sequence[Any], path: str) -> None:
    """Refuse more than four pools, or a primary pool without exactly one replica."""
    count = len(pools)
    refuse(count > MAX_POOLS, f"{path} has {count} pools; at most {MAX_POOLS} are allowed")
    primary = pools[0].replica_count
    refuse(
        primary != 1,
        f"{path}[0].replica_count is {primary}; the primary pool (the chief) must have exactly 1 "
        "replica",
    )


def is_empty(pool: Any) -> bool:
    """Return whether a WorkerPoolSpec is `{}`, which leaves its position unused."""
    return bool(pool == type(pool)())


def check_machine_spec(pool: Any, path: str, parent: str) -> None:
    """Refuse a machine type that training lacks, or lacks with this GPU, boot disk or region."""
    machine, disk = pool.machine_spec, pool.disk_spec
    kind, count = machine.accelerator_type, machine.accelerator_count
    where = f"{path}.machine_spec"
    refuse(not machine.machine_type, f"{where}.machine_type is required")
    pair = f"accelerator_type {kind.name} and accelerator_count {count}"
    unequal = count < 0 or bool(kind) != bool(count)
    refuse(unequal, f"{where} has {pair}; it must have both or neither")
    name = kind.name if kind else ""
    check_machine(f"{where}.machine_type", machine.machine_type, name, count)
    if region := region_of(parent):
        regions.check_accelerator(name, region)
    size, sizes = disk.boot_disk_size_gb, f"{SMALLEST_DISK_GB} to {LARGEST_DISK_GB}"
    beyond = size and not SMALLEST_DISK_GB <= size <= LARGEST_DISK_GB
    refuse(beyond, f"{path}.disk_spec.boot_disk_size_gb is {size}; it must be {sizes}")
    if disk.boot_disk_type:
        check_disk(disk.boot_disk_type, {f"{path}.disk_spec": machine.machine_type})


def check_scheduling(spec: Any, path: str) -> None:
    """Refuse FLEX_START with an unsupported GPU, a longer timeout or pools of unlike machines.

    Refuse a maximum wait with any other strategy.
    """
    strategy = spec.scheduling.strategy.name
    if strategy != "FLEX_START":
        waits = "max_wait_duration" in spec.scheduling
        refuse(waits, f"scheduling.max_wait_duration needs strategy FLEX_START, not {strategy}")
        return
    machines = [pool.machine_spec for pool in spec.worker_pool_specs if not is_empty(pool)]
    provided = [name for name, accelerator in accelerators().items() if accelerator.flex_start]
    other = any(machine.accelerator_type.name not in provided for machine in machines)
    refuse(other, f"{path}: FLEX_START provides machines with {', '.join(provided)}")
    mixed = any(machine != machines[0] for machine in machines)
    refuse(mixed, f"{path}: FLEX_START provides the same machines to every pool")
    too_long = spec.scheduling.timeout.total_seconds() > LONGEST_SECONDS
    refuse(too_long, "scheduling.timeout is more than 7 days")


def check_resources(spec: Any, parent: str) -> None:
    """Refuse a network, account or TensorBoard that is malformed, misplaced or unsupported."""
    for name in ("network", "service_account", "tensorboard"):
        resource_names.check(name, getattr(spec, name))
    check_region("tensorboard", spec.tensorboard, parent)
    refuse(spec.persistent_resource_id, "persistent_resource_id is not supported here")
    lost = spec.tensorboard and not spec.base_output_directory.output_uri_prefix
    refuse(lost, "job_spec.base_output_directory is required with a tensorboard")
    resource_names.check_tensorboard(spec.tensorboard, spec.service_account)
    for pool in spec.worker_pool_specs:
        accelerator = pool.machine_spec.accelerator_type
        resource_names.check_peering(spec.network, accelerator.name if accelerator else "")


def check_package(package: Any, path: str) -> None:
    """Refuse a package without module, image or files."""
    for field in ("executor_image_uri", "package_uris", "python_module"):
        refuse(not getattr(package, field), f"{path}.{field} is required")
    check_variables(package.env, path)


def check_container(container: Any, path: str) -> None:
    """Refuse a container without image or command, or whose arguments or variables are invalid."""
    unnamed = not container.image_uri
    refuse(unnamed, f"{path} or python_package_spec is required")
    refuse(
        not (container.command or container.args),
        f"{path}.command is required here: no image is pulled, so its entry point is unknown",
    )
    length = sum(map(len, container.args))
    too_long = length > _LONGEST_ARGUMENTS
    refuse(too_long, f"{path}.args has {length} characters; at most {_LONGEST_ARGUMENTS}")
    count = len(container.env)
    refuse(count > MAX_VARIABLES, f"{path}.env has {count}; at most {MAX_VARIABLES}")
    check_variables(container.env, path)
