"""The cost of a run: worker pools, the price table of prices.toml, and the quota they need."""

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from trainer.errors import InputError
from trainer.fields import nearest
from trainer.machines.machine_types import accelerators, disk_types, types, types_with
from trainer.machines.price import UnknownPriceError, hourly_price, part_names
from trainer.toml_reader import tomllib

PATH = Path(__file__).with_name("prices.toml")
# https://cloud.google.com/vertex-ai/docs/training/schedule-jobs-dws#quota
_PREEMPTIBLE_STRATEGIES = ("SPOT", "FLEX_START")
"""Strategies that count against the quota of preemptible machines."""
NOT_INCLUDED = (
    "the pipeline's other steps (each on Vertex AI's default machine, e2-standard-4, unless priced "
    "above), Cloud Storage, images, logs, TensorBoard, network, taxes"
)
_SERVICE = "aiplatform.googleapis.com"
_HOURS_A_MONTH = 730
_PARTS = ("series", "machines", "accelerators", "disks")
_HIGHEST_RATE = 1e6


@dataclasses.dataclass(frozen=True)
class PriceTable:
    """Prices an hour by name, on demand and spot, with what they rest on.

    Attributes:
        rates: machine types (with the accelerators that they come with), accelerators, and a
            GB of each disk type.
        spot_rates: the same for spot machines, at the least discount that was seen.
        spot_discount: of them, as a part of Compute Engine's price.
        unconfirmed: why, for each of the rates that no public page bears out.
        currency: of all of them.
        region: where they hold.
        date: when the table was last checked.
        run: fee for each pipeline run.
        sizes: vCPUs and GB of memory of the machine types of a series.
    """

    rates: dict[str, float]
    spot_rates: dict[str, float]
    spot_discount: Decimal
    unconfirmed: dict[str, str]
    currency: str
    region: str
    date: str
    run: Decimal
    sizes: dict[str, tuple[int, float]]

    def overridden(self, rates: Mapping[str, float]) -> "PriceTable":
        """Return the table with rates of the user's own, which hold for spot machines, too."""
        return dataclasses.replace(
            self,
            rates={**self.rates, **rates},
            spot_rates={**self.spot_rates, **rates},
            unconfirmed={k: why for k, why in self.unconfirmed.items() if k not in rates},
        )


@dataclasses.dataclass(frozen=True)
class Quota:
    """A quota metric and how much of it a job takes."""

    metric: str
    amount: int


@functools.cache
def table(path: Path = PATH) -> PriceTable:
    """Read the price table."""
    content = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    # Compute Engine's, by name, without the share that Vertex AI adds.
    plain: dict[str, Decimal] = {}
    unconfirmed: dict[str, str] = {}
    lines = [line for part in _PARTS for line in content[part]]
    for line in lines:
        prices = dict(_prices(line))
        plain.update(prices)
        if line["status"] == "unconfirmed":
            unconfirmed.update(dict.fromkeys(prices, line["how"]))
    with_share = 1 + content["management"]["share"]
    discount = content["spot"]["discount"]
    return PriceTable(
        rates={name: float(price * with_share) for name, price in plain.items()},
        spot_rates={
            name: float(price * (with_share - (0 if name in disk_types() else discount)))
            for name, price in plain.items()
        },
        spot_discount=discount,
        unconfirmed=unconfirmed,
        currency=content["currency"],
        region=content["region"],
        date=content["date"],
        run=content["pipeline"]["run"],
        sizes={
            f"{line['name']}-{kind}-{vcpus}": (vcpus, float(vcpus * gb))
            for line in content["series"]
            for kind, gb in line.get("memory", {}).items()
            for vcpus in line["vcpus"][kind]
        }
        | {
            name: (vcpus, float(gb))
            for line in content["series"]
            for name, (vcpus, gb, _) in line.get("machines", {}).items()
        },
    )


def _prices(line: Mapping[str, Any]) -> Iterator[tuple[str, Decimal]]:
    """Names and Compute Engine's prices an hour that a line of the table stands for."""
    if "hour" in line:
        yield line["name"], line["hour"]
    elif "month" in line:
        yield line["name"], line["month"] / _HOURS_A_MONTH
    for kind, gb in line.get("memory", {}).items():
        for vcpus in line["vcpus"][kind]:
            yield f"{line['name']}-{kind}-{vcpus}", vcpus * (line["vcpu"] + gb * line["gb"])
    for name, (vcpus, gb, count) in line.get("machines", {}).items():
        yield (
            name,
            vcpus * line["vcpu"] + gb * line["gb"] + count * line["accelerator"],
        )


