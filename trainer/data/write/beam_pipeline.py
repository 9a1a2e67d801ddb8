"""The Apache Beam pipeline that creates a dataset; each pass over the source is a transform.

    images   list -> digest -> group equal content -> assign splits   \\
                                                                        rows of a shard -> write
    tables   cut into blocks -> parse, encode                         /
    totals   merged on the way -> number of shards, fingerprint -> dataset.json

The code that determines the bytes is the same as on one machine. The process that starts the
pipeline keeps no examples.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa

from trainer.data import storage
from trainer.data.digests import digest_halves, shard_numbers
from trainer.data.schema import ROWS, SPLITS
from trainer.data.source import Example, Rejection
from trainer.data.storage import join
from trainer.data.totals import Totals
from trainer.data.write import manifest
from trainer.data.write.layout import shard_counts, variant_count
from trainer.data.write.output import OutputFolder, ShardResult
from trainer.data.write.shards import ShardTask, ShardWriter
from trainer.data.write.spill import sort_rows
from trainer.data.write.split_plan import assign_splits, to_rows
from trainer.process_pool import cut
from vertex.errors import InputError

CHUNK = 64
"""Number of files that are passed to a worker at once."""

ERROR = "error"
"""File in a job's folder that describes the user's mistake that ended the job."""


class ShardingPlan(NamedTuple):
    """The plan that every worker receives when the totals are known."""

    writer: ShardWriter  # with its fingerprint and the source's classes
    counts: dict[str, int]  # shards of each split; empty: an earlier run finished the dataset


@contextlib.contextmanager
def _record_mistakes(folder: str) -> Iterator[None]:
    """Write a user's mistake, which no retry fixes, to a file where the launcher finds it."""
    try:
        yield
    except InputError as error:
        storage.make_folder(folder)  # It is missing if all was removed after too many rejections.
        storage.write_atomically(join(folder, ERROR), str(error).encode(), shared=True)
        raise


