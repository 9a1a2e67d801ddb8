"""Check shards against dataset.json before they are read.

    check_shards(dataset, dataset.splits["test"].shards)

Each process checks a shard once, before it first reads it: a flipped bit, or a file that was cut
off, doubled or replaced, is an error of one line. TensorFlow's own checksums, of each record,
would raise a stack trace, and miss a file that is too short or too long.
"""

import io
import math
from collections.abc import Iterable
from typing import Any

from PIL import Image

from trainer.data import storage
from trainer.data.schema import FILE_NAME, Dataset, PartialShard, Shard
from trainer.data.tables.columns import FEATURES, columns_in
from trainer.data.write import records
from trainer.data.write.process_pool import available_cores
from trainer.errors import InputError

_checked: set[tuple[str, str]] = set()
"""URI and sha256 of the shards that this process has found intact."""


def check_shards(dataset: Dataset, shards: Iterable[Shard]) -> None:
    """Raise InputError for a shard that differs from dataset.json; read each once per process.

    Takes about 1 s per GB and core, on all cores.
    """
    known = [(dataset.shard_uri(shard), shard) for shard in shards if shard.examples]
    fresh = {uri: shard for uri, shard in known if (uri, shard.sha256) not in _checked}
    if not fresh:
        return
    threads = 0 if storage.is_remote(dataset.uri) else min(len(fresh), available_cores())
    problems = storage.read_ahead(
        lambda one: shard_problem(*one), fresh.items(), uri=dataset.uri, threads=threads
    )
    for uri, problem in zip(fresh, problems, strict=True):
        if problem:
            raise InputError(
                f"{uri} {problem}, so it is not what {FILE_NAME} describes; run create_tfrecords "
                "again (a cached step does, once its output is damaged)"
            )
    _check_record(dataset, next(iter(fresh)))
    _checked.update((uri, shard.sha256) for uri, shard in fresh.items())


def shard_problem(uri: str, shard: Shard) -> str:
    """Return what is wrong with a shard's file, or an empty text; raise as `storage.read`."""
    try:
        size = storage.size(uri)
        if size != shard.bytes and not isinstance(shard, PartialShard):
            return f"has {size:,} bytes in place of {shard.bytes:,}"
        if storage.sha256(uri) != shard.sha256:
            return "is damaged or replaced (its sha256 differs)"
    except FileNotFoundError:
        return "is missing"
    return ""


def _check_record(dataset: Dataset, uri: str) -> None:
    """Raise InputError if a record's shape or label does not fit the data set.

    One record stands for all: all shards have one writer, and their checksums are right.
    """
    with storage.open_file(uri, "rb") as file:
        record = records.read_record(file)
    misfit = _misfit(dataset, records.parse(record or b""))
    if misfit:
        found, described = misfit
        raise InputError(
            f"a record of {uri} has {found}, but {dataset.uri}/{FILE_NAME} describes {described}; "
            "run create_tfrecords again"
        )


def _misfit(dataset: Dataset, example: dict[str, list[Any]]) -> tuple[str, str] | None:
    """Return what an example has and what the data set describes instead; None if it fits."""
    label = example.get(dataset.feature("label").name, [-1])[0]
    if not 0 <= label < len(dataset.classes):
        return f"the label {label}", f"{len(dataset.classes)} classes"
    if dataset.is_table:
        features = {FEATURES[one.dtype] for one in columns_in(dataset)}
        return None if features <= example.keys() else ("other features", "columns")
    image = dataset.feature("image")
    content = example.get(image.name, [b""])[0]
    described = "x".join(map(str, image.shape)) + " pixels"
    if image.encoding == "raw":
        fits = len(content) == math.prod(image.shape)
        return None if fits else (f"{len(content):,} bytes", described)
    with Image.open(io.BytesIO(content), formats=["JPEG"]) as picture:
        shape = [picture.height, picture.width, len(picture.getbands())]
    return None if shape == image.shape else ("x".join(map(str, shape)) + " pixels", described)
