"""Compute the hourly price of worker pools, and how long they may run at a given cost."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any

from trainer.errors import InputError
from vertex_facts.machine_types import types

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