@dataclasses.dataclass(frozen=True)
class RecordsPipeline:
    """The transforms from a source to its dataset."""

    source: Any  # an OpenSource
    output_uri: str
    folder: str  # URI of the job's own files
    check: Callable[[], None]  # raises an error if another writer has taken `output_uri`

    def begin(self, runner: Any, **options: Any) -> Any:
        """Run all transforms; return Beam's result."""
        # No flags: the command line is not Beam's. No main session: the code is in the image.
        pipeline_options = beam.options.pipeline_options.PipelineOptions(
            flags=[], save_main_session=False, **options
        )
        pipeline = beam.Pipeline(runner=runner, options=pipeline_options)
        self._add_to(pipeline)
        return pipeline.run()

    def _add_to(self, pipeline: Any) -> None:
        add = self._add_table if self.source.opened.contents == ROWS else self._add_images
        rows, totals = add(pipeline)
        totals = totals | "Totals" >> beam.CombineGlobally(self._merge)
        plans = totals | "ShardingPlan" >> self._make_step(self._plan)
        plan = beam.pvalue.AsSingleton(plans)
        files = plans | "Files" >> self._make_step(self._list_shards)
        rows_by_shard = rows | "Place" >> self._make_step(self._group_by_shard, plan)
        results = (
            (files, rows_by_shard)
            | "Shards" >> beam.Flatten()
            | "Group shards" >> beam.GroupByKey()
            | "Write" >> self._make_step(self._write_shard, plan)
        )
        every = beam.pvalue.AsIter(results)
        _ = plans | "Finish" >> self._make_step(
            self._finish, beam.pvalue.AsSingleton(totals), every
        )

    def _merge(self, several: Iterable[Any]) -> Any:
        # Not typed as Totals, because Beam would split a type with known fields into its fields.
        merged = Totals()
        with _record_mistakes(self.folder):
            for totals in several:
                merged.merge(totals)
                self.source.labels.check_part(merged)
        return merged

    def _make_step(self, function: Callable[..., Iterable[Any]], *side_inputs: Any) -> Any:
        """Return a transform that yields what a function yields for an element and side inputs."""

        def run_step(element: Any, *side_inputs: Any) -> Iterator[Any]:
            with _record_mistakes(self.folder):
                yield from function(element, *side_inputs)

        return beam.FlatMap(run_step, *side_inputs)

    def _add_images(self, pipeline: Any) -> tuple[Any, Any]:
        listed = (
            pipeline
            | "Source" >> beam.Create([None])
            | "List" >> self._make_step(self._list_chunks)
            | "Spread" >> beam.Reshuffle()
            | "Digest" >> self._make_step(self._digest_chunk)
        )
        examples = listed | "Examples" >> beam.Filter(lambda item: isinstance(item, Example))
        rejections = (
            listed
            | "Rejections" >> beam.Filter(lambda item: isinstance(item, Rejection))
            | "Rejected" >> beam.Map(lambda rejection: Totals(rejections=[rejection]))
        )
        splits = examples | "Splits" >> beam.Map(lambda example: example.split) | beam.Distinct()
        judged = (
            examples
            | "By content" >> beam.Map(lambda example: (example.digest[:2], example))
            | "Equal content" >> beam.GroupByKey()
            | "Judge" >> self._make_step(self._assign_splits, beam.pvalue.AsIter(splits))
        )
        rows = judged | "Kept" >> beam.Map(lambda pair: pair[0])
        totals = judged | "Found" >> beam.Map(lambda pair: pair[1])
        return rows, (totals, rejections) | "All totals" >> beam.Flatten()

    def _list_chunks(self, _: None) -> Iterator[list[Any]]:
        """Yield chunks of items to digest; of examples, if the source does not use `mapped`."""
        return cut(self.source.opened.examples(lambda function, items: items), CHUNK)

    def _digest_chunk(self, chunk: list[Any]) -> Iterable[Example | Rejection]:
        if all(isinstance(item, Example | Rejection) for item in chunk):
            return chunk
        return self.source.opened.examples(
            lambda function, _: storage.read_ahead(function, chunk, uri=self.source.location)
        )

    def _assign_splits(
        self, group: tuple[bytes, Iterable[Example]], splits: Iterable[str]
    ) -> Iterator[tuple[pa.RecordBatch, Totals]]:
        """Yield the rows that are kept of a group of digests, and the group's totals."""
        rows = pa.Table.from_batches([to_rows(group[1], self.source.labels.stored)])
        present = [SPLITS.index(split) for split in set(splits) if split]
        yield assign_splits(rows, present, self.source.labels, self.source.split_fractions)

    def _add_table(self, pipeline: Any) -> tuple[Any, Any]:
        blocks = (
            pipeline
            | "Source" >> beam.Create(range(len(self.source.opened.names)))
            | "Spread files" >> beam.Reshuffle()
            | "Read" >> self._make_step(self.source.opened.blocks)
            | "Spread" >> beam.Reshuffle()
        )
        starts = None
        if self.source.time_column:
            samples = blocks | "Scan" >> self._make_step(lambda block: [self.source.scan(block)])
            times = samples | "Times" >> beam.CombineGlobally(self.source.merge_samples)
            found = times | "Starts" >> self._make_step(
                lambda sample: [self.source.find_starts(sample)]
            )
            starts = beam.pvalue.AsSingleton(found)
        parsed = blocks | "Parse" >> self._make_step(
            lambda block, starts: [self.source.parse(block, starts)], starts
        )
        rows = parsed | "Rows" >> beam.Map(lambda pair: pair[0])
        return rows, parsed | "Counted" >> beam.Map(lambda pair: pair[1])

    def _plan(self, totals: Totals) -> Iterator[ShardingPlan]:
        """Yield the plan and remove stale files; raise InputError if the data can't be used."""
        self.source.conclude(totals)
        writer, dataset = manifest.begin(self.source, totals, OutputFolder(self.output_uri))
        if dataset:
            yield ShardingPlan(writer, {})
        else:
            writer.folder.begin(writer.creation["fingerprint"])
            mean, _ = self.source.estimate_cost(totals)
            yield ShardingPlan(writer, shard_counts(totals, mean, self.source.options))

    def _list_shards(self, plan: ShardingPlan) -> Iterator[tuple[tuple[str, int], Any]]:
        """Yield every shard, even an empty one."""
        for split, count in plan.counts.items():
            for number in range(count):
                yield (split, number), None

    def _group_by_shard(
        self, rows: pa.RecordBatch, plan: ShardingPlan
    ) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
        if not plan.counts:
            return
        halves, splits = digest_halves(pa.chunked_array([rows["digest"]])), rows["split"].to_numpy()
        for rank, split in enumerate(SPLITS):
            indices = np.flatnonzero(splits == rank)
            numbers = shard_numbers(halves[indices, 0], max(1, plan.counts[split]))
            for number in np.unique(numbers).tolist():
                yield (split, number), rows.take(pa.array(indices[numbers == number]))

    def _write_shard(
        self, shard: tuple[tuple[str, int], Iterable[pa.RecordBatch | None]], plan: ShardingPlan
    ) -> Iterator[ShardResult]:
        """Write a shard, unless an earlier run has written it."""
        (split, number), batches = shard
        non_empty = [batch for batch in batches if batch is not None]
        rows = [sort_rows(pa.Table.from_batches(non_empty))] if non_empty else []
        task = ShardTask(
            split, number, plan.counts[split], variant_count(split, self.source.options), rows
        )
        yield plan.writer.write(task, lambda _: None)

    def _finish(
        self, plan: ShardingPlan, totals: Totals, results: Iterable[ShardResult]
    ) -> Iterable[None]:
        """Write rejected.jsonl and dataset.json."""
        if plan.counts:
            self.check()
            self.source.conclude(totals)
            writer = dataclasses.replace(plan.writer, source=self.source)
            manifest.finish(writer, totals, list(results))
        return ()
