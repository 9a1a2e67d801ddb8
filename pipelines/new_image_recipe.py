"""Propose a recipe for a folder of photos that nobody has described.

    proposal = propose_images("images:photos", "")
    proposal.options         # as the recipe has them
    proposal.alternative     # other options, for a comment, and proposal.reason for them
    proposal.facts           # lines for the terminal

Folders of classes or a column of labels.csv say what the photos show.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pipelines.local.preflight import has_imagenet_weights
from pipelines.photo_survey import PhotoSurvey
from trainer import formats
from trainer.data import storage
from trainer.data.images.class_folders import TABLE
from trainer.data.source_options import SourceOptions
from trainer.data.sources import parse_source
from trainer.data.sources.csv import CsvReader
from trainer.data.sources.images import ImageFolder
from trainer.data.storage import join
from trainer.data.tables.columns import Label, SplitBy, TableSchema
from trainer.data.tables.csv_text import read_header
from trainer.data.tables.dialect import PLAIN
from trainer.data.tables.proposal import describe_label
from trainer.data.write.record_options import RecordOptions
from trainer.errors import InputError
from trainer.process_pool import available_cores

SMALL_SIDE = 64
"""Height or width in pixels up to which photos are learned as they are, by small_cnn."""
PHOTO_SIDE = 180
"""That of the tutorial of which flowers_cnn is the network."""
MANY_PHOTOS, MANY_SIDE = 20_000, 128
"""Photos from which smaller ones halve the time."""
BACKBONE, BACKBONE_SIDE = "MobileNetV2", 224
_EXAMPLES = 100_000
"""Photos times epochs, within the limits of epochs."""
_MULTIPLY_ADDS = 4e9
"""That a core trains on in a second, forward alone, measured with both networks on an AMD EPYC."""
_START_SECONDS = 15


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageProposal:
    """Values that a recipe sets for photos."""

    options: dict[str, Any]  # in the order to write them
    alternative: dict[str, Any]  # options that are better, but need a download; {}: none
    reason: str  # why they are better
    facts: list[str]  # what was found, a line each


def list_label_columns(source: str) -> list[str]:
    """Return the columns of a folder's labels.csv that may be its label; [] without the table."""
    from trainer.data.images.label_table import find_file_column

    table = join(_find_folder(source), TABLE)
    if not storage.exists(table):
        return []
    header = read_header(table, CsvReader.sniff(table).dialect)
    return [name for name in header if name and name != find_file_column(table, header, [])]


def propose_images(
    source: str, label: str, dialect: Mapping[str, Any] | None = None
) -> ImageProposal:
    """Return options for the photos of a folder; raise InputError if they can't be learned from.

    Args:
        source: images:FOLDER.
        label: a column of the folder's labels.csv; empty for folders of classes.
        dialect: what is known of the dialect of labels.csv.
    """
    folder = _find_folder(source)
    given: dict[str, Any] = {"source": source}
    if label:
        given |= _describe_label(folder, source, label, dialect)
    elif columns := list_label_columns(source):
        try:
            ImageFolder(folder, SourceOptions(source=source))
        except InputError:
            raise InputError(
                f"source={source!r} has no folders of classes; give --label, a column of its "
                f"{TABLE}: {formats.listing(columns)}"
            ) from None
    survey = PhotoSurvey(ImageFolder(folder, SourceOptions(**given)))
    options = choose_options(survey)
    if survey.unusable_fraction > RecordOptions(source=source).max_rejected_fraction:
        options["max_rejected_fraction"] = round(min(1.0, survey.unusable_fraction + 0.02), 2)
    is_trained = options["model"] == "transfer" or survey.side <= SMALL_SIDE
    return ImageProposal(
        options={**given, **options},
        alternative={} if is_trained else {**_TRANSFER, **_FINE_TUNING},
        reason="" if is_trained else _REASON,
        facts=[*survey.describe(), _describe_time(survey.count, options)],
    )


