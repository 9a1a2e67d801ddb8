"""create_tfrecords: a source to TFRecord shards, rejected.jsonl and dataset.json.

The source is read twice. The first pass lists and digests it (plan.py); the second writes
each shard as a task of its own (shards.py), on all cores where that pays (processes.py).
Killed anywhere and run again, it writes what is missing and ends in the same bytes.
"""

import collections
import contextlib
import dataclasses
import importlib.metadata
from collections.abc import Callable, Generator
from typing import Any, cast

from trainer.data.record_options import SPLITS, RecordOptions
from trainer.data.schema import REJECTED_FILE_NAME, Dataset, Feature, Split
from trainer.data.sources import Source, open_source
from trainer.data.write import checks, output
from trainer.data.write.engines import Engine
from trainer.data.write.layout import PARALLEL_SHARDS, Layout
from trainer.data.write.listing import listed
from trainer.data.write.process_pool import Spares, available_cores, write_in_processes
from trainer.data.write.shards import ShardResult, ShardWriter
from trainer.data.write.split_plan import Plan
from trainer.data.write.store import RecordsStore, keep
from trainer.data.write.table_plan import RowPlan, TableSource
from trainer.data.write.writing_progress import ProgressLines, counted, duration
from trainer.errors import InputError

LAYOUT_VERSION = 4
"""Part of the fingerprint: raised when equal options come to give other bytes."""

_PACKAGES = ("tensorflow", "numpy", "pillow", "opencv-python-headless")
"""Whose versions decide what lies in the records."""

NAMED_PAIRS = 10
"""Equal examples under two labels that dataset.json names."""

POOL_PAYS_SECONDS = 1.0
"""Work of less than this is done in this process: others cost 0.3 s to start."""


def create_tfrecords(
    options: RecordOptions,
    output_uri: str,
    *,
    engine: Engine | None = None,
    progress: Callable[[str], None] = print,
) -> Dataset:
    """Writes the examples of `options.source` as a data set.

    Args:
        options: what to read, how to split, and how examples lie in the records.
        output_uri: folder, local, /gcs/ or gs://; made if it isn't there. An older data set
            in it is replaced, other files are left alone.
        engine: writes the shards; None: this process, and others where that pays.
        progress: takes a line about every second, and one at the end.

    Returns:
        The data set, as `trainer.data.schema.load(output_uri)` gives it.

    Raises:
        InputError: the source can't be used, too much of it is rejected, or the output can't
            be written. Nothing stays that a reader or a later run would take for good.
        RuntimeError: a writing process was killed; run again.
    """
    checks.check_options(options)
    source = open_source(options)
    checks.check_apart(source.location, output_uri)
    if engine:
        engine.check(source, output_uri)
    with output.locked(output_uri, options.source) as check, Spares() as spares:
        return _create(source, options, output_uri, engine, progress, spares, check)


def _create(
    source: Source,
    options: RecordOptions,
    output_uri: str,
    engine: Engine | None,
    progress: Callable[[str], None],
    spares: Spares,
    check: Callable[[], None],
) -> Dataset:
    """create_tfrecords, with processes that may be started on the way.

    Args:
        check: raises where another writer has taken the folder.
    """
    output.open_folder(output_uri)
    store = None
    if options.records_store:
        store = RecordsStore(options.records_store, _conditions(source, options))
    listing = ProgressLines("create_tfrecords", source.unit, emit=progress)
    plan: Plan | RowPlan
    if source.is_spilled:
        plan = cast(TableSource, source).plan(listing, spares)
    else:
        # An engine has its own machines, and beside stored records mostly little is to be written.
        early = 0 if engine or store else min(available_cores(), PARALLEL_SHARDS)
        examples = listed(source, listing, spares, early, POOL_PAYS_SECONDS)
        plan = Plan(examples, options.split_fractions)
    checks.check_rejections(plan.rejections, plan.given, options, source.unit)
    checks.check_plan(plan, source, options)

    creation = _creation(source, plan, options)
    writer = ShardWriter(source, output_uri, creation["fingerprint"])
    dataset = output.finished(writer)
    if dataset is None:
        layout = Layout(plan, source, options, store.shards(output_uri) if store else ())
        writer = dataclasses.replace(writer, fingerprint=layout.fingerprint(writer.fingerprint))
        output.make_room(writer)
        results = keep(writer, layout.kept)
        if store:
            progress(
                f"create_tfrecords: {len(layout.kept):,} shards taken over, {layout.shards:,} to "
                f"write with {counted(layout.examples, source.unit)}"
            )
        results += _write_shards(writer, plan, layout, options, engine, progress, spares)
        check()
        dataset = _finish(writer, plan, options, results, creation)
        if store:
            identities = layout.identities()
            store.save(output_uri, [(one, identities[one.shard.file]) for one in results])
    output.close_folder(output_uri)
    progress(_summary(dataset, listing.seconds, source.unit))
    if found := dataset.creation.get("contradictions"):
        named = "; ".join(" = ".join(pair) for pair in found["first"])
        progress(f"warning: equal {source.unit} under two labels, {found['count']:,}: {named}")
    return dataset


