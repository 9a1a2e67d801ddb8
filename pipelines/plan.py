"""Show machines and cost of a run in a table. Asks no server."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_UP, Decimal
from typing import Any

from rich.console import Console
from rich.table import Table

from pipelines.console import print_plain
from pipelines.machines import cost
from pipelines.operation import StepMachine
from pipelines.parameters import ParameterSet
from trainer.machines.machine_types import disk_types
from trainer.machines.price import UnknownPriceError, affordable_timeout
from trainer.machines.worker_pools import worker_pool_specs

Line = tuple[str, str]
"""A label, and what stands beside it."""

_LABEL = 10
"""Columns of labels."""


def check_affordable(parameters: ParameterSet) -> None:
    """Raises InputError where max_cost can't pay for a minute, or for what has no price."""
    pools = worker_pool_specs(parameters.machines)
    _timeout(parameters, pools, cost.table())


def show(
    parameters: ParameterSet,
    minutes: float,
    rates: Sequence[str],
    console: Console,
    step_machines: Mapping[str, StepMachine] | None = None,
) -> None:
    """Prints machines, quota and price of a run.

    Args:
        minutes: that the training job is expected to run; 0: not known.
        rates: prices an hour in place of the table's, as `cost.parse_rates` takes them.
        step_machines: of the steps that do not run on Vertex AI's default machine.

    Raises:
        InputError: max_cost pays for less than a minute, or a rate is none.
    """
    # The very list that the plan_training step makes.
    pools = worker_pool_specs(parameters.machines)
    own = cost.parse_rates(rates, pools)
    prices = cost.table().overridden(own)
    timeout = parameters.job.timeout
    try:
        timeout = _timeout(parameters, pools, prices)
        priced = list(_prices(parameters, pools, prices, minutes, _seconds(timeout)))
    except UnknownPriceError as error:
        priced = [("price", str(error))]
    console.print(_pool_table(parameters, pools, prices))
    strategy = parameters.pipeline.scheduling_strategy

    def say(lines: Iterable[tuple[str, str]] = (("", ""),)) -> None:
        for label, text in lines:
            line = f"{label:{_LABEL}}{text}"
            print_plain(console, line.rstrip())

    say()
    say(_quotas(pools, preemptible=strategy in cost.PREEMPTIBLE_STRATEGIES))
    say()
    say(priced)
    say(_steps(step_machines or {}, prices))
    if not minutes:
        say([("", "the recipe has no expected_minutes; give --minutes for the price of a run")])
    say(_cut_off(parameters, pools, prices, timeout, minutes))
    say(_grounds(parameters, pools, prices, own))
    say([("excluded", ", ".join([*_dataflow(parameters), cost.NOT_INCLUDED]))])
    provided = f"{parameters.training.strategy}, provisioned as {strategy}"
    say([("strategy", f"{provided}, ended after {_duration(_seconds(timeout))} at most")])


def _quotas(pools: Sequence[Mapping[str, Any]], *, preemptible: bool) -> Iterator[Line]:
    needed = cost.quotas(pools, preemptible=preemptible)
    width = max((len(str(quota.amount)) for quota in needed), default=0)
    for quota in needed:
        yield "quota", f"{quota.amount:>{width}} of {quota.metric}"


def _prices(
    parameters: ParameterSet,
    pools: Sequence[Mapping[str, Any]],
    prices: cost.PriceTable,
    minutes: float,
    seconds: Decimal,
) -> Iterator[Line]:
    """Yield an hour, the expected time and the longest, on demand and spot; and a run's fee."""
    own = _own_price(parameters)
    # What spot machines are to that price nobody has said.
    hourly = {"on demand": own or cost.price(pools, prices)}
    if not own:
        hourly["spot"] = cost.price(pools, prices, spot=True)
    width = max(len(cost.money(price)) for price in [*hourly.values(), prices.run])
    for name, price in hourly.items():
        line = f"{cost.money(price):>{width}} {prices.currency} an hour"
        if minutes:
            total = price * Decimal(str(minutes)) / 60
            line += f", {cost.money(total)} for the expected {minutes:g} min"
        longest = cost.money(price * seconds / 3600)
        yield name, f"{line}, {longest} at most, when it is ended after {_duration(seconds)}"
    yield "pipeline", f"{cost.money(prices.run):>{width}} {prices.currency} a run"


