"""Options of a recipe beside the pipeline's parameters: switches of compilation, and of commands.

    expected_minutes = 12
    notify = ["team@example.com"]

    [retraining]     # not `schedule`, which is the learning rate's parameter
    cron = "0 3 * * 1"

The fields of `RunOptions` are its keys and tables; docs/vertex.md and
docs/vertex-special.md show each of them.

A value that differs between runs of one compiled pipeline is a parameter (pipelines/parameters.py).
What decides which steps the compiled pipeline has, or their machines, is a field of `RunOptions`
that `pipelines.training_pipeline.training` reads: notify, steps, step_machines, serving, search. A
new step that not every recipe has gets its switch here. The other fields are read by commands.
"""

import dataclasses
import datetime
import functools
import re
import zoneinfo
from collections.abc import Mapping
from typing import Any

from components.planning.prediction_options import (
    PredictionJobOptions,
    PredictionOptions,
    ServingOptions,
)
from components.planning.search_options import SearchOptions
from components.planning.worker_pools import MachineOptions
from trainer import fields
from trainer.fields import option
from trainer.plugins import find_module_file
from vertex.errors import InputError
from vertex.facts import cron
from vertex.formats import suggest
from vertex.machines.machine_types import find_step_type, find_types, list_offered_accelerators

_ADDRESS = re.compile(r"[^@\s,]+@[^@\s,]+\.[^@\s,.]+")
_MAX_ADDRESSES = 3
FALLBACK = [
    *sorted(field.name for field in dataclasses.fields(MachineOptions)),
    "scheduling_strategy",
]
"""Parameters that a fallback may set."""
_list_time_zones = functools.cache(zoneinfo.available_timezones)  # Reads hundreds of files.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """A schedule on which runs start automatically. Times are in RFC 3339, as in the API."""

    cron: str = option("", help="Five fields: minute, hour, day of month, month, day of week.")
    time_zone: str = option("UTC", help="IANA time zone of cron.")
    start: str = option("", help="Time before which no run starts; empty: from now on.")
    end: str = option("", help="Time after which no run starts; empty: no end.")
    max_runs: int = option(0, help="Total number of runs; 0: no limit.", minimum=0)
    max_concurrent_runs: int = option(1, help="Largest number of runs at the same time.", minimum=1)
    allow_queueing: bool = option(
        False, help="Queue runs in excess of max_concurrent_runs instead of skipping them."
    )
    parameters: dict = option({}, help="Pipeline parameters of scheduled runs.")

    def __post_init__(self) -> None:
        cron.parse_fields(self.cron)
        known = _list_time_zones()
        if known and self.time_zone not in known:
            hint = suggest(self.time_zone, known, ", such as 'Europe/Berlin'")
            raise InputError(f"time_zone={self.time_zone!r} is not an IANA time zone{hint}")
        for name in ("start", "end"):
            value = getattr(self, name)
            if value and parse_time(value) is None:
                raise InputError(f"{name}={value!r} is not a time such as 2030-01-01T00:00:00Z")
        start, end = parse_time(self.start), parse_time(self.end)
        if start and end and start >= end:
            raise InputError(f"end={self.end!r} is not after start={self.start!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepMachine:
    """The machine of a step of the pipeline; the defaults are Vertex AI's."""

    cpus: int = option(find_step_type().vcpus, help="CPUs.", minimum=1, maximum=96)
    memory_gb: int = option(
        int(find_step_type().memory_gb), help="Memory in GB.", minimum=1, maximum=624
    )


# Steps are provisioned as STANDARD.
_STEP_ACCELERATORS = [
    name
    for name in list_offered_accelerators()
    if any(not machine.strategies for machine in find_types(name, count=1))
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationMachine(StepMachine):
    """The machine of the evaluation, which uses at most one accelerator."""

    accelerator_type: str = option(
        "",
        help="Type of the step's accelerator, which needs the GPU image; empty: no accelerator.",
        choices=("", *_STEP_ACCELERATORS),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepMachines:
    """Machines of single steps, compiled into the pipeline.

    They can't be parameters: KFP would pass a parameter through an input that the component does
    not declare, and no documentation says that Vertex AI resolves it. Also, KFP accepts only a
    positive number of accelerators, so a parameter could not turn them off.
    """

    records: StepMachine | None = option(None, help="Machine of the step that writes TFRecords.")
    evaluation: EvaluationMachine | None = option(
        None, help="Machine of the step that evaluates the model."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchPrediction(PredictionJobOptions, PredictionOptions):
    """Batch prediction by the champion: its pipeline's parameters and its schedule."""

    schedule: Schedule | None = option(None, help="Schedule on which it runs automatically.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search(SearchOptions):
    """Search for hyperparameters: the options of RECIPE-search, and its schedule."""

    schedule: Schedule | None = option(
        None, help="Schedule on which runs search; default: that of [retraining]."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Monitoring:
    """Settings of Vertex AI Model Monitoring."""

    threshold: float = option(
        0.3,
        help="Distance of a column that raises an alert: L-infinity for categories, Jensen-Shannon "
        "divergence for numbers.",
        above=0,
        maximum=1,
    )
    sampling_rate: float = option(
        1.0, help="Share of requests that are kept in BigQuery and compared.", above=0, maximum=1
    )
    keep_days: int = option(
        0,
        help="Days until the requests in BigQuery are deleted; 0: they are kept, and billed.",
        minimum=0,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """A recipe's options beside its parameters; each field is a number, a list or a table.

    The compiled pipeline has the values of `notify`, `steps`, `step_machines`, `serving` and
    `search`, which a run can't change; commands read the others.
    """

    expected_minutes: float = option(
        0.0, help="Expected minutes of the training job, for its price; 0: unknown.", minimum=0
    )
    notify: list[str] = option(
        [], help="Up to three e-mail addresses to notify when a run ends in any state."
    )
    steps: list[str] = option(
        [], help="Your own components, run after the evaluation, each as MODULE:NAME."
    )
    step_machines: StepMachines = option(
        StepMachines(), help="Machines of the steps records and evaluation."
    )
    serving: ServingOptions = option(ServingOptions(), help="Machines of its model's endpoint.")
    batch: BatchPrediction | None = option(
        None, help="Parameters and schedule of batch prediction by its champion."
    )
    monitoring: Monitoring = option(Monitoring(), help="Monitoring of its model's endpoint.")
    fallbacks: list = option(
        [], help="Tables of other machines to try in order when machines are unavailable."
    )
    retraining: Schedule | None = option(None, help="Schedule on which runs start automatically.")
    search: Search | None = option(None, help="Search for hyperparameters by `tune`.")

    @property
    def evaluation_accelerator(self) -> str:
        """Return the accelerator type of the evaluation; empty: none."""
        evaluation = self.step_machines.evaluation
        return evaluation.accelerator_type if evaluation else ""

    def check_records_machine(self, records_engine: str) -> None:
        """Raise InputError if the machine of the records would only wait for Dataflow."""
        machine = self.step_machines.records
        if machine and records_engine == "dataflow":
            raise InputError(
                f"records_engine='dataflow' with [step_machines] records ({machine.cpus} CPUs, "
                f"{machine.memory_gb} GB), which would be billed while it waits for Dataflow; "
                "remove records from the recipe's [step_machines], or set records_engine='local'"
            )

    def __post_init__(self) -> None:
        for address in self.notify:
            if not _ADDRESS.fullmatch(address):
                raise InputError(f"notify: {address!r} is not an address like team@example.com")
        if len(self.notify) > _MAX_ADDRESSES:
            raise InputError(
                f"notify names {len(self.notify)} addresses, but Vertex AI writes to "
                f"{_MAX_ADDRESSES} at most; give a mailing list"
            )
        for step in self.steps:
            find_module_file("steps", step)
        for number, fallback in enumerate(self.fallbacks, 1):
            origin = f"fallbacks[{number}]"
            if not isinstance(fallback, dict) or not fallback:
                raise InputError(f"{origin} is not a table; write [[fallbacks]] above its values")
            for name in fallback:
                if name not in FALLBACK:
                    hint = suggest(name, FALLBACK)
                    raise InputError(f"{origin}: {name!r} is not a parameter of machines{hint}")


def split_document(document: Mapping[str, Any]) -> tuple[dict[str, Any], RunOptions]:
    """Split a recipe's TOML into values of the pipeline's parameters and its run options."""
    options = fields.pick(RunOptions, document)
    fields.check_typed(RunOptions, options)
    values = {name: value for name, value in document.items() if name not in options}
    return values, fields.build(RunOptions, options)


def parse_time(text: str) -> datetime.datetime | None:
    """Parse a time, in UTC unless it names a zone; return None if it is not a time."""
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
