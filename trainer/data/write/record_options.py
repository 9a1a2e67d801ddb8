"""Options of create_tfrecords."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from trainer.data import sources
from trainer.data.tables.schema_parser import parse_schema
from trainer.errors import InputError
from trainer.fields import option

RESIZE_METHODS = ("bilinear", "nearest", "bicubic", "area", "lanczos3")
ENCODINGS = ("raw", "jpeg")
AUGMENTATIONS = ("none", "model", "records")
OPERATIONS = ("horizontal_flip", "vertical_flip", "quarter_turn", "shift")
SPLITS = ("train", "validation", "test")
ENGINES = ("local", "dataflow")
IMAGE_OPTIONS = (
    "image_size", "channels", "resize_method", "encoding", "jpeg_quality",
    "augmentation", "augmentation_operations", "augmentation_variants",
)  # fmt: skip
"""Options of images, which have no effect on a table."""
_DATAFLOW_MACHINE = re.compile(r"[a-z][a-z0-9]*-[a-z]+-[0-9]+")
_SUBNETWORK = re.compile(
    r"(https://www\.googleapis\.com/compute/v1/projects/[^/]+/)?"
    r"regions/[a-z0-9-]+/subnetworks/[a-z0-9-]+"
)


def augmentation_option() -> Any:
    """Return the `augmentation` option, which training and record writing share."""
    return option(
        "none",
        help="Augmentation of training images: none, model (at random in every epoch, inside the "
        "model) or records (written into the records once).",
        choices=AUGMENTATIONS,
    )


def operations_option() -> Any:
    """Return the `augmentation_operations` option, which training and record writing share."""
    return option(
        ["horizontal_flip", "quarter_turn"],
        help="Operations that augment training images, as a JSON list.",
        choices=OPERATIONS,
    )


def check_operations(augmentation: str, operations: Sequence[str]) -> None:
    """Raise InputError for an augmentation without operations."""
    if augmentation != "none" and not operations:
        raise InputError(
            f"augmentation={augmentation!r} with augmentation_operations=[] does nothing; name an "
            "operation, or set augmentation=none"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """Options of record writing; each is a parameter of the pipeline."""

    source: str = option(
        "digits",
        help=f"Where examples come from: {sources.describe_sources()}.",
    )
    data_dir: str = option(
        "",
        help="For a source tfds:NAME, the folder (URI) where TensorFlow Datasets finds prepared "
        "datasets; empty: its default folder.",
    )
    columns: list[dict] = option(
        [],
        help="Columns of a table that are inputs of the model, as a JSON list of objects with "
        "name, type (numeric, bucketized, identity, vocabulary or hashed) and the options of the "
        "type.",
    )
    crosses: list[dict] = option(
        [],
        help="Crossed columns of a table, as a JSON list such as "
        '[{"columns": ["a", "b"], "buckets": 1000}].',
    )
    label: dict = option(
        {},
        help='Label of a table: {"column": "a"}, or a comparison such as {"column": "a", '
        '"above": 0.2, "times_column": "b"}.',
    )
    image_size: int = option(
        224,
        help="Height and width, in pixels, to which images are resized.",
        minimum=1,
        maximum=4096,
    )
    channels: int = option(
        3, help="Color channels of images: 3 for RGB, 1 for gray.", choices=(1, 3)
    )
    resize_method: str = option(
        "bilinear", help="Method of interpolation for resizing images.", choices=RESIZE_METHODS
    )
    encoding: str = option(
        "jpeg",
        help="Encoding of images in the records: raw (fastest to read) or jpeg (a tenth of the "
        "bytes).",
        choices=ENCODINGS,
    )
    jpeg_quality: int = option(
        85,
        help="JPEG quality of images, with encoding=jpeg; lower is smaller and faster to decode.",
        minimum=1,
        maximum=100,
    )
    augmentation: str = augmentation_option()
    augmentation_operations: list[str] = operations_option()
    augmentation_variants: int = option(
        1,
        help="Number of augmented copies that are written after each training image, with "
        "augmentation=records.",
        minimum=1,
        maximum=64,
    )
    split_fractions: list[float] = option(
        [0.8, 0.1, 0.1],
        help="Fractions of the train, validation and test splits, for a source that has no splits; "
        "they must add up to 1.",
        minimum=0,
        maximum=1,
    )
    shard_megabytes: float = option(
        64.0, help="Target size of a shard of records, in MB (10^6 bytes).", above=0
    )
    records_store: str = option(
        "",
        help="Folder (URI) that keeps shards of records between runs: a shard of the last run "
        "with equal options is copied if none of its examples changed; empty: all shards are "
        "written.",
    )
    max_rejected_fraction: float = option(
        0.01,
        help="Largest fraction of the source's examples that may be unusable; with more, the step "
        "that writes records fails.",
        minimum=0,
        maximum=1,
    )

    def __post_init__(self) -> None:
        if self.augmentation == "records" and "shift" in self.augmentation_operations:
            raise InputError("augmentation_operations: shift needs augmentation=model")
        check_operations(self.augmentation, self.augmentation_operations)
        is_table = sources.parse_source(self.source)[0].is_table
        if is_table:
            parse_schema(self.columns, self.crosses, self.label)
        elif self.columns or self.crosses or self.label:
            raise InputError(
                f"columns, crosses and label describe a table, but source={self.source!r} is not a "
                f"table; use {sources.table_forms()}, or leave them out"
            )
        if self.records_store and is_table:
            raise InputError(
                f"records_store={self.records_store!r} keeps shards of images, but source="
                f"{self.source!r} is a table, which is parsed as a whole; leave out records_store"
            )
        fractions = self.split_fractions
        valid = len(fractions) == len(SPLITS) and abs(sum(fractions) - 1) <= 1e-6
        if not valid or not fractions[0] or not fractions[2]:
            raise InputError(
                f"split_fractions={fractions} must be {len(SPLITS)} fractions "
                f"({', '.join(SPLITS)}) that add up to 1, with train and test above 0"
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
        help="Maximum number of machines that Dataflow starts, with records_engine=dataflow.",
        minimum=1,
        maximum=4000,
    )
    dataflow_machine_type: str = option(
        "e2-standard-4",
        help="Machine type of Dataflow's workers, with records_engine=dataflow; each core writes a "
        "shard.",
    )
    dataflow_subnetwork: str = option(
        "",
        help="Subnetwork with Private Google Access for Dataflow's workers, which then have no "
        "public addresses, such as regions/REGION/subnetworks/NAME; empty: the network default.",
    )

    def __post_init__(self) -> None:
        if not _DATAFLOW_MACHINE.fullmatch(self.dataflow_machine_type):
            raise InputError(
                f"dataflow_machine_type={self.dataflow_machine_type!r} is not a machine type, "
                "such as e2-standard-4"
            )
        if self.dataflow_subnetwork and not _SUBNETWORK.fullmatch(self.dataflow_subnetwork):
            raise InputError(
                f"dataflow_subnetwork={self.dataflow_subnetwork!r} is not a subnetwork, such as "
                "regions/us-central1/subnetworks/default"
            )


def check_engine(records: RecordOptions, engine: EngineOptions) -> None:
    """Raise InputError for a records store with Dataflow, which always writes all shards."""
    if records.records_store and engine.records_engine == "dataflow":
        raise InputError(
            f"records_store={records.records_store!r} works only with records_engine='local', as "
            "Dataflow always writes all shards; leave out one of the two"
        )
