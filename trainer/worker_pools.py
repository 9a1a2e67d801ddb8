"""Which machines train: options, and the worker_pool_specs that they amount to.

    worker_pool_specs(MachineOptions(worker_count=3), ["--epochs=10"])

gives the list that a CustomJob takes, each pool at the place that Vertex AI has for its
role: 0 chief, 1 workers, 2 parameter servers, 3 evaluators.
https://cloud.google.com/vertex-ai/docs/training/distributed-training

The launcher of CustomTrainingJobOp drops an empty pool, and with it the place. So an
evaluator without parameter servers before it comes to stand where Vertex AI has workers or
parameter servers; every replica is told, by --evaluator_pool, to take it for what it is.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from trainer.errors import InputError
from trainer.fields import nearest, option

ROLES = ("chief", "worker", "ps", "evaluator")
DISK_TYPES = ("pd-ssd", "pd-standard")
IMAGE = "vertex-tensorflow-training:latest"
"""Image of components and replicas where none was named: what the project builds, unpushed."""

ATTACHED = {
    "NVIDIA_TESLA_P4": (1, 2, 4),
    "NVIDIA_TESLA_P100": (1, 2, 4),
    "NVIDIA_TESLA_T4": (1, 2, 4),
    "NVIDIA_TESLA_V100": (1, 2, 4, 8),
}
"""How many of an accelerator an N1 machine may have.

Source of this and the next table: "GPUs" in
https://cloud.google.com/vertex-ai/docs/training/configure-compute
"""

BUILT_IN = {
    **{f"a2-highgpu-{n}g": ("NVIDIA_TESLA_A100", n) for n in (1, 2, 4, 8)},
    "a2-megagpu-16g": ("NVIDIA_TESLA_A100", 16),
    **{f"a2-ultragpu-{n}g": ("NVIDIA_A100_80GB", n) for n in (1, 2, 4, 8)},
    **{f"a3-highgpu-{n}g": ("NVIDIA_H100_80GB", n) for n in (1, 2, 4, 8)},
    "a3-megagpu-8g": ("NVIDIA_H100_MEGA_80GB", 8),
    "a3-ultragpu-8g": ("NVIDIA_H200_141GB", 8),
    "a4-highgpu-8g": ("NVIDIA_B200", 8),
    **{f"g2-standard-{cpus}": ("NVIDIA_L4", 1) for cpus in (4, 8, 12, 16, 32)},
    "g2-standard-24": ("NVIDIA_L4", 2),
    "g2-standard-48": ("NVIDIA_L4", 4),
    "g2-standard-96": ("NVIDIA_L4", 8),
}
"""The accelerators that a machine type comes with; Vertex AI wants them named all the same."""

ACCELERATORS = tuple(sorted({*ATTACHED, *(kind for kind, _ in BUILT_IN.values())}))
MACHINE_TYPE = re.compile(r"[a-z][a-z0-9]*-[a-z]+(-[0-9]+g?)?")
_BUILT_IN_FAMILY = re.compile(r"(a2|a3|a4|g2)-")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Machines of the training job; each is a parameter of the pipeline.

    Names are those of the REST API's WorkerPoolSpec, with a role before them.
    """

    chief_machine_type: str = option("n1-standard-4", help="Machine type of the chief.")
    worker_count: int = option(
        0, help="Number of workers beside the chief; 0: the chief trains alone.", minimum=0
    )
    worker_machine_type: str = option("", help="Machine type of workers; empty: the chief's.")
    ps_count: int = option(
        0,
        help="Number of parameter servers; at least 1 with strategy=parameter_server, else 0.",
        minimum=0,
    )
    ps_machine_type: str = option("n1-standard-4", help="Machine type of parameter servers.")
    evaluator_count: int = option(
        0,
        help="Number of evaluators: 1 for a replica that scores each checkpoint on the validation "
        "split.",
        minimum=0,
        maximum=1,
    )
    evaluator_machine_type: str = option("n1-standard-4", help="Machine type of the evaluator.")
    accelerator_type: str = option(
        "",
        help="Accelerator type of the chief and of each worker; empty: none. Parameter servers, "
        "and a chief beside them, have none.",
        choices=("", *ACCELERATORS),
    )
    accelerator_count: int = option(
        0,
        help="Number of accelerators of each replica that has accelerator_type.",
        minimum=0,
        maximum=16,
    )
    boot_disk_type: str = option(
        "pd-ssd", help="Boot disk type of every replica.", choices=DISK_TYPES
    )
    boot_disk_size_gb: int = option(
        100, help="Boot disk size of every replica, in GB.", minimum=100, maximum=64000
    )
    image_uri: str = option(IMAGE, help="Container image of every replica.")

    def __post_init__(self) -> None:
        if not self.image_uri.strip():
            raise InputError("image_uri='' names no image; give one, such as the --image compiled")
        if bool(self.accelerator_type) != bool(self.accelerator_count):
            raise InputError(
                f"accelerator_type={self.accelerator_type!r} with accelerator_count="
                f"{self.accelerator_count}: give both, or neither ('' and 0)"
            )
        machines = {"chief_machine_type": self.chief_machine_type}
        if self.worker_machine_type or self.ps_count:
            machines["worker_machine_type"] = self.worker_machine_type or self.chief_machine_type
        if self.ps_count:
            if not self.worker_count:
                raise InputError(
                    f"ps_count={self.ps_count} with worker_count=0: parameter servers need "
                    "workers; set worker_count=1 or more, or ps_count=0"
                )
            machines["ps_machine_type"] = self.ps_machine_type
        if self.evaluator_count:
            machines["evaluator_machine_type"] = self.evaluator_machine_type
        for name, machine_type in machines.items():
            if self.has_accelerators(name.removesuffix("_machine_type")):
                _check_machine(name, machine_type, self.accelerator_type, self.accelerator_count)
            else:
                _check_plain_machine(name, machine_type)

    @property
    def replicas(self) -> dict[str, int]:
        """How many replicas, by role, in the order of their worker pools."""
        counts = (1, self.worker_count, self.ps_count, self.evaluator_count)
        return {role: count for role, count in zip(ROLES, counts, strict=True) if count}

    @property
    def batch_shares(self) -> int:
        """Devices that share a batch; with parameter servers each worker has one of its own."""
        if self.ps_count:
            return 1
        return max(1, self.accelerator_count) * (1 + self.worker_count)

    def has_accelerators(self, role: str) -> bool:
        """Whether replicas of `role` compute gradients, and so get accelerators."""
        return role == "worker" or (role == "chief" and not self.ps_count)