def _features(source: Source) -> list[Feature]:
    return [
        *source.features,
        Feature(name="label", kind="label", dtype="int64"),
        Feature(name="key", kind="key", dtype="string"),
    ]


def _conditions(source: Source, options: RecordOptions) -> list[Any]:
    """Return what decides, beside an example, on its record; cost nothing before the listing."""
    return [*_described(source), dataclasses.asdict(options), _versions()]


def _creation(source: Source, plan: Plan | RowPlan, options: RecordOptions) -> dict[str, Any]:
    """Return how the records are made; the fingerprint covers this, the schema and the plan."""
    creation: dict[str, Any] = {
        "source": options.source,
        "given": plan.given,
        **source.details,
        "options": dataclasses.asdict(options),
        "versions": _versions(),
    }
    return {**creation, "fingerprint": plan.fingerprint([*_described(source), creation])}


def _described(source: Source) -> list[Any]:
    features = [dataclasses.asdict(feature) for feature in _features(source)]
    return [LAYOUT_VERSION, source.name, source.classes, features]


def _versions() -> dict[str, str]:
    return {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str:
    """Return the installed package's version; tensorflow may have come as tensorflow-cpu."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return importlib.metadata.version(f"{package}-cpu")


def _write_shards(
    writer: ShardWriter,
    plan: Plan | RowPlan,
    layout: Layout,
    options: RecordOptions,
    engine: Engine | None,
    progress: Callable[[str], None],
    spares: Spares,
) -> list[ShardResult]:
    """Writes the layout's shards, in any order; stops early where too much is rejected."""
    unit = writer.source.unit
    lines = ProgressLines("create_tfrecords", unit, total=layout.examples, emit=progress)
    count = min(available_cores(), layout.shards)
    written: Generator[ShardResult]
    if engine and layout.shards:
        written = engine.write(writer, layout.tasks(), lines.advance)
    elif count <= 1 or (layout.seconds < POOL_PAYS_SECONDS and not spares.started):
        written = (writer.write(task, lines.advance) for task in layout.tasks())
    else:
        written = write_in_processes(writer, layout.tasks(), count, lines.advance, spares)
    results = []
    rejections = list(plan.rejections)
    with contextlib.closing(written):
        for result in written:
            results.append(result)
            rejections += result.rejections
            if result.rejections and checks.is_hopeless(rejections, plan.given, options):
                break
    return results


def _finish(
    writer: ShardWriter,
    plan: Plan | RowPlan,
    options: RecordOptions,
    results: list[ShardResult],
    creation: dict[str, Any],
) -> Dataset:
    """Judges what was written, and makes a data set of it or clears it away."""
    source = writer.source
    results = sorted(results, key=lambda result: result.shard.file)
    rejections = plan.rejections + [one for result in results for one in result.rejections]
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
        checks.check_rejections(rejections, plan.given, options, source.unit)
        checks.check_written(class_counts, source, options)
    except InputError:
        output.clear(writer)
        raise
    reasons = collections.Counter(one.reason.partition(":")[0] for one in rejections)
    dataset = Dataset(
        uri=writer.output_uri,
        name=source.name,
        features=_features(source),
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
            **creation,
            "accepted": plan.given - len(rejections),
            **_contradictions(plan, source.classes),
        },
    )
    output.write_manifest(dataset, rejections)
    return dataset


def _contradictions(plan: Plan | RowPlan, classes: list[str]) -> dict[str, Any]:
    """Name equal content under two labels, as {"<key> (<class>)": ...} pairs; {} if there is none.

    Such examples stay in the records: which of the labels is right, only a person can tell.
    """
    if isinstance(plan, RowPlan) or not plan.contradictions:
        return {}
    pairs = [
        [f"{one.reference.key} ({classes[one.label]})" for one in pair]
        for pair in plan.contradictions
    ]
    return {"contradictions": {"count": len(pairs), "first": sorted(pairs)[:NAMED_PAIRS]}}


def _summary(dataset: Dataset, seconds: float, unit: str) -> str:
    splits = ", ".join(f"{name} {split.examples:,}" for name, split in dataset.splits.items())
    shards = sum(len(split.shards) for split in dataset.splits.values())
    size = sum(split.bytes for split in dataset.splits.values())
    given = dataset.creation["given"]
    return (
        f"create_tfrecords: {counted(given, unit)} in {duration(seconds)}, "
        f"{given / max(seconds, 1e-3):,.0f} {unit}/s; records: {splits}; "
        f"rejected {dataset.rejected['count']:,}; {shards} shards, {size / 1e6:,.1f} MB"
    )
