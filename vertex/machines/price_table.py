"""The prices of prices.toml, and what a job, a step, a run or a server costs at them."""

import collections
import dataclasses
import functools
import tomllib
from collections.abc import Mapping, Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from vertex.errors import InputError
from vertex.formats import suggest
from vertex.machines.machine_types import (
    accelerators,
    disk_types,
    find_step_type,
    find_types,
    serving_types,
    types,
)

PATH = Path(__file__).with_name("prices.toml")
NOT_INCLUDED = (
    f"the pipeline's other steps (each on Vertex AI's default, {find_step_type().name}, unless "
    "priced above), Cloud Storage (which bills deleted files for 7 days or more), images, logs, "
    "TensorBoard, network, taxes"
)
_HOURS_A_MONTH = 730
_HIGHEST_RATE = 1e6
_MIN_SECONDS = 60


class UnknownPriceError(InputError):
    """A resource of a job has no price."""


def hourly_price(pools: Sequence[Mapping[str, Any]], rates: Mapping[str, float]) -> Decimal:
    """Return the price per hour of all replicas in `pools`, in the currency of `rates`.

    Raise UnknownPriceError, which names all resources without a rate.

    Args:
        rates: hourly prices by name of a machine type, an accelerator, or a disk type (per GB).
            The price of a machine type with built-in accelerators includes these.
    """
    known = sum(
        (
            pool["replica_count"] * amount * Decimal(str(rates[name]))
            for pool in pools
            for name, amount in _list_parts(pool)
            if name in rates
        ),
        Decimal(0),
    )
    if missing := [name for name in part_names(pools) if name not in rates]:
        rest = f" (all else: {format_money(known)} an hour)" if known else ""
        raise UnknownPriceError(
            f"no price for {', '.join(missing)}{rest}; give --rate {missing[0]}=PRICE to plan and "
            "status, or set price_per_hour to the whole job's price"
        )
    return known


