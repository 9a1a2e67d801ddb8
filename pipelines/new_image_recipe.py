"""Draft a recipe for a folder of photos that nobody has described.

    draft_images("images:photos", "", {}).options

Folders of classes or a column of labels.csv say what the photos show. Files are examined and split
as in a run; those of a large folder, in part.
"""

import math
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from pipelines.local.preflight import has_imagenet_weights
from pipelines.recipe_draft import Draft, to_toml
from trainer.data import storage
from trainer.data.dataset_warnings import describe_absent_classes, describe_rejections
from trainer.data.images.class_folders import TABLE, ListedImage
from trainer.data.images.label_table import find_file_column
from trainer.data.images.pixels import PixelFormat, RejectedError
from trainer.data.source import Example, Rejection
from trainer.data.sources import parse_source
from trainer.data.sources.csv import CsvReader
from trainer.data.sources.images import ImageFolder
from trainer.data.storage import join
from trainer.data.tables.label_proposal import describe_label
from trainer.data.tables.schema_parser import parse_image_labels
from trainer.data.tables.sniffing import read_header
from trainer.data.totals import Totals, count_rejections
from trainer.data.write.open_images import OpenImages
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.split_plan import plan_splits
from trainer.fields import build, pick
from trainer.process_pool import available_cores
from vertex import formats
from vertex.errors import InputError

MOST_BYTES, MOST_FILES = 10**9, 100_000
"""Files that are examined, in a few seconds; of more, every n-th is."""
SAMPLE_PHOTOS, SAMPLE_BYTES = 300, 50 * 10**6
"""Photos that are decoded, in a second or two."""
IMBALANCE = 3
SMALL_SIDE = 64
"""Height or width in pixels up to which photos are learned as they are, by small_cnn."""
BACKBONE = "MobileNetV2"
_EXAMPLES = 100_000
"""Photos times epochs, within the limits of epochs."""
_START_SECONDS = 15
_PIXEL_SECONDS = {"small_cnn": 6e-6, "flowers_cnn": 5.5e-7}
"""Of a core for a pixel of a photo in an epoch, by measurements on an AMD EPYC."""
_TRANSFER = {
    "model": "transfer",
    "model_options": {"backbone": BACKBONE, "weights": "imagenet"},
    "image_size": 224,
    "epochs": 10,
    "early_stopping_patience": 3,
    "fine_tune_epochs": 10,
    "fine_tune_layers": 30,
    "fine_tune_learning_rate": 0.0003,
}
"""Those of pipelines/recipes/flowers.toml."""
_REASON = (
    "Transfer learning is usually much better: accuracy 0.77 instead of 0.42 on 300 photos of five "
    "flowers. It downloads ImageNet's weights once; without a network, set weights to a file of "
    "them. Its options:"
)


def draft_images(source: str, label: str, values: Mapping[str, Any]) -> Draft:
    """Return options for the photos of a folder; raise InputError if they can't be learned from.

    Args:
        source: images:FOLDER.
        label: a column of the folder's labels.csv; empty for folders of classes.
        values: other parameters that the recipe sets, such as dialect and split_by.
    """
    given = {"source": source, **_describe_label(source, label, values)}
    record_options = build(RecordOptions, pick(RecordOptions, {**values, **given}))
    _, folder = parse_source(source)
    images = OpenImages(ImageFolder(folder, record_options), record_options)
    examined, share = _examine(images)
    totals, _ = plan_splits(iter(examined), images.labels, images.split_fractions)
    images.conclude(totals)
    examples = [item for item in examined if isinstance(item, Example)]
    sample = _Sample(images, examples)
    count = round(len(examples) / share)
    chosen = choose_options(count, sample.side, is_gray=sample.is_gray)
    options = {**given, **chosen, **values, **given}
    comments = {}
    if options["model"] == "flowers_cnn":
        lines = [f"{name} = {to_toml(value)}" for name, value in _TRANSFER.items()]
        comments["model"] = [*textwrap.wrap(_REASON, 96), *lines]
    rejected = sum(not rejection.tolerated for rejection in totals.rejections)
    unreadable = len(examples) * len(sample.unreadable) / sample.read
    fraction = (rejected + unreadable) / (rejected + len(examples))
    if fraction > record_options.max_rejected_fraction:
        options.setdefault("max_rejected_fraction", round(min(1.0, fraction + 0.02), 2))
    part = "" if share == 1 else f"; labels and duplicates of one in {round(1 / share)} files"
    facts = [
        ("photos", f"{count:,}: {sample}{part}"),
        *_describe_labels(images, examples),
        *(_describe_splits(images, totals) if share == 1 else ()),
        *_describe_copies(examples, totals),
    ]
    if sample.unreadable:
        first = "; ".join(f"{path}: {why}" for path, why in list(sample.unreadable.items())[:3])
        text = f"{len(sample.unreadable):,} of the sample can't be read; convert or remove them: "
        facts.append(("rejected", text + first))
    if text := describe_rejections(count_rejections(totals.rejections), totals.items, images.unit):
        facts.append(("rejected", text))
    return Draft(options, comments, [*facts, ("time", _estimate_time(count, options))])


