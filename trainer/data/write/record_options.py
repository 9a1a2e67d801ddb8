"""Options of create_tfrecords."""

import dataclasses
import re

from trainer.conditions import when
from trainer.data import sources
from trainer.data.schema import IMAGES
from trainer.data.source_options import OF_IMAGES, SourceOptions
from trainer.fields import option
from trainer.plugins import find_module_file
from vertex.errors import InputError

ENGINES = ("local", "dataflow")
_DATAFLOW = when("records_engine", "dataflow")
_DATAFLOW_MACHINE = re.compile(r"[a-z][a-z0-9]*-[a-z]+-[0-9]+")
_SUBNETWORK = re.compile(
    r"(https://www\.googleapis\.com/compute/v1/projects/[^/]+/)?"
    r"regions/[a-z0-9-]+/subnetworks/[a-z0-9-]+"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordOptions(SourceOptions):
    """Options of record writing; each is a parameter of the pipeline."""

    source: str = option(
        "digits",
        help=f"Where examples come from: {sources.describe_sources()}.",
    )
    task: str = option(
        "",
        help="The user's own task, as MODULE:CLASS: a subclass of the task of the label; empty: "
        "that task itself.",
    )
    shard_megabytes: float = option(
        64.0, help="Target size of a shard of records, in MB (10^6 bytes).", above=0
    )
    records_store: str = option(
        "",
        help="Folder (URI) that keeps shards of records between runs: a shard of the last run "
        "with equal options is copied if none of its examples changed; empty: all shards are "
        "written.",
        applies=(OF_IMAGES, when("records_engine", "local")),
    )
    max_rejected_fraction: float = option(
        0.01,
        help="Largest fraction of the source's examples that may be unusable; with more, the step "
        "that writes records fails.",
        minimum=0,
        maximum=1,
    )

    @property
    def source_kind(self) -> type[sources.SourceKind]:
        """Return the kind of the source."""
        return sources.parse_source(self.source)[0]

    def __post_init__(self) -> None:
        super().__post_init__()
        classes = self.source_kind.check_options(self)
        if self.task:
            find_module_file("task", self.task)
        has_names = self.label and self.source_kind.contents == IMAGES
        is_number = self.label.get("type") == "numeric"
        if self.records_store and has_names and not classes and not is_number:
            raise InputError(
                "records_store: a new class in labels.csv would change the labels in all shards; "
                "list all classes in label"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of the engine that writes the records; each is a parameter of the pipeline."""

    records_engine: str = option(
        "local",
        help="Engine that writes the records, with equal bytes: local (all cores of the "
        "step's machine) or dataflow (a Dataflow job on many machines; in a local run, Apache Beam "
        "in a single process).",
        choices=ENGINES,
    )
    dataflow_max_workers: int = option(
        10,
        help="Maximum number of machines that Dataflow starts.",
        minimum=1,
        maximum=4000,
        applies=_DATAFLOW,
    )
    dataflow_machine_type: str = option(
        "e2-standard-4",
        help="Machine type of Dataflow's workers; each core writes a shard.",
        applies=_DATAFLOW,
    )
    dataflow_subnetwork: str = option(
        "",
        help="Subnetwork with Private Google Access for Dataflow's workers, which then have no "
        "public addresses, such as regions/REGION/subnetworks/NAME; empty: the network default.",
        applies=_DATAFLOW,
    )

    def __post_init__(self) -> None:
        if not _DATAFLOW_MACHINE.fullmatch(self.dataflow_machine_type):
            raise InputError(
                f"dataflow_machine_type={self.dataflow_machine_type!r} is not a machine type, "
                f"such as {EngineOptions.dataflow_machine_type}"
            )
        if self.dataflow_subnetwork and not _SUBNETWORK.fullmatch(self.dataflow_subnetwork):
            raise InputError(
                f"dataflow_subnetwork={self.dataflow_subnetwork!r} is not a subnetwork, such as "
                "regions/REGION/subnetworks/NAME"
            )
