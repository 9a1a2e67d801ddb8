"""The cost of past training jobs, from their times and worker pools."""

import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from pipelines.cloud import runs
from pipelines.machines import cost
from trainer.errors import InputError


def summary(jobs: Sequence[Any], rates: Mapping[str, float] | None = None) -> str:
    """Return the total cost of jobs so far, as text; empty if there are no jobs."""
    if not jobs:
        return ""
    prices = cost.table().overridden(rates or {})
    total = Decimal(0)
    for job in jobs:
        spot = job.job_spec.scheduling.strategy.name == "SPOT"
        start, end = runs.seconds_of(job.start_time), runs.seconds_of(job.end_time)
        if not start:
            continue
        # The server's clock may be ahead of this machine's.
        seconds = (end or max(time.time(), start)) - start
        try:
            total += cost.price(pools_of(job), prices, spot=spot) * Decimal(str(seconds)) / 3600
        except InputError as error:
            return f"cost unknown: {error}"
    return (
        f"training cost about {cost.money(total)} {prices.currency} at the prices of "
        f"{prices.region} of {prices.date}"
    )


def pools_of(job: Any) -> list[dict[str, Any]]:
    """Return the worker_pool_specs of a CustomJob without its empty pools."""
    from google.protobuf import json_format

    pools = []
    for pool in job.job_spec.worker_pool_specs:
        spec = json_format.MessageToDict(pool._pb, preserving_proto_field_name=True)
        # Vertex AI's defaults.
        disk = {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 100, **spec.get("disk_spec", {})}
        if pool.replica_count:
            pools.append({**spec, "replica_count": pool.replica_count, "disk_spec": disk})
    return pools