def choose_options(count: int, side: int, *, is_gray: bool) -> dict[str, Any]:
    """Return a model and options that suit the number of photos and their size in pixels."""
    epochs = min(40, max(6, _EXAMPLES // count))
    patience = max(4, epochs // 4)
    training = {"epochs": epochs, "learning_rate": 0.001, "early_stopping_patience": patience}
    if side <= SMALL_SIDE:
        return {
            "model": "small_cnn",
            # Each item halves an image; the dense layer gets at most 8 x 8 positions.
            "model_options": {"filters": [32, 64, 128][: 3 if side > 32 else 2]},
            "image_size": max(8, side),
            "channels": 1 if is_gray else 3,
            "encoding": "raw",
            "batch_size": 64,
            "schedule": "cosine",
            **training,
        }
    options = {
        "model": "flowers_cnn",
        # The size of the network's tutorial or, in half the time, a smaller one.
        "image_size": min(side, 180 if count < 20_000 else 128),
        "channels": 3,
        "encoding": "jpeg",
        "augmentation": "model",
        "augmentation_operations": ["horizontal_flip"],
        "batch_size": 32,
        **training,
    }
    return options | _TRANSFER if has_imagenet_weights(BACKBONE) else options


def _describe_label(source: str, label: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the label and the dialect of a recipe for a column of labels.csv.

    Raise InputError, which names the columns, if there is no label, but no folders of classes.
    """
    kind, folder = parse_source(source)
    if kind is not ImageFolder:
        raise InputError(f"source={source!r} is not a folder of photos; give images:FOLDER")
    table = join(folder, TABLE)
    if not storage.exists(table):
        return {"label": {"column": label}} if label else {}
    dialect = CsvReader.sniff(table, values.get("dialect")).dialect
    given: dict[str, Any] = {"dialect": dialect.settings} if dialect.settings else {}
    if label:
        options = RecordOptions(source=source, label={"column": label}, **given)
        opened = CsvReader(table, parse_image_labels(options))
        return {**given, "label": describe_label(opened, f"source={source!r}", label)}
    try:
        ImageFolder(folder, RecordOptions(source=source))
    except InputError:
        header = read_header(table, dialect)
        paths = find_file_column(table, header, [])
        columns = formats.listing(name for name in header if name not in ("", paths))
        raise InputError(
            f"source={source!r} has no folders of classes; give --label, a column of its {TABLE}: "
            f"{columns}"
        ) from None
    return {}


def _examine(images: OpenImages) -> tuple[list[Example | Rejection], float]:
    """Return what a run lists, and the share of all files that were examined."""
    listed: list[ListedImage | Rejection] = []

    def examine_some(examine: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        listed.extend(items)
        files = [item.file for item in listed if isinstance(item, ListedImage)]
        size = sum(file.size for file in files if not file.md5)
        return map(examine, listed[:: 1 + max(size // MOST_BYTES, len(listed) // MOST_FILES)])

    examined = list(images.opened.examples(examine_some))
    return examined, len(examined) / max(1, len(listed))


class _Sample:
    """Some photos, decoded; raise InputError if none can be."""

    def __init__(self, images: OpenImages, examples: Sequence[Example]) -> None:
        self.read, self.unreadable = 0, dict[str, str]()  # reasons by path
        self._sizes: list[tuple[int, int]] = []  # width and height in pixels
        self._formats, self._modes = Counter[str](), set[str]()
        decoder, remaining = PixelFormat(images.options), SAMPLE_BYTES
        for index in np.random.default_rng(0).permutation(len(examples))[:SAMPLE_PHOTOS]:
            reference, content = examples[index].reference, b""
            try:
                content = images.opened.fetch(reference)
                decoder.decode(content, self._add)
            except (RejectedError, OSError) as error:
                self.unreadable[reference.key] = str(error)
            self.read, remaining = self.read + 1, remaining - len(content)
            if remaining < 0:
                break
        if len(self.unreadable) == self.read:
            path, why = next(iter(self.unreadable.items()))
            place = f"source={images.options.source!r}"
            raise InputError(f"{place} has no photo that can be read; {path}: {why}")
        self._sizes.sort(key=math.prod)
        self.side = int(np.median([min(size) for size in self._sizes]))
        self.is_gray = self._modes <= {"1", "L", "LA", "I;16"}

    def _add(self, image: Image.Image) -> None:
        self._sizes.append(image.size)
        self._formats[str(image.format)] += 1
        self._modes.add(image.mode)

    def __str__(self) -> str:
        sizes = [f"{width}x{height}" for width, height in self._sizes]
        least, median, most = sizes[0], sizes[len(sizes) // 2], sizes[-1]
        shown = median if least == most else f"{median} ({least} to {most})"
        kinds = ", ".join(kind for kind, _ in self._formats.most_common())
        gray = ", gray" if self.is_gray else ""
        return f"{kinds}{gray}, {shown} pixels, in a sample of {self.read:,}"


def _describe_labels(images: OpenImages, examples: Sequence[Example]) -> Iterator[tuple[str, str]]:
    label = images.opened.label
    labels: list[Any] = [example.label for example in examples]
    if label and label.number:
        low, median, high = np.quantile(labels, [0, 0.5, 1], method="higher")
        yield "label", f"{label.column}: a number, median {median:g}, from {low:g} to {high:g}"
        return
    if label and label.is_multilabel:
        labels = [name for names in labels for name in names]
    counts = Counter(labels if label else map(images.labels.name, labels)).most_common()
    what = "labels, several per photo" if label and label.is_multilabel else "classes"
    shown = formats.listing((f"{name} {count:,}" for name, count in counts), 100)
    yield "label", f"{len(counts):,} {what}: {shown}"
    (largest, most), (smallest, least) = counts[0], counts[-1]
    if most > IMBALANCE * least:
        text = f"{largest} has {most / least:.2g} times as many photos as {smallest}; "
        yield "doubtful", text + 'class_weights = "balanced" recognizes more of the rare ones'


def _describe_splits(images: OpenImages, totals: Totals) -> Iterator[tuple[str, str]]:
    yield "splits", ", ".join(f"{split} {count:,}" for split, count in totals.examples.items())
    counts = totals.labels or totals.counts
    by_split = {
        split: {name: counts[split, name] for name in images.classes}
        for split, count in totals.examples.items()
        if count
    }
    for text in describe_absent_classes(by_split, images.unit):
        yield "doubtful", text


def _describe_copies(examples: Sequence[Example], totals: Totals) -> Iterator[tuple[str, str]]:
    paths = defaultdict[bytes, list[str]](list)
    for example in examples:
        paths[example.digest].append(example.reference.key)
    if copies := [equal for equal in paths.values() if len(equal) > 1]:
        pairs = ", ".join(f"{one} = {other}" for one, other, *_ in copies[:3])
        yield "doubtful", f"duplicates: {sum(map(len, copies)) - len(copies):,}, such as {pairs}"
    if totals.contradictions:
        pairs = ", ".join(" = ".join(pair) for pair in totals.pairs[:3])
        text = f"duplicates with different labels: {totals.contradictions:,}, such as {pairs}"
        yield "doubtful", text


def _estimate_time(count: int, options: Mapping[str, Any]) -> str:
    """Return the longest time of a run on this machine; early stopping ends most of them sooner."""
    training = f"{options['epochs']} epochs of {formats.number_of(count, 'photos')}"
    if options["model"] not in _PIXEL_SECONDS:
        return f"at most {training}"
    pixels = count * options["epochs"] * options["image_size"] ** 2
    seconds = _START_SECONDS + pixels * _PIXEL_SECONDS[options["model"]] / available_cores()
    return f"at most {formats.duration(round(seconds))} here: {training}"
