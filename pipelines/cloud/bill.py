"""The cost of past training jobs, from their own times and worker pools."""

import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from pipelines.cloud import runs
from pipelines.machines import cost
from trainer.errors import InputError


def cost_of(job: Any, rates: Mapping[str, float], now: datetime.datetime) -> Decimal:
    """Return the price of a CustomJob from its start to its end, or to now.

    Raises:
        InputError: something has no price.
    """
    start, end = runs.seconds_of(job.start_time), runs.seconds_of(job.end_time)
    if not start:
        return Decimal(0)
    prices = cost.table().overridden(rates)
    spot = job.job_spec.scheduling.strategy.name in cost.SPOT_STRATEGIES
    # The server's clock may be ahead of this machine's.
    hours = Decimal(str((end or max(now.timestamp(), start)) - start)) / 3600
    return cost.price(pools_of(job), prices, spot=spot) * hours


def summary(jobs: Sequence[Any], rates: Mapping[str, float] | None = None) -> str:
    """Return what jobs cost together, in words; empty where there are none."""
    if not jobs:
        return ""
    now = datetime.datetime.now(datetime.timezone.utc)
    prices = cost.table()
    try:
        total = sum((cost_of(job, rates or {}, now) for job in jobs), Decimal(0))
    except InputError as error:
        return f"cost unknown: {error}"
    return (
        f"training cost about {cost.money(total)} {prices.currency} at the prices of "
        f"{prices.region} of {prices.date}"
    )


def pools_of(job: Any) -> list[dict[str, Any]]:
    """Return the worker_pool_specs of a CustomJob, empty pools left out."""
    pools = []
    for pool in job.job_spec.worker_pool_specs:
        if not pool.replica_count:
            continue
        machine: dict[str, Any] = {"machine_type": pool.machine_spec.machine_type}
        if pool.machine_spec.accelerator_count:
            machine["accelerator_type"] = pool.machine_spec.accelerator_type.name
            machine["accelerator_count"] = pool.machine_spec.accelerator_count
        pools.append(
            {
                "machine_spec": machine,
                "replica_count": pool.replica_count,
                "disk_spec": {
                    # What Vertex AI takes where nothing is asked for.
                    "boot_disk_type": pool.disk_spec.boot_disk_type or "pd-ssd",
                    "boot_disk_size_gb": pool.disk_spec.boot_disk_size_gb or 100,
                },
            }
        )
    return pools