def _steps(machines: Mapping[str, StepMachine], prices: cost.PriceTable) -> Iterator[Line]:
    for step, size in machines.items():
        name = cost.closest(size.cpus, size.memory_gb, prices)
        hour = cost.money(Decimal(str(prices.rates[name])))
        yield (
            "step",
            f"{step}: {hour} {prices.currency} an hour for {size.cpus} CPUs and {size.memory_gb} "
            f"GB, as the cheapest type with as much, {name}; Vertex AI picks the closest",
        )


def _own_price(parameters: ParameterSet) -> Decimal:
    """Return the job's price an hour that its parameters name; 0 where they name none."""
    return Decimal(str(parameters.pipeline.price_per_hour))


def _cut_off(
    parameters: ParameterSet,
    pools: Sequence[Mapping[str, Any]],
    prices: cost.PriceTable,
    timeout: str,
    minutes: float,
) -> Iterator[Line]:
    """Says so where the job would be ended before the time that it is expected to take."""
    if _seconds(timeout) >= Decimal(str(minutes)) * 60:
        return
    shortened = timeout != parameters.job.timeout
    reason, remedy = f"timeout={timeout}", f"set it to {math.ceil(minutes * 60)}s or more"
    if shortened:
        hour = _own_price(parameters) or cost.price(pools, prices)
        enough = (hour * Decimal(str(minutes)) / 60).quantize(Decimal("0.01"), ROUND_UP)
        reason = f"max_cost={parameters.pipeline.max_cost:g}"
        remedy = f"set it to {enough} or more, or take cheaper machines"
    yield (
        "cut off",
        f"{reason} ends the job after {_duration(_seconds(timeout))}, before the expected "
        f"{minutes:g} min are over: {remedy}",
    )


def _grounds(
    parameters: ParameterSet,
    pools: Sequence[Mapping[str, Any]],
    prices: cost.PriceTable,
    own: Mapping[str, float],
) -> Iterator[Line]:
    """Yield what the prices rest on."""
    job = parameters.pipeline.price_per_hour
    # Disks have no spot price.
    machines = [name for name in cost.part_names(pools) if name not in disk_types()]
    discounted = [name for name in machines if name not in own]
    if job:
        yield "prices", f"the job's is the parameter price_per_hour={job:g}"
    else:
        given = ", ".join(f"{name} {rate:g}" for name, rate in own.items())
        yield (
            "prices",
            f"of {prices.region}, {prices.date}, without discounts: pipelines/machines/prices.toml"
            + (f"; by --rate: {given}" if given else ""),
        )
        if discounted:
            apart = [name for name in machines if name in own]
            yield (
                "spot",
                f"is taken as {100 * prices.spot_discount:.0f}% off machines, the least seen: it "
                "changes daily, and no discount is promised"
                + (f"; nothing is taken off --rate {', '.join(apart)}" if apart else ""),
            )
        else:
            yield "spot", "is priced as on demand: nothing is taken off the rates of --rate"
        for name, why in cost.doubts(pools, prices).items():
            yield "doubtful", f"the price of {name} is unconfirmed: {why}"
    if parameters.pipeline.scheduling_strategy == "FLEX_START":
        yield "", "FLEX_START is billed below on demand, at prices that are not in the table"


def _timeout(
    parameters: ParameterSet, pools: Sequence[Mapping[str, Any]], prices: cost.PriceTable
) -> str:
    """Return the job's timeout, which max_cost may shorten; raises as `affordable_timeout`."""
    options = parameters.pipeline
    return affordable_timeout(
        parameters.job.timeout, options.max_cost, options.price_per_hour, pools, prices.rates
    )


def _dataflow(parameters: ParameterSet) -> Iterator[str]:
    """Yield what writes the records, where that is not the step's own machine."""
    engine = parameters.engine
    if engine.records_engine == "dataflow":
        yield (
            f"Dataflow (up to {engine.dataflow_max_workers} {engine.dataflow_machine_type}, by the "
            "second, while records are written)"
        )


def _seconds(timeout: str) -> Decimal:
    return Decimal(timeout.removesuffix("s"))


def _duration(seconds: Decimal) -> str:
    """45 s, 48 min, 1 h 30 min; never more than it is."""
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if not minutes:
        return f"{seconds.normalize():f} s"
    rest = minutes - 60 * hours
    return " ".join(([f"{hours} h"] if hours else []) + ([f"{rest} min"] if rest else []))


def _pool_table(
    parameters: ParameterSet, pools: Sequence[Mapping[str, Any]], prices: cost.PriceTable
) -> Table:
    table = Table("Role", box=None)
    table.add_column("Replicas", justify="right")
    for title in ("Machine", "Accelerators", "Disk"):
        table.add_column(title)
    for title in (f"{prices.currency}/h", "Spot"):
        table.add_column(title, justify="right")
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
