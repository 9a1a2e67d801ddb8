"""The cost of a run's training jobs so far."""

from collections.abc import Mapping
from decimal import Decimal

from components.machines import price_table
from components.machines.price import format_money
from pipelines.runs.run import Run
from trainer.errors import InputError


def format_cost(run: Run, rates: Mapping[str, float] | None = None) -> str:
    """Return the total cost of a run's jobs so far, as text; empty if there are no jobs.

    Without `rates`, the run's parameter price_per_hour takes precedence over the price table.
    """
    if not run.jobs:
        return ""
    prices = price_table.load_table().override(rates or {})
    given = 0 if rates else run.parameters.get("price_per_hour", 0)
    total = Decimal(0)
    for job in run.jobs:
        if not job.seconds:
            continue
        try:
            hourly = Decimal(str(given)) or prices.hourly_price(job.pools, spot=job.spot)
        except InputError as error:
            return f"cost unknown: {error}"
        total += hourly * Decimal(str(job.seconds)) / 3600
    basis = f"at the prices of {prices.region} of {prices.date}"
    if given:
        basis = "by the parameter price_per_hour"
    return f"training cost about {format_money(total)} {prices.currency} {basis}"
