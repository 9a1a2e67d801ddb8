"""The description of records: how they are made, and dataset.json at their end."""

import collections
import dataclasses
import importlib.metadata
from typing import Any

from trainer.data.record_options import SPLITS, RecordOptions
from trainer.data.schema import REJECTED_FILE_NAME, Dataset, Feature, Split
from trainer.data.sources import Source
from trainer.data.write import checks, output
from trainer.data.write.shards import ShardResult, ShardWriter
from trainer.data.write.totals import Totals
from trainer.errors import InputError

LAYOUT_VERSION = 5
"""Part of the fingerprint: raised when equal options come to give other bytes."""

_PACKAGES = ("tensorflow", "numpy", "pillow", "opencv-python-headless")
"""Whose versions decide what lies in the records."""


def features(source: Source) -> list[Feature]:
    return [
        *source.features,
        Feature(name="label", kind="label", dtype="int64"),
        Feature(name="key", kind="key", dtype="string"),
    ]


def conditions(source: Source, options: RecordOptions) -> list[Any]:
    """Return what decides, beside an example, on its record; cost nothing before the listing."""
    return [*_described(source), dataclasses.asdict(options), _versions()]


def creation(source: Source, totals: Totals, options: RecordOptions) -> dict[str, Any]:
    """Return how the records are made; the fingerprint covers this, the schema and the examples."""
    made: dict[str, Any] = {
        "source": options.source,
        "given": totals.given,
        **source.details,
        "options": dataclasses.asdict(options),
        "versions": _versions(),
    }
    return {**made, "fingerprint": totals.fingerprint([*_described(source), made])}


def _described(source: Source) -> list[Any]:
    described = [dataclasses.asdict(feature) for feature in features(source)]
    return [LAYOUT_VERSION, source.name, source.classes, described]


def _versions() -> dict[str, str]:
    return {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str:
    """Return the installed package's version; tensorflow may have come as tensorflow-cpu."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return importlib.metadata.version(f"{package}-cpu")


def finish(
    writer: ShardWriter,
    totals: Totals,
    options: RecordOptions,
    results: list[ShardResult],
    made: dict[str, Any],
) -> Dataset:
    """Judges what was written, and makes a data set of it or clears it away."""
    source = writer.source
    results = sorted(results, key=lambda result: result.shard.file)
    rejections = totals.rejections + [one for result in results for one in result.rejections]
    rejections.sort(key=lambda rejection: rejection.key)
    by_split = {
        split: [result for result in results if result.shard.file.startswith(f"{split}-")]
        for split in SPLITS
    }
    class_counts = {
        split: [
            sum(result.class_counts[label] for result in part)
            for label in range(len(source.classes))
        ]
        for split, part in by_split.items()
    }
    try:
        checks.check_rejections(rejections, totals.given, options, source.unit)
        checks.check_written(class_counts, source, options)
    except InputError:
        output.clear(writer)
        raise
    reasons = collections.Counter(one.reason.partition(":")[0] for one in rejections)
    # Such examples stay in the records: which of the labels is right, only a person can tell.
    found = {"count": totals.contradictions, "first": totals.pairs}
    contradictions = {"contradictions": found} if totals.contradictions else {}
    dataset = Dataset(
        uri=writer.output_uri,
        name=source.name,
        features=features(source),
        classes=source.classes,
        splits={
            split: Split(shards=[result.shard for result in part], class_counts=class_counts[split])
            for split, part in by_split.items()
        },
        rejected={
            "count": len(rejections),
            "reasons": dict(sorted(reasons.items())),
            "file": REJECTED_FILE_NAME,
        },
        creation={
            **made,
            "accepted": totals.given - len(rejections),
            **contradictions,
        },
    )
    output.write_manifest(dataset, rejections)
    return dataset
