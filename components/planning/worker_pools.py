"""Options for the machines of a training job, and their conversion to worker_pool_specs.

    build_worker_pool_specs(MachineOptions(worker_count=3), ["--config=URI"])

returns the list for a CustomJob. Vertex AI derives the role of a pool from its position:
0 chief, 1 workers, 2 parameter servers, 3 evaluators.
https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/distributed-training

The launcher of CustomTrainingJobOp drops empty pools, which shifts later pools. So without
parameter servers, the evaluator has the position of workers or parameter servers. The flag
--evaluator_pool tells every replica the evaluator's position.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from trainer.conditions import above_zero
from trainer.fields import option
from trainer.models import NO_PROGRAM
from vertex.errors import InputError
from vertex.facts.jobs import LARGEST_DISK_GB, ROLES, SMALLEST_DISK_GB
from vertex.machines.machine_types import (
    check_disk,
    check_machine,
    check_type,
    disk_types,
    list_offered_accelerators,
)

IMAGE = "vertex-tensorflow-training:latest"
"""Default image of components and replicas: the image that the project builds but does not push."""
GPU_IMAGE = "vertex-tensorflow-training:gpu"
"""Default image of steps with an accelerator."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Machine options of the training job; each is a parameter of the pipeline.

    The names are those in the REST API's WorkerPoolSpec, prefixed with a role.
    """

    chief_machine_type: str = option("n1-standard-4", help="Machine type of the chief.")
    worker_count: int = option(
        0, help="Number of workers besides the chief; 0: the chief trains alone.", minimum=0
    )
    worker_machine_type: str = option(
        "", help="Machine type of workers; empty: the chief's.", applies=above_zero("worker_count")
    )
    ps_count: int = option(
        0,
        help="Number of parameter servers; at least 1 with strategy=parameter_server, otherwise 0.",
        minimum=0,
        applies=above_zero("worker_count"),
    )
    ps_machine_type: str = option(
        "n1-standard-4",
        help="Machine type of parameter servers.",
        applies=above_zero("ps_count"),
    )
    evaluator_count: int = option(
        0,
        help="Number of evaluators; 1: a replica that scores each checkpoint on the validation "
        "split.",
        minimum=0,
        maximum=1,
        applies=NO_PROGRAM,
    )
    evaluator_machine_type: str = option(
        "n1-standard-4",
        help="Machine type of the evaluator.",
        applies=above_zero("evaluator_count"),
    )
    accelerator_type: str = option(
        "",
        help="Accelerator type of the chief and of each worker; empty: none. Parameter servers "
        "have none, nor does the chief of a job with parameter servers.",
        choices=("", *list_offered_accelerators()),
    )
    accelerator_count: int = option(
        0,
        help="Number of accelerators of each replica that has accelerator_type.",
        minimum=0,
        maximum=16,
    )
    boot_disk_type: str = option(
        "pd-ssd",
        help="Boot disk type of every replica, which its machine type must support.",
        choices=disk_types(),
    )
    boot_disk_size_gb: int = option(
        100,
        help="Boot disk size of every replica, in GB.",
        minimum=SMALLEST_DISK_GB,
        maximum=LARGEST_DISK_GB,
    )
    image_uri: str = option(IMAGE, help="Container image of replicas without accelerators.")
    gpu_image_uri: str = option(
        "",
        help="Container image, with CUDA's libraries, of replicas that have accelerators; empty: "
        "none, so that accelerators can't be used on Vertex AI.",
    )

    def __post_init__(self) -> None:
        if not self.image_uri.strip():
            raise InputError("image_uri is empty; set it to the --image of compile.py")
        if bool(self.accelerator_type) != bool(self.accelerator_count):
            raise InputError(
                f"accelerator_type={self.accelerator_type!r} with accelerator_count="
                f"{self.accelerator_count}: set both, or neither ('' and 0)"
            )
        machines = {}
        for role in ROLES:
            if role not in self.replicas:
                continue
            name, machine_type = f"{role}_machine_type", self.machine_type(role)
            machines[name] = machine_type
            if self.has_accelerators(role):
                check_machine(name, machine_type, self.accelerator_type, self.accelerator_count)
            elif check_type(name, machine_type).accelerator:
                raise InputError(
                    f"{name}={machine_type!r} comes with accelerators, which a {role} of this job "
                    "does not use; set a machine type without accelerators, such as "
                    f"{MachineOptions.chief_machine_type!r}"
                )
        check_disk(self.boot_disk_type, machines)

    @property
    def training_image(self) -> str:
        """Return the image of the replicas that compute gradients."""
        return self.gpu_image_uri if self.accelerator_count else self.image_uri

    @property
    def replicas(self) -> dict[str, int]:
        """Return the number of replicas by role, in the order of their worker pools."""
        counts = (1, self.worker_count, self.ps_count, self.evaluator_count)
        return {role: count for role, count in zip(ROLES, counts, strict=True) if count}

    @property
    def batch_shares(self) -> int:
        """Return the number of devices that share a batch: 1 with parameter servers."""
        if self.ps_count:
            return 1
        return max(1, self.accelerator_count) * (1 + self.worker_count)

    def machine_type(self, role: str) -> str:
        """Return the machine type of a role's replicas; workers default to the chief's."""
        return {
            "chief": self.chief_machine_type,
            "worker": self.worker_machine_type or self.chief_machine_type,
            "ps": self.ps_machine_type,
            "evaluator": self.evaluator_machine_type,
        }[role]

    def has_accelerators(self, role: str) -> bool:
        """Return whether replicas of `role` compute gradients, and therefore have accelerators."""
        return role == "worker" or (role == "chief" and not self.ps_count)


def build_worker_pool_specs(
    machines: MachineOptions, flags: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the worker pools of a CustomJob: WorkerPoolSpecs as JSON, with the protos' keys.

    `flags` is the command line of trainer.task, the same for every replica. --evaluator_pool is
    added if there is an evaluator, and --accelerator_count if a replica has accelerators.
    """
    if machines.evaluator_count:
        flags = [*flags, f"--evaluator_pool={list(machines.replicas).index('evaluator')}"]
    return [_build_pool(machines, role, count, flags) for role, count in machines.replicas.items()]


def check_gpu_image(accelerator_type: str, image: str, remedy: str) -> None:
    """Raise InputError for an accelerator without an image whose TensorFlow can use it.

    Any other image would silently compute on the CPU of a machine whose GPUs are billed.
    """
    if accelerator_type and not image:
        raise InputError(
            f"accelerator_type={accelerator_type!r} needs an image for GPUs, which `make push "
            f"TARGET=gpu` builds; {remedy}"
        )


def _build_pool(
    machines: MachineOptions, role: str, replicas: int, flags: Sequence[str]
) -> dict[str, Any]:
    machine: dict[str, Any] = {"machine_type": machines.machine_type(role)}
    image = machines.image_uri
    if machines.accelerator_count and machines.has_accelerators(role):
        image = machines.gpu_image_uri or image
        machine["accelerator_type"] = machines.accelerator_type
        machine["accelerator_count"] = machines.accelerator_count
        flags = [*flags, f"--accelerator_count={machines.accelerator_count}"]
    return {
        "machine_spec": machine,
        "replica_count": replicas,
        "disk_spec": {
            "boot_disk_type": machines.boot_disk_type,
            "boot_disk_size_gb": machines.boot_disk_size_gb,
        },
        "container_spec": {
            "image_uri": image,
            "command": ["python3", "-m", "trainer.task"],
            "args": list(flags),
        },
    }
