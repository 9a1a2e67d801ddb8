"""The options of create_tfrecords that a source gets: what it reads, and as which examples."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from trainer.data.schema import SPLITS
from trainer.errors import InputError
from trainer.fields import option

RESIZE_METHODS = ("bilinear", "nearest", "bicubic", "area", "lanczos3")
ENCODINGS = ("raw", "jpeg")
AUGMENTATIONS = ("none", "model", "records")
OPERATIONS = ("horizontal_flip", "vertical_flip", "quarter_turn", "shift")
IMAGE_OPTIONS = (
    "image_size", "channels", "resize_method", "encoding", "jpeg_quality",
    "augmentation", "augmentation_operations", "augmentation_variants",
)  # fmt: skip
"""Options of images, which have no effect on a table."""


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
class SourceOptions:
    """Options for the examples of a source; `RecordOptions` adds those for writing them."""

    source: str = ""
    data_dir: str = option(
        "",
        help="For a source tfds:NAME, the folder (URI) where TensorFlow Datasets finds prepared "
        "datasets; empty: its default folder.",
    )
    query_gigabytes: float = option(
        1000.0,
        help="Most data that the query of a source bigquery:SELECT may scan, in GB (10^9 bytes), "
        "for which BigQuery bills: a query that would scan more fails, unbilled; 0: no limit.",
        minimum=0,
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
