"""The description of records: how they are created, and the final dataset.json."""

import collections
import dataclasses
import importlib.metadata
import json
from typing import Any

from trainer.data.schema import REJECTED_FILE_NAME, SPLITS, Dataset, Feature, Shard, Split
from trainer.data.totals import ClassCounts, Totals, count_rejections
from trainer.data.write import checks
from trainer.data.write.open_source import OpenSource
from trainer.data.write.output import OutputFolder, ShardResult
from trainer.data.write.shards import ShardWriter
from trainer.data.write.spill import Spill
from vertex.errors import InputError

LAYOUT_VERSION = 6
"""Part of the fingerprint: increased when the same options begin to produce other bytes."""

_PACKAGES = ("tensorflow", "numpy", "pillow", "opencv-python-headless")
"""Packages whose versions affect the bytes of records."""


def list_features(source: OpenSource) -> list[Feature]:
    return [
        *source.features,
        source.labels.feature,
        Feature(name="key", kind="key", dtype="string"),
    ]


def describe_conditions(source: OpenSource) -> list[Any]:
    """Return everything that determines a record besides the example; needs no listing."""
    return [*_describe_source(source), dataclasses.asdict(source.options), _read_versions()]


def begin(
    source: OpenSource, totals: Totals, folder: OutputFolder, rows: Spill | None = None
) -> tuple[ShardWriter, Dataset | None]:
    """Return the writer of a plan, and the dataset if an earlier run has finished it.

    Raise InputError as `finish` does.
    """
    checks.check_rejections(totals.rejections, totals.items, source)
    checks.check_counts(totals.counts, source)
    creation: dict[str, Any] = {
        "source": source.options.source,
        "given": totals.items,
        **source.details,
        "options": dataclasses.asdict(source.options),
        "versions": _read_versions(),
    }
    # It covers how records are created, their schema and the examples.
    fingerprint = totals.fingerprint([*_describe_source(source), creation])
    creation["fingerprint"] = fingerprint
    writer = ShardWriter(source, folder, creation, rows)
    return writer, folder.find_finished(fingerprint)


def _describe_source(source: OpenSource) -> list[Any]:
    described = [dataclasses.asdict(feature) for feature in list_features(source)]
    return [LAYOUT_VERSION, source.name, source.classes, described]


def _read_versions() -> dict[str, str]:
    return {name: _read_version(name) for name in _PACKAGES}


def _read_version(package: str) -> str:
    """Return the installed package's version; tensorflow may be installed as tensorflow-cpu."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return importlib.metadata.version(f"{package}-cpu")


def finish(writer: ShardWriter, totals: Totals, results: list[ShardResult]) -> Dataset:
    """Check what was written and complete the dataset, or remove all of it.

    Raise InputError if too much was rejected, or a class or a split has no example.
    """
    source = writer.source
    results = sorted(results, key=lambda result: result.shard.file)
    rejections = totals.rejections + [
        rejection for result in results for rejection in result.rejections
    ]
    rejections.sort(key=lambda rejection: rejection.key)
    shards: dict[str, list[Shard]] = {split: [] for split in SPLITS}
    counts: ClassCounts = collections.Counter()
    for result in results:
        shards[result.split].append(result.shard)
        for name, count in zip(source.labels.counted, result.class_counts, strict=True):
            counts[result.split, name] += count
    try:
        checks.check_rejections(rejections, totals.items, source)
        checks.check_counts(counts, source)
    except InputError:
        writer.folder.clear()
        raise
    copies = sum(result.copies for result in results)
    # Such examples stay in the records: only a person can decide which label is right.
    contradictions = {"count": totals.contradictions, "first": totals.pairs}
    dataset = Dataset(
        uri=writer.folder.uri,
        name=source.name,
        features=list_features(source),
        classes=source.classes,
        splits={
            split: Split(
                shards=written, class_counts=[counts[split, name] for name in source.labels.counted]
            )
            for split, written in shards.items()
        },
        rejected={**count_rejections(rejections), "file": REJECTED_FILE_NAME},
        creation={
            **writer.creation,
            "accepted": totals.items - len(rejections),
            **({"copies": copies} if copies else {}),
            **({"contradictions": contradictions} if totals.contradictions else {}),
        },
    )
    lines = [
        json.dumps({"key": rejection.key, "reason": rejection.reason}) + "\n"
        for rejection in rejections
    ]
    writer.folder.finish(dataset, "".join(lines).encode())
    return dataset