def part_names(pools: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the machine types, accelerators and disk types of `pools`, without duplicates."""
    return list(dict.fromkeys(name for pool in pools for name, _ in _list_parts(pool)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobCost:
    """Price a training job, and limit its duration and its trials by that."""

    pools: Sequence[Mapping[str, Any]]  # worker pools
    rates: Mapping[str, float]  # as of `hourly_price`
    price_per_hour: float  # of all replicas; 0: that of the rates
    max_cost: float  # 0: no limit

    def hourly_price(self) -> Decimal:
        """Return the price per hour of all replicas; raise UnknownPriceError as `hourly_price`."""
        return Decimal(str(self.price_per_hour)) or hourly_price(self.pools, self.rates)

    def describe(self, rates_of: str) -> dict[str, Any] | None:
        """Return the job's price for its report, or None if a resource has no rate.

        `machines` describes the machines, `per_hour` is the price of all in US dollars, and `basis`
        says where it comes from, worded to follow "0.93 USD an hour". `rates_of` is the region and
        date of the rates.
        """
        basis = f"at the list prices of {rates_of}, without discounts"
        if self.price_per_hour:
            basis = "from the parameter price_per_hour"
        try:
            price = float(self.hourly_price())
        except UnknownPriceError:
            return None
        return {"machines": format_machines(self.pools), "per_hour": price, "basis": basis}

    def limit_timeout(self, timeout: str) -> str:
        """Return `timeout`, such as "3600s", shortened if needed so that the job costs `max_cost`.

        Raise InputError if less than a minute remains, or a resource has no rate.
        """
        if not self.max_cost or not (price := self.hourly_price()):
            return timeout
        seconds = Decimal(str(self.max_cost)) * 3600 / price
        whole_seconds = int(seconds.to_integral_value(ROUND_FLOOR))
        if whole_seconds < _MIN_SECONDS:
            raise InputError(
                f"max_cost={self.max_cost:g} pays for {whole_seconds} s of machines that cost "
                f"{price:.2f} an hour; raise max_cost, or use smaller machines"
            )
        return min(timeout, f"{whole_seconds}s", key=parse_seconds)

    def limit_trials(self, trials: int, timeout: str) -> int:
        """Return `trials`, fewer if needed so that a search costs at most `max_cost`.

        It also has a training with the recipe's values; each may take its whole `timeout`. Raise
        InputError if no trial remains, or a resource has no rate.
        """
        if not self.max_cost or not (price := self.hourly_price()):
            return trials
        each = price * parse_seconds(timeout) / 3600
        affordable = int(Decimal(str(self.max_cost)) // each) - 1
        if affordable < 1:
            raise InputError(
                f"max_cost={self.max_cost:g} does not cover a trial and the training with the "
                f"recipe's values, at timeout={timeout} each; raise max_cost, or lower timeout"
            )
        return min(trials, affordable)


def parse_seconds(timeout: str) -> Decimal:
    """Return the seconds of a duration such as "3600s"."""
    return Decimal(timeout.removesuffix("s"))


def format_machines(pools: Sequence[Mapping[str, Any]]) -> str:
    """Return `1 x n1-standard-4 and 2 x n1-standard-4 with 1 x NVIDIA_TESLA_T4 each`."""
    replicas: collections.Counter[str] = collections.Counter()
    for pool in pools:
        machine = pool["machine_spec"]
        name = machine["machine_type"]
        if machine.get("accelerator_count"):
            name += f" with {machine['accelerator_count']} x {machine['accelerator_type']}"
        replicas[name] += pool["replica_count"]
    return " and ".join(
        f"{count} x {name}{' each' if ' with ' in name and count > 1 else ''}"
        for name, count in replicas.items()
        if count
    )


def format_money(amount: Decimal) -> str:
    """Format an amount to the cent: 1.25."""
    return str(amount.quantize(Decimal("0.01"), ROUND_HALF_UP))


def _list_parts(pool: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the names and amounts of the priced resources of a replica."""
    machine, disk = pool["machine_spec"], pool.get("disk_spec", {})
    parts = [(machine["machine_type"], 1)]
    machine_type = types().get(machine["machine_type"])
    if machine.get("accelerator_count") and not (machine_type and machine_type.accelerator):
        parts.append((machine["accelerator_type"], int(machine["accelerator_count"])))
    if disk.get("boot_disk_size_gb"):
        parts.append((disk["boot_disk_type"], int(disk["boot_disk_size_gb"])))
    return parts


@dataclasses.dataclass(frozen=True)
class PriceTable:
    """Prices per hour by name, on demand and spot."""

    # Rates of machine types (with built-in accelerators), accelerators and a GB of each disk type;
    # of a TiB that BigQuery scans or reads, which has no hours.
    rates: dict[str, float]
    spot_rates: dict[str, float]  # rates of spot machines, at the smallest discount seen
    spot_discount: Decimal  # that discount, as a share of Compute Engine's price
    unconfirmed: dict[str, str]  # the reason for each rate that no public page confirms
    currency: str  # the currency of all prices
    region: str  # the region that the prices apply to
    date: str  # the date when the table was last checked
    run: Decimal  # the fee per pipeline run

    @property
    def training_rates(self) -> dict[str, float]:
        """Return the rates without those of machine types that only predict."""
        trains = {*types(), *accelerators(), *disk_types()}
        return {name: rate for name, rate in self.rates.items() if name in trains}

    def hourly_price(self, pools: Sequence[Mapping[str, Any]], *, spot: bool = False) -> Decimal:
        """Return the hourly price of worker pools; raise InputError for one without a price."""
        return hourly_price(pools, self.spot_rates if spot else self.rates)

    def override(self, rates: Mapping[str, float]) -> "PriceTable":
        """Return the table with the user's rates, which also apply to spot machines."""
        return dataclasses.replace(
            self,
            rates={**self.rates, **rates},
            spot_rates={**self.spot_rates, **rates},
            unconfirmed={k: why for k, why in self.unconfirmed.items() if k not in rates},
        )


@functools.cache
def load_table() -> PriceTable:
    """Read the price table."""
    content = tomllib.loads(PATH.read_text(encoding="utf-8"), parse_float=Decimal)
    series = {line["name"]: line for line in content["series"]}
    parts = {line["name"]: line for line in (*content["accelerators"], *content["disks"])}
    # Compute Engine's prices by name, without the share that Vertex AI adds, and their entries.
    plain = {
        name: line.get("hour", line.get("month", 0) / _HOURS_A_MONTH)
        for name, line in parts.items()
    }
    data = {line["name"]: line for line in content["data"]}
    entries = {name: [line] for name, line in (parts | data).items()}
    for name, machine in {**serving_types(), **types()}.items():
        kind = machine.accelerator
        if machine.series in series and (not kind or kind in parts):
            line = series[machine.series]
            plain[name] = (
                machine.vcpus * line["vcpu"]
                + Decimal(str(machine.memory_gb)) * line["gb"]
                + machine.count * plain.get(kind, 0)
            )
            entries[name] = [line, *([parts[kind]] if kind else [])]
    doubts = {
        name: [line["how"] for line in lines if line["status"] == "unconfirmed"]
        for name, lines in entries.items()
    }
    with_share = 1 + content["management"]["share"]
    discount = content["spot"]["discount"]
    return PriceTable(
        rates={name: float(price * with_share) for name, price in plain.items()}
        | {name: float(line["tebibyte"]) for name, line in data.items()},
        spot_rates={
            name: float(price * (with_share - (0 if name in disk_types() else discount)))
            for name, price in plain.items()
        },
        spot_discount=discount,
        unconfirmed={name: "; ".join(why) for name, why in doubts.items() if why},
        currency=content["currency"],
        region=content["region"],
        date=content["date"],
        run=content["pipeline"]["run"],
    )


def describe_serving_price(
    machine_type: str,
    replicas: int,
    prices: PriceTable,
    *,
    most: int = 0,
    until: str = "--undeploy",
) -> str:
    """Describe the hourly cost of serving machines, which are billed until the event `until`.

    Vertex AI scales between `replicas` and `most` machines, if `most` is larger.
    """
    counts = [replicas, most] if most > replicas else [replicas]
    machines = f"{' to '.join(map(str, counts))} x {machine_type}"
    if machine_type not in prices.rates:
        return f"{machines} has no price in vertex/machines/prices.toml"
    rate = Decimal(str(prices.rates[machine_type]))
    hour = " to ".join(format_money(rate * count) for count in counts)
    return f"{machines}: {hour} {prices.currency} an hour until {until}"


def step_price(
    cpus: int, memory_gb: int, accelerator_type: str, prices: PriceTable
) -> tuple[Decimal, str]:
    """Return the hourly price and the name of the cheapest machine type that is large enough.

    The machine has one accelerator, unless `accelerator_type` is empty. Raises UnknownPriceError
    if no machine type of known price and size is large enough.
    """
    spec: dict[str, Any] = {}
    machines = [machine for machine in types().values() if not machine.accelerator]
    if accelerator_type:
        spec = {"accelerator_type": accelerator_type, "accelerator_count": 1}
        machines = find_types(accelerator_type, 1)
    candidates = []
    for machine in machines:
        is_priced = machine.name in prices.rates
        if is_priced and machine.vcpus >= cpus and machine.memory_gb >= memory_gb:
            pool = {"machine_spec": {**spec, "machine_type": machine.name}, "replica_count": 1}
            candidates.append((prices.hourly_price([pool]), machine.name))
    if not candidates:
        raise UnknownPriceError(
            f"no price for a machine of {cpus} CPUs and {memory_gb} GB with "
            f"{accelerator_type or 'no accelerator'}"
        )
    return min(candidates)


def parse_rates(texts: Sequence[str], pools: Sequence[Mapping[str, Any]] = ()) -> dict[str, float]:
    """Parse `NAME=PRICE` texts; raise InputError for malformed texts and unknown names.

    The parts of `pools` are known names, too.
    """
    rates: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            rate = float(value)
        except ValueError:
            rate = -1.0
        if not name or not 0 <= rate <= _HIGHEST_RATE:
            example = f"{find_step_type().name}=0.19"
            raise InputError(f"--rate {text!r} is not NAME=PRICE, such as {example}")
        if name in rates and rates[name] != rate:
            raise InputError(f"--rate {name} is given as {rates[name]:g} and {rate:g}; give one")
        rates[name] = rate
    parts = set(part_names(pools))
    known = {*load_table().rates, *accelerators(), *disk_types(), *types(), *parts}
    for name in rates:
        if name not in known:
            raise InputError(
                f"--rate {name!r} is not a machine type, accelerator or disk type"
                f"{' of this job' if parts else ''}{suggest(name, parts or known)}"
            )
    return rates