def worker_pool_specs(machines: MachineOptions, flags: Sequence[str]) -> list[dict[str, Any]]:
    """Plans the worker pools of a CustomJob.

    Args:
        machines: how many of which.
        flags: command line of trainer.task, the same for every replica; with an evaluator,
            --evaluator_pool is added.

    Returns:
        A list of WorkerPoolSpec as JSON, keys as in the protos.
    """
    if machines.evaluator_count:
        flags = [*flags, f"--evaluator_pool={list(machines.replicas).index('evaluator')}"]
    return [_pool(machines, role, count, flags) for role, count in machines.replicas.items()]


def check_strategy(strategy: str, machines: MachineOptions) -> None:
    """Raises InputError where a value of config.STRATEGIES does not fit the replicas."""
    servers, workers = machines.ps_count, machines.worker_count
    if strategy == "parameter_server":
        for name, count in (("ps_count", servers), ("worker_count", workers)):
            if not count:
                raise InputError(
                    f"strategy='parameter_server' with {name}=0: it needs at least one; set "
                    f"{name}=1 or more, or take another strategy"
                )
    if strategy == "parameter_server" or (strategy == "auto" and servers):
        if machines.accelerator_count > 1:
            raise InputError(
                f"strategy={strategy!r} with ps_count={servers} and accelerator_count="
                f"{machines.accelerator_count}: a worker beside parameter servers computes on "
                "one; set accelerator_count=1 and a larger worker_count"
            )
    elif servers:
        raise InputError(
            f"strategy={strategy!r} has no use for parameter servers, but ps_count={servers}; "
            "use parameter_server, or ps_count=0"
        )
    elif workers and strategy in ("one_device", "mirrored"):
        raise InputError(
            f"strategy={strategy!r} trains on one replica, but worker_count={workers}; use "
            "multi_worker_mirrored, or worker_count=0"
        )


def _pool(
    machines: MachineOptions, role: str, replicas: int, flags: Sequence[str]
) -> dict[str, Any]:
    machine_type = getattr(machines, f"{role}_machine_type") or machines.chief_machine_type
    machine: dict[str, Any] = {"machine_type": machine_type}
    if machines.accelerator_count and machines.has_accelerators(role):
        machine["accelerator_type"] = machines.accelerator_type
        machine["accelerator_count"] = machines.accelerator_count
    return {
        "machine_spec": machine,
        "replica_count": replicas,
        "disk_spec": {
            "boot_disk_type": machines.boot_disk_type,
            "boot_disk_size_gb": machines.boot_disk_size_gb,
        },
        "container_spec": {
            "image_uri": machines.image_uri,
            "command": ["python3", "-m", "trainer.task"],
            "args": list(flags),
        },
    }


def _check_plain_machine(name: str, machine_type: str) -> None:
    """Raises InputError for a machine that has accelerators, or that nobody has."""
    _check_name(name, machine_type)
    if _BUILT_IN_FAMILY.match(machine_type):
        role = name.removesuffix("_machine_type")
        raise InputError(
            f"{name}={machine_type!r} comes with accelerators, which a {role} of this job does "
            "not use; set one without, such as 'n1-standard-4'"
        )


def _check_name(name: str, machine_type: str) -> None:
    if not MACHINE_TYPE.fullmatch(machine_type):
        raise InputError(f"{name}={machine_type!r} is not a machine type, such as 'n1-standard-4'")


def _check_machine(name: str, machine_type: str, accelerator: str, count: int) -> None:
    """Raises InputError for what Compute Engine is known not to have."""
    _check_name(name, machine_type)
    if machine_type in BUILT_IN:
        kind, built_in = BUILT_IN[machine_type]
        if (accelerator, count) != (kind, built_in):
            given = f"{count} x {accelerator}" if count else "none"
            raise InputError(
                f"{name}={machine_type!r} comes with {built_in} x {kind}, but {given} was asked "
                f"for; set accelerator_type={kind} and accelerator_count={built_in}"
            )
        return
    if _BUILT_IN_FAMILY.match(machine_type):
        raise InputError(f"{name}={machine_type!r} is not known{nearest(machine_type, BUILT_IN)}")
    if not count:
        return
    if accelerator not in ATTACHED:
        fitting = [machine for machine, built_in in BUILT_IN.items() if built_in[0] == accelerator]
        raise InputError(
            f"{name}={machine_type!r} can't have {accelerator}; use {' or '.join(fitting)}"
        )
    if not machine_type.startswith("n1-"):
        raise InputError(
            f"{name}={machine_type!r} can't have {accelerator}, only N1 machines can; "
            "use one, such as 'n1-standard-8'"
        )
    if count not in ATTACHED[accelerator]:
        raise InputError(
            f"accelerator_count={count}: a machine has {_listed(ATTACHED[accelerator])} "
            f"{accelerator}"
        )


def _listed(counts: Sequence[int]) -> str:
    return f"{', '.join(map(str, counts[:-1]))} or {counts[-1]}"
