"""What a run would train on and cost, in a table. Asks no server."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.table import Table

from pipelines import cost
from pipelines.parameters import ParameterSet
from trainer.config import to_flags
from trainer.price import UnknownPriceError, affordable_timeout
from trainer.worker_pools import worker_pool_specs


def check_affordable(parameters: ParameterSet) -> None:
    """Raises InputError where max_cost can't pay for a minute, or for what has no price."""
    pools = worker_pool_specs(parameters.machines, to_flags(parameters.training))
    _timeout(parameters, pools, cost.table())


def show(
    parameters: ParameterSet,
    minutes: float,
    rates: Sequence[str],
    console: Console,
) -> None:
    """Prints machines, quota and price of a run.

    Args:
        minutes: that the training job is expected to run; 0: not known.
        rates: prices an hour in place of the table's, as `cost.parse_rates` takes them.

    Raises:
        InputError: max_cost pays for less than a minute, or a rate is none.
    """
    # The very list that the plan_training step makes.
    pools = worker_pool_specs(parameters.machines, to_flags(parameters.training))
    own = cost.parse_rates(rates, pools)
    prices = cost.table().overridden(own)
    timeout = parameters.job.timeout
    try:
        timeout = _timeout(parameters, pools, prices)
        seconds = Decimal(timeout.removesuffix("s"))
        priced = list(_prices(pools, prices, minutes, seconds))
    except UnknownPriceError as error:
        priced = [f"price     {error}"]
    console.print(_pool_table(parameters, pools, prices))
    strategy = parameters.pipeline.scheduling_strategy

    def say(line: str = "") -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    say()
    for quota in cost.quotas(pools, preemptible=strategy in cost.PREEMPTIBLE_STRATEGIES):
        say(f"quota     {quota.amount:>6} of {quota.metric}")
    for machine_type in cost.unknown_machines(pools):
        say(
            f"quota     unknown for the vCPUs of {machine_type}, which is not a machine type that "
            "Vertex AI is known here to train on"
        )
    say()
    for line in priced:
        say(line)
    if not minutes:
        say("          the recipe has no expected_minutes; give --minutes for the price of a run")
    say(f"pipeline  {cost.money(prices.run):>7} {prices.currency} a run")
    say(f"prices    of {prices.region}, {prices.date}, without discounts: pipelines/prices.toml")
    say(
        f"spot      is taken as {100 * prices.spot_discount:.0f}% off machines, the least seen: "
        "it changes daily, and no discount is promised"
    )
    if strategy == "FLEX_START":
        say("          FLEX_START is billed below on demand, at prices that are not in the table")
    for name, why in cost.doubts(pools, prices).items():
        say(f"doubtful  the price of {name} is unconfirmed: {why}")
    if own:
        say(f"          of your own: {', '.join(f'{k} {v:g}' for k, v in own.items())}")
    say(f"excluded  {', '.join([*_dataflow(parameters), cost.NOT_INCLUDED])}")
    say(
        f"strategy {parameters.training.strategy}, provisioned as "
        f"{strategy}, ended after {timeout} at most"
    )


def _timeout(
    parameters: ParameterSet, pools: Sequence[Mapping[str, Any]], prices: cost.PriceTable
) -> str:
    """The job's timeout, which max_cost may shorten; raises as `affordable_timeout`."""
    options = parameters.pipeline
    return affordable_timeout(
        parameters.job.timeout, options.max_cost, options.price_per_hour, pools, prices.rates
    )


def _dataflow(parameters: ParameterSet) -> Iterator[str]:
    """What writes the records, where that is not the step's own machine."""
    engine = parameters.engine
    if engine.records_engine == "dataflow":
        yield (
            f"Dataflow (up to {engine.dataflow_max_workers} {engine.dataflow_machine_type}, by the "
            "second, while records are written)"
        )


def _prices(
    pools: Sequence[Mapping[str, Any]], prices: cost.PriceTable, minutes: float, seconds: Decimal
) -> Iterator[str]:
    """An hour, the expected time and the longest, on demand and spot."""
    for name in ("on demand", "spot"):
        price = cost.price(pools, prices, spot=name == "spot")
        line = f"{name:9} {cost.money(price):>7} {prices.currency} an hour"
        if minutes:
            total = price * Decimal(str(minutes)) / 60
            line += f", {cost.money(total)} for the expected {minutes:g} min"
        longest = cost.money(price * seconds / 3600)
        yield f"{line}, {longest} at most, when it is ended after {seconds}s"


def _pool_table(
    parameters: ParameterSet, pools: Sequence[Mapping[str, Any]], prices: cost.PriceTable
) -> Table:
    table = Table(
        "Role",
        "Replicas",
        "Machine",
        "Accelerators",
        "Disk",
        f"{prices.currency}/h",
        "Spot",
        box=None,
    )
    for role, pool in zip(parameters.machines.replicas, pools, strict=True):
        machine, disk = pool["machine_spec"], pool["disk_spec"]
        accelerators = "none"
        if "accelerator_type" in machine:
            accelerators = f"{machine['accelerator_count']} x {machine['accelerator_type']}"
        table.add_row(
            role,
            str(pool["replica_count"]),
            machine["machine_type"],
            accelerators,
            f"{disk['boot_disk_size_gb']} GB {disk['boot_disk_type']}",
            _money_or_unknown(pool, prices, spot=False),
            _money_or_unknown(pool, prices, spot=True),
        )
    return table


def _money_or_unknown(pool: Mapping[str, Any], prices: cost.PriceTable, *, spot: bool) -> str:
    try:
        return cost.money(cost.price([pool], prices, spot=spot))
    except UnknownPriceError:
        return "?"
