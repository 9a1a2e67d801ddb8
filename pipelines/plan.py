"""Show the machines and cost of a run in a table, without network access."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from components.planning import scheduling
from components.planning.prediction_options import ServingOptions
from components.planning.search_options import SearchOptions
from components.planning.worker_pools import build_worker_pool_specs
from pipelines.parameters import ParameterSet
from pipelines.printing import say, show_table
from pipelines.recipe import Recipe
from pipelines.run_options import StepMachine
from trainer.data.source import BilledBytes
from trainer.data.sources import parse_source
from vertex.errors import InputError
from vertex.formats import count, duration, size
from vertex.machines import price_table
from vertex.machines.machine_types import types
from vertex.machines.prediction_machines import count_vcpus
from vertex.machines.price_table import (
    JobCost,
    UnknownPriceError,
    format_money,
    parse_seconds,
    part_names,
)
from vertex.machines.quotas import DEPLOYED_REPLICAS, SERVING_CPUS, find_reserved_range, list_quotas

# https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/understanding-training-service
_AGENTS_SHARE = 0.4
"""The share of memory that Vertex AI's agents take at most on the smallest machines."""
_SMALL_GIGABYTES = 16.0
_TEBIBYTE = 2**40
Line = tuple[str, str]
"""A label and the text beside it."""


def check_affordable(recipe: Recipe, parameters: ParameterSet) -> None:
    """Raise InputError if max_cost pays for no minute or no trial, or a machine has no price."""
    plan = _Plan(recipe, parameters, price_table.load_table())
    plan.timeout()
    if recipe.search:
        plan.cost.limit_trials(recipe.search.trials, parameters.job.timeout)


def check_search_duration(recipe: Recipe, parameters: ParameterSet) -> None:
    """Raise InputError if a search may take longer than a task of a pipeline on Vertex AI."""
    if recipe.search:
        plan = _Plan(recipe, parameters, price_table.load_table())
        plan.check_search_duration(recipe.search)


def list_needed_quotas(recipe: Recipe, parameters: ParameterSet) -> dict[str, int]:
    """Return the amount of each Vertex AI quota that a run needs, sorted by metric.

    The champion and the previous version are deployed, and another machine for a test.
    """
    amounts = list_quotas(
        build_worker_pool_specs(parameters.machines),
        parameters.pipeline.scheduling_strategy,
        recipe.run_options.evaluation_accelerator,
        jobs=_count_jobs(recipe),
    )
    if parameters.pipeline.deploy_champion:
        serving = recipe.run_options.serving
        amounts[SERVING_CPUS] = _count_deployed(serving) * count_vcpus(serving.machine_type)
    return amounts


def describe_network(recipe: Recipe, parameters: ParameterSet, network: str) -> Iterator[str]:
    """Yield a line about the addresses that jobs peered with a network need, if there is one."""
    replicas = sum(parameters.machines.replicas.values())
    # The step that waits for the trials is a job, too.
    jobs = _count_jobs(recipe) + bool(recipe.search)
    if parameters.job.network or network:
        reserved = find_reserved_range(jobs, replicas)
        need = (
            f"a reserved range of {reserved} or larger" if reserved else "more than a /16 provides"
        )
        yield (
            f"network   {count(jobs, 'job')} of up to {count(replicas, 'replica')} at once: "
            f"{need}; while they run, no training in the region runs on another network"
        )


def _count_jobs(recipe: Recipe) -> int:
    """Return the number of training jobs at once: trials run beside the training with defaults."""
    return 1 + recipe.search.parallel if recipe.search else 1


def _count_deployed(serving: ServingOptions) -> int:
    return 2 * max(serving.min_replicas, serving.max_replicas) + 1


def show(
    recipe: Recipe,
    parameters: ParameterSet,
    minutes: float,
    rates: Sequence[str],
    billed: BilledBytes | str = "",
) -> None:
    """Print machines, quota and price of a run; `rates` are texts for `parse_rates`.

    `billed` is for reading the source: its bytes, or why they are unknown, or "" for nothing.
    """
    recipe.run_options.check_records_machine(parameters.engine.records_engine)
    user_rates = price_table.parse_rates(rates, build_worker_pool_specs(parameters.machines))
    prices = price_table.load_table().override(user_rates)
    plan = _Plan(recipe, parameters, prices, user_rates, minutes, billed)
    lines = [*plan.format_lines(), *plan.format_search()]
    plan.show_pools()
    say(*(f"{label:10}{text}".rstrip() for label, text in lines))


