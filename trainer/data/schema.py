"""dataset.json: everything that a reader needs to know about a folder of records.

Readers take counts, shapes and classes from this file alone; they parse no file names.
dataset.json is written last, so a dataset is complete once it exists.
"""

import dataclasses
import hashlib
import json
from typing import Any

from trainer.data import storage
from trainer.data.storage import join
from vertex.errors import InputError
from vertex.formats import suggest

FILE_NAME = "dataset.json"
EXTRA_ASSETS = "assets.extra"
"""Folder in a SavedModel that holds the dataset.json of its training data."""
REJECTED_FILE_NAME = "rejected.jsonl"
SCHEMA_VERSION = 1
SPLITS = ("train", "validation", "test")
CONTENTS = IMAGES, ROWS = "images", "rows of a table"
"""Kinds of examples of a source or a dataset, and of what a model takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature of tf.train.Example.

    Its kind is "image" (bytes: encoded, or raw row-major uint8), "label" (an index into classes,
    int64; for several labels, 0 or 1 for each class, int64 [classes]; or a number to predict,
    float32, with the settings and statistics of a column), "weight" (of a row, float32) or "key"
    (bytes that say where the example came from). The kinds of a table's columns are "numeric",
    "bucketized" (float), "identity" (int64), "date", "vocabulary", "hashed" and "text" (bytes); all
    columns share three features, see trainer.data.tables.parsing. A "cross" is not in the records:
    it is computed from the columns that its settings name.
    """

    name: str  # key in the example, and name of the model's input
    kind: str
    dtype: str  # type of the tensor that a reader returns, by TensorFlow's name
    # Shape of that tensor, without the batch dimension; for images [height, width, channels].
    shape: list[int] = dataclasses.field(default_factory=list)
    encoding: str = ""  # encoding of an image's bytes: "raw" or "jpeg"; empty for other kinds
    # How the model encodes a column: boundaries, values, buckets, ...
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Statistics of a column over the training split: mean, deviation, a hundred quantiles (0.005,
    # 0.015, ...), counts of values, of hashes of the values of a hashed column, or of words drawn
    # from texts; and under "missing" the share of missing values by split.
    statistics: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
    """A TFRecord file: its name, number of records to read, size, and sha256 (hex)."""

    file: str
    examples: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """One of train, validation and test."""

    shards: list[Shard]
    class_counts: list[int]  # one number if an example does not have one class

    @property
    def examples(self) -> int:
        return sum(shard.examples for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """The content and location of dataset.json."""

    uri: str  # the folder, gs://, /gcs/ or local; not part of the file
    name: str  # name of the source, such as "digits"
    features: list[Feature]  # exactly one of kind "label"
    # Names of the classes, in the order of label indices; empty if labels are numbers.
    classes: list[str]
    splits: dict[str, Split]  # train, validation and test, which may be empty
    # {"count": n, "reasons": {reason: n}, "first": {reason: key}, "file": "rejected.jsonl"}
    rejected: dict[str, Any]
    creation: dict[str, Any]  # how the records were created: source, options, counts, versions

    def feature(self, kind: str) -> Feature:
        """Return the only feature of `kind`; raise InputError if the dataset has none."""
        for feature in self.features:
            if feature.kind == kind:
                return feature
        hint = suggest(kind, {feature.kind for feature in self.features})
        raise InputError(f"{self.uri}/{FILE_NAME} describes no {kind} feature{hint}")

    @property
    def weight(self) -> Feature | None:
        """Return the feature that has the weights of rows; None if they have none."""
        return next((feature for feature in self.features if feature.kind == "weight"), None)

    @property
    def contents(self) -> str:
        """Return what the examples are, one of CONTENTS."""
        return IMAGES if any(feature.kind == "image" for feature in self.features) else ROWS

    @property
    def image_shapes(self) -> list[list[int]]:
        """Return [height, width, channels] of the image in an example; empty for rows."""
        return [feature.shape for feature in self.features if feature.kind == "image"]

    def shard_uri(self, shard: Shard) -> str:
        return join(self.uri, shard.file)

    def to_json(self) -> str:
        """Return the file's text; equal datasets have equal text."""
        content = dataclasses.asdict(self)
        del content["uri"]
        for name, split in self.splits.items():
            sizes = {"examples": split.examples, "bytes": split.bytes}
            content["splits"][name] = {**sizes, **content["splits"][name]}
        content = {"schema_version": SCHEMA_VERSION, **content}
        return json.dumps({**content, "sha256": _sha256(content)}, indent=1) + "\n"


def limit_examples(dataset: Dataset, split: str, examples: int) -> Dataset:
    """Return `dataset` with only the first `examples` of a split, a random sample; 0: all of them.

    Each sample contains all smaller ones. `class_counts` still count the whole split.
    """
    content = dataset.splits[split]
    if not 0 < examples < content.examples:
        return dataset
    shards, remaining = [], examples
    for shard in content.shards:
        if remaining > 0 and shard.examples:
            shards.append(dataclasses.replace(shard, examples=min(remaining, shard.examples)))
        remaining -= shard.examples
    splits = {**dataset.splits, split: dataclasses.replace(content, shards=shards)}
    return dataclasses.replace(dataset, splits=splits)


def load_dataset(uri: str) -> Dataset:
    """Read `<uri>/dataset.json`; raise InputError if it is missing, damaged or another file."""
    path = join(uri, FILE_NAME)
    try:
        content = json.loads(storage.read(path))
        if (version := content["schema_version"]) != SCHEMA_VERSION:
            raise ValueError(f"schema_version {version} instead of {SCHEMA_VERSION}")
        if content.pop("sha256") != _sha256(content):
            raise ValueError("its sha256 differs: it is damaged or was changed")
        splits = {}
        for name, split in content["splits"].items():
            shards = [Shard(**shard) for shard in split["shards"]]
            splits[name] = Split(shards=shards, class_counts=split["class_counts"])
        features = [Feature(**feature) for feature in content["features"]]
        attributes = {name: content[name] for name in ("name", "classes", "rejected", "creation")}
        return Dataset(uri=uri, features=features, splits=splits, **attributes)
    except FileNotFoundError:
        raise InputError(
            f"no dataset at {uri}: {FILE_NAME} is missing; run create_tfrecords to its end"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} does not describe a dataset ({type(error).__name__}: {error}); run "
            "create_tfrecords again (a cached step runs again if its output is damaged)"
        ) from None


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def find_training_data(model: str) -> Dataset | None:
    """Return the dataset that a SavedModel (URI) was trained on; None if it has no dataset.json.

    Raises InputError as `load_dataset` does.
    """
    folder = join(model, EXTRA_ASSETS)
    return load_dataset(folder) if storage.exists(join(folder, FILE_NAME)) else None


def load_to_train(uri: str) -> Dataset:
    """Load a dataset; raise InputError if there is nothing to train on."""
    dataset = load_dataset(uri)
    if not dataset.splits["train"].examples:
        raise InputError(f"{uri} has no example to train on")
    return dataset
