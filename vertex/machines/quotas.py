"""The quota of Vertex AI that a run's machines need."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from vertex.machines.machine_types import accelerators, find_step_type, types

# https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/schedule-jobs-dws#quota
_PREEMPTIBLE_STRATEGIES = ("SPOT", "FLEX_START")
"""Strategies that count against the quota of preemptible machines."""
_SERVICE = "aiplatform.googleapis.com"
SERVING_CPUS = f"{_SERVICE}/custom_model_serving_cpus"
"""Quota of machines that serve endpoints; 16 in the smallest regions."""
MAX_REPLICAS = 200
"""Replicas of deployed models in a project and region; the quota is DEPLOYED_REPLICAS at first."""
DEPLOYED_REPLICAS = 100
_PARALLEL_JOBS = {8: (63, 31, 15), 16: (31, 15, 7), 32: (15, 7, 3)}
"""Training jobs that a reserved range of /16, /17 and /18 allows, by the largest job's replicas.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/using-private-ip
"""


def find_reserved_range(jobs: int, replicas: int) -> str:
    """Return the smallest range of addresses for peered jobs that run at the same time, as /18.

    Return "" if even a /16 is too small.
    """
    sizes = [limits for most, limits in _PARALLEL_JOBS.items() if replicas <= most]
    fitting = [f"/{16 + n}" for n, most in enumerate(sizes[0]) if jobs <= most] if sizes else []
    return max(fitting, default="")


def list_quotas(
    pools: Sequence[Mapping[str, Any]],
    strategy: str = "STANDARD",
    step_accelerator: str = "",
    jobs: int = 1,
) -> dict[str, int]:
    """Return the amount of each Vertex AI quota that a run needs, sorted by metric.

    `jobs` training jobs with these pools run at the same time; if there are several, a step waits
    for them. Other steps run before or after them. The vCPUs of a step with a larger machine or an
    accelerator are not counted, because Vertex AI chooses the machine.

    "Custom-trained model quotas":
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/quotas
    """
    training = f"{_SERVICE}/custom_model_training_"
    prefix = f"{training}preemptible_" if strategy in _PREEMPTIBLE_STRATEGIES else training
    amounts: collections.Counter[str] = collections.Counter()
    for pool in pools:
        machine, disk = pool["machine_spec"], pool["disk_spec"]
        replicas = jobs * pool["replica_count"]
        machine_type = types()[machine["machine_type"]]
        if machine_type.quota:
            amounts[f"{prefix}{machine_type.quota}"] += replicas * machine_type.vcpus
        if machine.get("accelerator_count"):
            accelerator = accelerators()[machine["accelerator_type"]]
            amounts[f"{prefix}{accelerator.quota}"] += replicas * machine["accelerator_count"]
        kind = disk["boot_disk_type"].replace("-", "_")
        amounts[f"{training}{kind}"] += replicas * disk["boot_disk_size_gb"]
    step = find_step_type()  # the machine of a step's CustomJob
    cpus = f"{training}{step.quota}"
    beside = amounts[cpus] if jobs > 1 else 0
    amounts[cpus] = max(amounts[cpus], beside + step.vcpus)
    if step_accelerator:
        metric = f"{training}{accelerators()[step_accelerator].quota}"
        amounts[metric] = max(amounts[metric], 1)
    return dict(sorted(amounts.items()))