def show_batch(values: Mapping[str, Any], rates: Sequence[str]) -> None:
    """Print machines and price per hour of a batch prediction, whose duration is unknown."""
    machine, replicas = values["machine_type"], values["replica_count"]
    pools = [{"machine_spec": {"machine_type": machine}, "replica_count": replicas}]
    prices = price_table.load_table().override(price_table.parse_rates(rates, pools))
    hourly = price_table.describe_serving_price(machine, replicas, prices, until="the job ends")
    say(
        f"batch     {hourly}; its duration depends on the number of instances",
        f"step      predict, which waits for the job: {_format_step_price(StepMachine(), prices)}",
        f"pipeline  {format_money(prices.run)} {prices.currency} a run",
        f"prices    of {prices.region}, {prices.date}, without discounts: "
        "vertex/machines/prices.toml",
        f"excluded  {price_table.NOT_INCLUDED}",
    )


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The machines of a run and their prices."""

    recipe: Recipe
    parameters: ParameterSet
    prices: price_table.PriceTable
    user_rates: Mapping[str, float] = dataclasses.field(default_factory=dict)  # given by --rate
    minutes: float = 0.0  # expected duration of the training job; 0: unknown
    billed: BilledBytes | str = ""  # for reading the source, or why that is unknown

    @property
    def pools(self) -> list[dict[str, Any]]:
        """Return the worker pools that the step plan_training will build."""
        return build_worker_pool_specs(self.parameters.machines)

    @property
    def cost(self) -> JobCost:
        return self.parameters.pipeline.cost_of(self.pools, self.prices.rates)

    def timeout(self) -> str:
        """Return the job's timeout, which max_cost may shorten; raise as JobCost does."""
        return self.cost.limit_timeout(self.parameters.job.timeout)

    def show_pools(self) -> None:
        """Print a row for each pool: its machines and their prices."""
        hour, rows = f"{self.prices.currency}/h", []
        for role, pool in zip(self.parameters.machines.replicas, self.pools, strict=True):
            machine, disk = pool["machine_spec"], pool["disk_spec"]
            accelerators = "none"
            if "accelerator_type" in machine:
                accelerators = f"{machine['accelerator_count']} x {machine['accelerator_type']}"
            boot_disk = f"{disk['boot_disk_size_gb']} GB {disk['boot_disk_type']}"
            prices = [self._format_price(pool, spot=spot) for spot in (False, True)]
            kind = machine["machine_type"]
            rows.append((role, str(pool["replica_count"]), kind, accelerators, boot_disk, *prices))
        titles = ("Role", "Replicas", "Machine", "Accelerators", "Disk", hour, "Spot")
        show_table(titles, rows, right=("Replicas", hour, "Spot"))

    def _format_price(self, pool: Mapping[str, Any], *, spot: bool) -> str:
        try:
            return format_money(self.prices.hourly_price([pool], spot=spot))
        except UnknownPriceError:
            return "?"

    def format_lines(self) -> Iterator[Line]:
        """Yield the lines below the table: the quota, the price and its basis."""
        timeout, run_options = self.parameters.job.timeout, self.recipe.run_options
        try:
            timeout = self.timeout()
            priced = list(self._format_prices(parse_seconds(timeout)))
        except UnknownPriceError as error:
            priced = [("price", str(error)), *self._format_source()]
        needed = list_needed_quotas(self.recipe, self.parameters)
        width = max(len(str(amount)) for amount in needed.values())
        yield "", ""
        yield from (("quota", f"{amount:>{width}} of {name}") for name, amount in needed.items())
        yield "", ""
        yield from self._warn_of_memory()
        yield from priced
        for step, machine in vars(run_options.step_machines).items():
            if machine:
                yield "step", f"{step}: {_format_step_price(machine, self.prices)}"
        engine = self.parameters.engine
        waiting = _format_step_price(StepMachine(), self.prices)
        if engine.records_engine == "dataflow":
            yield "step", f"records, which waits for Dataflow: {waiting}"
        if self.recipe.search:
            yield "step", f"search, which waits for its trials: {waiting}"
        if self.parameters.pipeline.deploy_champion:
            serving = run_options.serving
            price = price_table.describe_serving_price(
                serving.machine_type, serving.min_replicas, self.prices, most=serving.max_replicas
            )
            yield (
                "endpoint",
                f"{price}, for the champion and again for the previous version; one more machine "
                f"for a test: up to {_count_deployed(serving)} of a project's "
                f"{DEPLOYED_REPLICAS} (a quota)",
            )
        if not self.minutes:
            yield "", "the recipe has no expected_minutes; give --minutes for the price of a run"
        yield from self._warn_of_timeout(timeout)
        yield from self._format_basis()
        others = [price_table.NOT_INCLUDED]
        if engine.records_engine == "dataflow":
            machines = f"{engine.dataflow_max_workers} {engine.dataflow_machine_type}"
            others.insert(0, f"Dataflow (up to {machines}, by the second, to write records)")
        kind, _ = parse_source(self.parameters.records.source)
        if isinstance(self.billed, str) and kind.billed:
            others.insert(0, kind.billed)
        yield "excluded", ", ".join(others)
        strategy = self.parameters.pipeline.scheduling_strategy
        provided = f"{self.parameters.training.strategy}, provisioned as {strategy}"
        yield (
            "strategy",
            f"{provided}, with a timeout of {duration(float(parse_seconds(timeout)))}",
        )

    def check_search_duration(self, search: SearchOptions) -> None:
        job, strategy = self.parameters.job, self.parameters.pipeline.scheduling_strategy
        rounds = math.ceil(self.cost.limit_trials(search.trials, job.timeout) / search.parallel)
        scheduling.check_search_duration(strategy, job.timeout, job.max_wait_duration, rounds)

    def format_search(self) -> Iterator[Line]:
        """Yield lines of a search: its trainings, their price and time, and when it is cut off."""
        search = self.recipe.search
        if not search:
            return
        try:
            yield "search", self._format_trials(search)
        except UnknownPriceError as error:
            yield "search", str(error)
            return
        try:
            self.check_search_duration(search)
        except InputError as error:
            yield "cut off", str(error)

    def _format_trials(self, search: SearchOptions) -> str:
        timeout = self.parameters.job.timeout
        trials = self.cost.limit_trials(search.trials, timeout)
        price = self.cost.hourly_price()
        # The chosen one goes on where its training ended.
        done = (
            f"{trials} of {count(search.trials, 'trial')}, {search.parallel} in parallel, and a "
            "training with the recipe's values"
        )
        seconds, rounds = parse_seconds(timeout), math.ceil(trials / search.parallel)
        worst = format_money(price * seconds / 3600 * (trials + 1))
        text = f"{done}: at most {worst} {self.prices.currency}, if all reach their timeout"
        if not self.minutes:
            return text
        one = price * Decimal(str(self.minutes)) / 60
        expected, time = format_money(one * (trials + 1)), duration(rounds * self.minutes * 60)
        text += f"; expected {expected} in {time}"
        if search.early_stopping == "none":
            return text
        # At best, all but the first trials end after an epoch.
        whole = min(trials, search.parallel)
        short = Decimal(trials - whole) / self.parameters.training.epochs
        best = format_money(one * (1 + whole + short))
        return f"{text} without early stopping, at least {best} with it"

    def _format_prices(self, seconds: Decimal) -> Iterator[Line]:
        """Yield the prices of an hour, of the expected and of the longest time, and of a run."""
        prices, hourly = self.prices, {"on demand": self.cost.hourly_price()}
        # The parameter price_per_hour has no price of spot machines.
        if not self.parameters.pipeline.price_per_hour:
            hourly["spot"] = prices.hourly_price(self.pools, spot=True)
        source = self._price_source()
        width = max(len(format_money(price)) for price in [*hourly.values(), prices.run, source])
        for name, price in hourly.items():
            line = f"{format_money(price):>{width}} {prices.currency} an hour"
            if self.minutes:
                total = price * Decimal(str(self.minutes)) / 60
                line += f", {format_money(total)} for the expected {self.minutes:g} min"
            longest = format_money(price * seconds / 3600)
            most = f"${longest}" if prices.currency == "USD" else f"{longest} {prices.currency}"
            hours = seconds / 3600
            limit = f"{hours:f}-hour" if hours % 1 == 0 else duration(float(seconds))
            yield name, f"{line}, at most {most} ({limit} timeout)"
        yield "pipeline", f"{format_money(prices.run):>{width}} {prices.currency} a run"
        yield from self._format_source(width)
        if self.minutes and not self.recipe.search:
            job = hourly["on demand"] * Decimal(str(self.minutes)) / 60
            cost = f"{format_money(job + prices.run + source):>{width}} {prices.currency}"
            unknown = ", without the source" if isinstance(self.billed, str) and self.billed else ""
            yield "total", f"{cost} on demand, if a run takes the expected time{unknown}"

    def _price_source(self) -> Decimal:
        if isinstance(self.billed, str):
            return Decimal(0)
        rate = Decimal(str(self.prices.rates[self.billed.rate]))
        return rate * self.billed.size / _TEBIBYTE

    def _format_source(self, width: int = 0) -> Iterator[Line]:
        """Yield the price of reading the source, or why it is unknown."""
        if isinstance(self.billed, str):
            if self.billed:
                yield "source", f"its price is unknown: {self.billed}"
            return
        rate, currency = self.billed.rate, self.prices.currency
        yield (
            "source",
            f"{format_money(self._price_source()):>{width}} {currency} a run, even if it has not "
            f"changed: {size(self.billed.size)} at {self.prices.rates[rate]:g} {currency} per TiB "
            f"({rate})",
        )

    def _warn_of_memory(self) -> Iterator[Line]:
        """Yield a line for each small machine type: its memory is not the replica's alone."""
        for name in dict.fromkeys(pool["machine_spec"]["machine_type"] for pool in self.pools):
            gigabytes = types()[name].memory_gb
            if gigabytes <= _SMALL_GIGABYTES:
                left = gigabytes * (1 - _AGENTS_SHARE)
                yield (
                    "memory",
                    f"{left:g} GB of {name} are free: Vertex AI's agents use up to "
                    f"{_AGENTS_SHARE:.0%} of its {gigabytes:g} GB",
                )

    def _warn_of_timeout(self, timeout: str) -> Iterator[Line]:
        """Yield a warning if the job would be ended before its expected duration."""
        if parse_seconds(timeout) >= Decimal(str(self.minutes)) * 60:
            return
        reason, remedy = f"timeout={timeout}", f"set it to {math.ceil(self.minutes * 60)}s or more"
        if timeout != self.parameters.job.timeout:
            reason = f"max_cost={self.parameters.pipeline.max_cost:g}"
            remedy = "raise it, or use cheaper machines"
        yield (
            "cut off",
            f"{reason} ends the job after {duration(float(parse_seconds(timeout)))}, before the "
            f"expected {self.minutes:g} min: {remedy}",
        )

    def _format_basis(self) -> Iterator[Line]:
        """Yield the basis of the prices: the table, the given rates and the spot discount."""
        prices, options = self.prices, self.parameters.pipeline
        if options.price_per_hour:
            yield "prices", f"from the parameter price_per_hour={options.price_per_hour:g}"
        else:
            given = ", ".join(f"{name} {rate:g}" for name, rate in self.user_rates.items())
            table = f"of {prices.region}, {prices.date}, without discounts"
            by_rate = f"; by --rate: {given}" if given else ""
            yield "prices", f"{table}: vertex/machines/prices.toml{by_rate}"
            yield (
                "spot",
                f"estimated at {100 * prices.spot_discount:.0f}% off machines, the smallest "
                "discount seen; it changes daily"
                + ("; rates of --rate get no discount" if given else ""),
            )
            rate = [] if isinstance(self.billed, str) else [self.billed.rate]
            for name in [*part_names(self.pools), *rate]:
                if why := prices.unconfirmed.get(name):
                    yield "doubtful", f"the price of {name} is unconfirmed: {why}"
        if options.scheduling_strategy == "FLEX_START":
            yield "", "the table has no prices of FLEX_START, which differ"


def _format_step_price(size: StepMachine, prices: price_table.PriceTable) -> str:
    kind = getattr(size, "accelerator_type", "")
    try:
        hour, name = price_table.step_price(size.cpus, size.memory_gb, kind, prices)
    except UnknownPriceError as error:
        return str(error)
    accelerator = f" with 1 x {kind}" if kind else ""
    return (
        f"{format_money(hour)} {prices.currency} an hour for {size.cpus} CPUs and "
        f"{size.memory_gb} GB{accelerator}, as {name}; Vertex AI may choose another machine"
    )