def choose_options(survey: PhotoSurvey) -> dict[str, Any]:
    """Return a model and options that suit the number of photos and their size."""
    if survey.side <= SMALL_SIDE:
        return _choose_small(survey)
    epochs = min(30, max(5, _EXAMPLES // survey.count))
    options = {
        "channels": 3,
        "encoding": "jpeg",
        "augmentation": "model",
        "augmentation_operations": ["horizontal_flip"],
        "batch_size": 32,
        "epochs": epochs,
        "learning_rate": 0.001,
        "early_stopping_patience": max(3, epochs // 5),
    }
    if has_imagenet_weights(BACKBONE):
        return {**_TRANSFER, **options, "epochs": 10, "early_stopping_patience": 3, **_FINE_TUNING}
    side = MANY_SIDE if survey.count >= MANY_PHOTOS else PHOTO_SIDE
    return {"model": "flowers_cnn", "image_size": min(side, survey.side), **options}


_TRANSFER = {
    "model": "transfer",
    "model_options": {"backbone": BACKBONE, "weights": "imagenet"},
    "image_size": BACKBONE_SIDE,
}
_FINE_TUNING = {"fine_tune_epochs": 10, "fine_tune_layers": 30, "fine_tune_learning_rate": 0.0003}
"""Those of pipelines/recipes/flowers.toml."""
_REASON = (
    "Transfer learning is usually much better: of 300 photos of five flowers, 0.77 are right "
    "instead of 0.42. It downloads ImageNet's weights once; without a network, name a file of them."
)


def _choose_small(survey: PhotoSurvey) -> dict[str, Any]:
    """Return options of small images, after those of pipelines/recipes/digits.toml."""
    side = max(8, survey.side)
    epochs = min(40, max(6, _EXAMPLES // survey.count))
    return {
        "model": "small_cnn",
        # Each item halves an image; the dense layer gets at most 8 x 8 positions.
        "model_options": {"filters": [32, 64, 128][: 3 if side > 32 else 2]},
        "image_size": side,
        "channels": 1 if survey.is_gray else 3,
        "encoding": "raw",
        "batch_size": 64,
        "epochs": epochs,
        "learning_rate": 0.001,
        "schedule": "cosine",
        "early_stopping_patience": max(4, epochs // 4),
    }


def _find_folder(source: str) -> str:
    kind, location = parse_source(source)
    if kind is not ImageFolder:
        raise InputError(f"source={source!r} is not a folder of photos; give images:FOLDER")
    return location


def _describe_label(
    folder: str, source: str, label: str, dialect: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the label and the dialect of a recipe for a column of labels.csv."""
    table = join(folder, TABLE)
    found = CsvReader.sniff(table, dialect).dialect if storage.exists(table) else PLAIN
    given: dict[str, Any] = {"dialect": found.settings} if found.settings else {}
    # Opening checks that the table exists and has the column.
    ImageFolder(folder, SourceOptions(source=source, label={"column": label}, **given))
    schema = TableSchema(
        columns=[], crosses=[], label=Label(column=label), split_by=SplitBy(), dialect=found
    )
    described = describe_label(CsvReader(table, schema), f"source={source!r}", label)
    return {**given, "label": described}


def _describe_time(photos: int, options: dict[str, Any]) -> str:
    epochs = options["epochs"]
    if options["model"] == "transfer":
        return (
            f"at most {epochs} epochs of the head and {options['fine_tune_epochs']} of the backbone"
        )
    seconds = 0.8 * photos * epochs * _count_multiply_adds(options)
    seconds = _START_SECONDS + seconds / (_MULTIPLY_ADDS * available_cores())
    return (
        f"at most {epochs} epochs, about {formats.duration(round(seconds))} on this machine's cores"
    )


def _count_multiply_adds(options: dict[str, Any]) -> float:
    """Return the multiply-adds of a network's 3x3 convolutions for an image."""
    is_small = options["model"] == "small_cnn"
    filters = options["model_options"]["filters"] if is_small else [16, 32, 64]
    total, side, inputs = 0.0, options["image_size"], options["channels"]
    for outputs in filters:
        total += 9 * side * side * outputs * (inputs + (outputs if is_small else 0))
        side, inputs = side // 2, outputs
    return total
