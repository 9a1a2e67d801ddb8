"""The options of create_tfrecords that a source gets: what it reads, and as which examples."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from trainer.conditions import Condition, when
from trainer.data.schema import IMAGES, ROWS, SPLITS
from trainer.fields import option
from vertex.errors import InputError

RESIZE_METHODS = ("bilinear", "nearest", "bicubic", "area", "lanczos3")
OPERATIONS = ("horizontal_flip", "vertical_flip", "quarter_turn", "shift")


def _when_source(words: str, holds: Callable[[Any], bool]) -> Condition:
    """Return a condition on the SourceKind of a source, which RecordOptions finds."""
    return Condition(("source",), holds, words, reads="source_kind")


OF_IMAGES = _when_source("a source of images", lambda kind: kind.contents == IMAGES)
_OF_ROWS = _when_source("a source of rows", lambda kind: kind.contents == ROWS)


def augmentation_option(*applies: Condition) -> Any:
    """Return the `augmentation` option, which training and record writing share."""
    return option(
        "none",
        help="Augmentation of training images: none, model (at random in every epoch, inside the "
        "model) or records (written into the records once).",
        choices=("none", "model", "records"),
        applies=applies,
    )


def operations_option(*applies: Condition) -> Any:
    """Return the `augmentation_operations` option, which training and record writing share."""
    return option(
        ["horizontal_flip", "quarter_turn"],
        help="Operations that augment training images, as a JSON list.",
        choices=OPERATIONS,
        applies=(*applies, when("augmentation", "model", "records")),
    )


def check_operations(augmentation: str, operations: Sequence[str]) -> None:
    """Raise InputError for an augmentation without operations."""
    if augmentation != "none" and not operations:
        raise InputError(
            f"augmentation={augmentation!r} with augmentation_operations=[] does nothing; name an "
            "operation, or set augmentation=none"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Options for the examples of a source; `RecordOptions` adds those for writing them."""

    source: str = ""
    data_dir: str = option(
        "",
        help="Folder (URI) where TensorFlow Datasets finds prepared datasets; empty: its default "
        "folder.",
        applies=_when_source("a source tfds:NAME", lambda kind: "data_dir" in kind.own_options),
    )
    query_gigabytes: float = option(
        1000.0,
        help="Most data that the query may scan, in GB (10^9 bytes), for which BigQuery bills: a "
        "query that would scan more fails, unbilled; 0: no limit.",
        minimum=0,
        applies=_when_source(
            "a source bigquery:SELECT", lambda kind: "query_gigabytes" in kind.own_options
        ),
    )
    dialect: dict = option(
        {},
        help='How the files of a table are written, such as {"encoding": "cp1252", "delimiter": '
        '";"}; empty: CSV in UTF-8, with commas and double quotes.',
    )
    columns: list[dict] = option(
        [],
        help="Columns of a table that are inputs of the model, as a JSON list of objects with "
        "name, type (numeric, bucketized, identity, date, vocabulary, hashed or text) and the "
        "options of the type.",
        applies=_OF_ROWS,
    )
    crosses: list[dict] = option(
        [],
        help="Crossed columns of a table, as a JSON list such as "
        '[{"columns": ["a", "b"], "buckets": 1000}].',
        applies=_OF_ROWS,
    )
    label: dict = option(
        {},
        help='Label of a table: {"column": "a"}, or a comparison such as {"column": "a", '
        '"above": 0.2, "times_column": "b"}.',
    )
    split_by: dict = option(
        {},
        help='What decides a row\'s split: {"group": "a"} keeps rows with an equal value of column '
        'a in one split, {"column": "a"} reads the split from column a; empty: a digest of the '
        "row.",
    )
    weight_column: str = option(
        "",
        help="Column of a table with each row's weight in the loss of training and validation, at "
        "least 0; empty: all rows have the same.",
        applies=_OF_ROWS,
    )
    image_size: int = option(
        224,
        help="Height and width, in pixels, to which images are resized.",
        minimum=1,
        maximum=4096,
        applies=OF_IMAGES,
    )
    channels: int = option(
        3,
        help="Color channels of images: 3 for RGB, 1 for gray.",
        choices=(1, 3),
        applies=OF_IMAGES,
    )
    resize_method: str = option(
        "bilinear",
        help="Method of interpolation for resizing images.",
        choices=RESIZE_METHODS,
        applies=OF_IMAGES,
    )
    encoding: str = option(
        "jpeg",
        help="Encoding of images in the records: raw (fastest to read) or jpeg (a tenth of the "
        "bytes).",
        choices=("raw", "jpeg"),
        applies=OF_IMAGES,
    )
    jpeg_quality: int = option(
        85,
        help="JPEG quality of images; lower is smaller and faster to decode.",
        minimum=1,
        maximum=100,
        applies=(OF_IMAGES, when("encoding", "jpeg")),
    )
    augmentation: str = augmentation_option(OF_IMAGES)
    augmentation_operations: list[str] = operations_option(OF_IMAGES)
    augmentation_variants: int = option(
        1,
        help="Number of augmented copies that are written after each training image.",
        minimum=1,
        maximum=64,
        applies=(OF_IMAGES, when("augmentation", "records")),
    )
    split_fractions: list[float] = option(
        [0.8, 0.1, 0.1],
        help="Fractions of the train, validation and test splits, for a source that has no splits; "
        "they must add up to 1.",
        minimum=0,
        maximum=1,
    )

    def __post_init__(self) -> None:
        if self.augmentation == "records" and "shift" in self.augmentation_operations:
            raise InputError("augmentation_operations: shift needs augmentation=model")
        check_operations(self.augmentation, self.augmentation_operations)
        fractions = self.split_fractions
        valid = len(fractions) == len(SPLITS) and abs(sum(fractions) - 1) <= 1e-6
        if not valid or not fractions[0] or not fractions[2]:
            raise InputError(
                f"split_fractions={fractions} must be {len(SPLITS)} fractions "
                f"({', '.join(SPLITS)}) that add up to 1, with train and test above 0"
            )
