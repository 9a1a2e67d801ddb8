"""create_tfrecords: write a source to TFRecord shards, rejected.jsonl and dataset.json.

A first pass lists and digests the source (split_plan.py); a second pass writes each shard as a
separate task (shards.py), on all cores if that pays off (process_pool.py). Or an engine does all of
it (beam_engine.py). A run that is killed at any point and started again writes only what is
missing, and produces the same bytes.
"""

import contextlib
import time
from collections.abc import Callable, Generator

from trainer.data.dataset_warnings import describe_rejections, list_warnings
from trainer.data.schema import IMAGES, Dataset
from trainer.data.sources import parse_source
from trainer.data.totals import Totals
from trainer.data.write import checks, manifest
from trainer.data.write.beam_engine import BeamEngine
from trainer.data.write.layout import Layout
from trainer.data.write.open_images import OpenImages
from trainer.data.write.open_source import OpenSource
from trainer.data.write.open_table import OpenTable, find_columns
from trainer.data.write.output import OutputFolder, ShardResult, locked
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.shards import ShardWriter
from trainer.data.write.store import RecordsStore, copy_shards
from trainer.effects import check_effects
from trainer.process_pool import Processes, available_cores
from trainer.progress_lines import ProgressLines
from vertex import formats

POOL_MIN_SECONDS = 1.0
"""Work that takes less time is done in this process: other processes need 0.3 s to start."""


def open_source(options: RecordOptions) -> OpenSource:
    """Open `options.source`; raise InputError as `parse_source` and `SourceKind.open` do."""
    kind, place = parse_source(options.source)
    if kind.contents == IMAGES:
        return OpenImages(kind.open(place, options), options)
    options = find_columns(kind, place, options)
    return OpenTable(kind.open(place, options), options)


def create_tfrecords(
    options: RecordOptions,
    output_uri: str,
    *,
    engine: BeamEngine | None = None,
    progress: Callable[[str], None] = print,
) -> Dataset:
    """Write the examples of `options.source` as a dataset, and return it.

    Args:
        options: what to read, how to split, and the format of examples in the records.
        output_uri: folder, local, /gcs/ or gs://; created if missing. An older dataset in it is
            replaced, other files are left alone.
        engine: engine that does the work; None: this process, and others if that pays off.
        progress: called with a line about once a second, and with one at the end.

    Raises:
        InputError: the source can't be used, too much of it is rejected, or the output can't
            be written. No file remains that a reader or a later run would take for valid.
        RuntimeError: a writing process was killed; run again.
    """
    check_effects(options)
    source = open_source(options)
    folder = OutputFolder(output_uri)
    checks.check_apart(source.location, output_uri)
    if engine:
        engine.check(source, output_uri)
    started = time.monotonic()
    with locked(output_uri, options.source) as check:
        if engine:
            dataset = engine.create(source, output_uri, check, progress)
        else:
            with Processes() as processes:
                dataset = _create(source, folder, progress, processes, check)
        folder.close()
    progress(_format_summary(dataset, time.monotonic() - started, source.unit))
    if contradictions := dataset.creation.get("contradictions"):
        pairs = "; ".join(" = ".join(pair) for pair in contradictions["first"])
        progress(
            f"warning: equal {source.unit} with different labels: "
            f"{formats.number_of(contradictions['count'], 'pairs')}, such as {pairs}"
        )
    for warning in list_warnings(dataset):
        progress(f"warning: {warning}")
    given = dataset.creation["given"]
    if rejections := describe_rejections(dataset.rejected, given, source.unit):
        progress(f"create_tfrecords: {rejections}")
    return dataset


def _create(
    source: OpenSource,
    folder: OutputFolder,
    progress: Callable[[str], None],
    processes: Processes,
    check: Callable[[], None],
) -> Dataset:
    """Create the dataset on this machine, starting processes if that pays off.

    `check` raises if another writer has taken the folder.
    """
    store = stored = None
    if source.options.records_store:
        conditions = manifest.describe_conditions(source)
        store = RecordsStore(source.options.records_store, conditions)
        stored = store.list_shards(folder.uri)
    listing = ProgressLines("create_tfrecords", source.unit, emit=progress)
    totals, rows = source.plan(listing, processes)
    writer, dataset = manifest.begin(source, totals, folder, rows)
    if dataset is None:
        layout = Layout(rows, totals, source, stored)
        folder.begin(layout.fingerprint(writer.creation["fingerprint"]))
        results = copy_shards(folder, layout.kept)
        if store:
            examples = formats.number_of(layout.examples, source.unit)
            progress(
                f"create_tfrecords: {len(layout.kept):,} shards reused, "
                f"{len(layout.tasks):,} to write with {examples}"
            )
        results += _write_shards(writer, totals, layout, progress, processes)
        check()
        dataset = manifest.finish(writer, totals, results)
        if store:
            identities = layout.compute_identities()
            store.save(folder.uri, [(result, identities[result.shard.file]) for result in results])
    return dataset


def _write_shards(
    writer: ShardWriter,
    totals: Totals,
    layout: Layout,
    progress: Callable[[str], None],
    processes: Processes,
) -> list[ShardResult]:
    """Write the layout's shards, in any order; stop early if too much is rejected."""
    unit = writer.source.unit
    lines = ProgressLines("create_tfrecords", unit, total=layout.examples, emit=progress)
    count = min(available_cores(), len(layout.tasks))
    written: Generator[ShardResult]
    if count <= 1 or (layout.seconds < POOL_MIN_SECONDS and not processes.count):
        written = (writer.write(task, lines.advance) for task in layout.tasks)
    else:
        processes.start(count)
        written = processes.run(writer.write, layout.tasks, lines.advance)
    results = []
    rejections = list(totals.rejections)
    with contextlib.closing(written):
        for result in written:
            results.append(result)
            rejections += result.rejections
            if result.rejections and checks.has_too_many(rejections, totals.items, writer.source):
                break
    return results


def _format_summary(dataset: Dataset, seconds: float, unit: str) -> str:
    splits = ", ".join(f"{name} {split.examples:,}" for name, split in dataset.splits.items())
    shards = sum(len(split.shards) for split in dataset.splits.values())
    size = sum(split.bytes for split in dataset.splits.values())
    given = dataset.creation["given"]
    return (
        f"create_tfrecords: {formats.number_of(given, unit)} in {formats.clock(seconds)}, "
        f"{given / max(seconds, 1e-3):,.0f} {unit}/s; records: {splits}; "
        f"rejected {dataset.rejected['count']:,}; {shards} shards, {size / 1e6:,.1f} MB"
    )