def price(pools: Sequence[Mapping[str, Any]], prices: PriceTable, *, spot: bool = False) -> Decimal:
    """Price of worker pools for an hour; raises InputError as `hourly_price` does."""
    return hourly_price(pools, prices.spot_rates if spot else prices.rates)


def serving_price(
    machine_type: str, replicas: int, prices: PriceTable, until: str = "--undeploy"
) -> str:
    """Return what machines that predict cost an hour until something, in words."""
    machines = f"{replicas} x {machine_type}"
    if machine_type not in prices.rates:
        return f"{machines} has no price in pipelines/machines/prices.toml"
    hour = money(Decimal(str(prices.rates[machine_type])) * replicas)
    return f"{machines}: {hour} {prices.currency} an hour until {until}"


def step_price(
    cpus: int, memory_gb: int, accelerator_type: str, prices: PriceTable
) -> tuple[Decimal, str]:
    """Return the price an hour and the name of the cheapest machine type that has so much.

    Args:
        accelerator_type: of which it has one; empty: none.

    Raises:
        UnknownPriceError: no type of which price and size are known has as much.
    """
    machine: dict[str, Any] = {}
    machines = [one for one in types().values() if not one.accelerator]
    if accelerator_type:
        machine = {"accelerator_type": accelerator_type, "accelerator_count": 1}
        machines = types_with(accelerator_type, 1)
    found = []
    for one in machines:
        has, gb = prices.sizes.get(one.name, (0, 0.0))
        if has >= cpus and gb >= memory_gb:
            spec = {**machine, "machine_type": one.name}
            found.append((price([{"machine_spec": spec, "replica_count": 1}], prices), one.name))
    if not found:
        raise UnknownPriceError(
            f"no price is known for a machine of {cpus} CPUs and {memory_gb} GB with "
            f"{accelerator_type or 'no accelerator'}"
        )
    return min(found)


def money(amount: Decimal) -> str:
    """Return an amount to the cent: 1.25."""
    return str(amount.quantize(Decimal("0.01"), ROUND_HALF_UP))


def quotas(pools: Sequence[Mapping[str, Any]], strategy: str = "STANDARD") -> list[Quota]:
    """Return the quota metrics of Vertex AI that a job of these pools counts against, by name.

    https://cloud.google.com/vertex-ai/docs/quotas, "Custom-trained model quotas".
    """
    training = f"{_SERVICE}/custom_model_training_"
    prefix = f"{training}preemptible_" if strategy in _PREEMPTIBLE_STRATEGIES else training
    amounts: collections.Counter[str] = collections.Counter()
    for pool in pools:
        machine, disk, replicas = pool["machine_spec"], pool["disk_spec"], pool["replica_count"]
        machine_type = types()[machine["machine_type"]]
        if machine_type.quota:
            amounts[f"{prefix}{machine_type.quota}"] += replicas * machine_type.vcpus
        if machine.get("accelerator_count"):
            accelerator = accelerators()[machine["accelerator_type"]]
            amounts[f"{prefix}{accelerator.quota}"] += replicas * machine["accelerator_count"]
        kind = disk["boot_disk_type"].replace("-", "_")
        amounts[f"{training}{kind}"] += replicas * disk["boot_disk_size_gb"]
    return [Quota(metric, amount) for metric, amount in sorted(amounts.items())]


def parse_rates(
    texts: Sequence[str], pools: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, float]:
    """Return `NAME=PRICE` texts as a dictionary; refuse what nothing has as its name.

    Args:
        pools: what is to be priced; None: whatever has been run.
    """
    rates: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            rate = float(value)
        except ValueError:
            rate = -1.0
        if not name or not 0 <= rate <= _HIGHEST_RATE:
            raise InputError(
                f"--rate {text!r} is not NAME=PRICE_AN_HOUR, such as --rate n1-standard-4=0.19"
            )
        if name in rates and rates[name] != rate:
            raise InputError(
                f"--rate {name} is given as {rates[name]:g} and {rate:g}; give it once"
            )
        rates[name] = rate
    known = {*table().rates, *accelerators(), *disk_types(), *types()}
    own = set() if pools is None else set(part_names(pools))
    for name in rates:
        if name not in {*known, *own}:
            raise InputError(
                f"--rate {name!r} is no machine type, accelerator or disk type"
                f"{'' if pools is None else ' of this job'}{nearest(name, own or known)}"
            )
    return rates
