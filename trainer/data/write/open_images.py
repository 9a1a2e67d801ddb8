"""Images as a source of records.

A first pass lists and digests them (split_plan.py); their files are read again when their shards
are written.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from trainer.data import storage
from trainer.data.images.image_source import ImageSource
from trainer.data.images.pixels import RejectedError
from trainer.data.records import frame, serialize
from trainer.data.source import Example, Reference, Rejection
from trainer.data.totals import Totals
from trainer.data.write import checks
from trainer.data.write.open_source import OpenSource, Piece
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.spill import Spill
from trainer.data.write.split_plan import plan_splits
from trainer.data.write.written_labels import ClassIndices, TableLabels
from trainer.process_pool import Processes, cut
from trainer.progress_lines import ProgressLines
from vertex.errors import InputError

PIECE = 64
"""Number of files that are passed to a process or a thread at once."""


class OpenImages(OpenSource):
    """An `ImageSource`; its examples are planned and written one by one."""

    opened: ImageSource

    def __init__(self, opened: ImageSource, options: RecordOptions) -> None:
        super().__init__(opened, options)
        self.unit, self.features = opened.unit, opened.features
        if opened.label:
            self.labels = TableLabels(opened.label, options.source)
        else:
            opened.check_classes(options.source)
            self.labels = ClassIndices(opened.classes)

    def plan(self, lines: ProgressLines, processes: Processes) -> tuple[Totals, Spill]:
        listed = self._list_examples(lines, processes)
        totals, rows = plan_splits(listed, self.labels, self.split_fractions)
        self.conclude(totals)
        return totals, rows

    def conclude(self, totals: Totals) -> None:
        checks.check_any(totals, self)
        super().conclude(totals)

    @property
    def split_fractions(self) -> Sequence[float]:
        """Return the fractions of the splits into which examples without one are drawn."""
        # By split_by, each image has its split; a split without any stays empty.
        return (1.0, 0.0, 0.0) if self.options.split_by else self.options.split_fractions

    def estimate_cost(self, totals: Totals) -> tuple[float, float]:
        started = time.monotonic()
        sizes: list[int] = []
        sample = [example.label for example in totals.sample]
        labels, _ = self.labels.encode(pa.array(sample, self.labels.stored))
        for example, label in zip(totals.sample, labels.tolist(), strict=True):
            try:
                content = self.opened.fetch(example.reference)
                sizes += map(len, self._encode_records(example.reference.key, content, label, 0))
            except (RejectedError, OSError):  # Reported when it is written.
                continue
        seconds = (time.monotonic() - started) / max(1, len(totals.sample))
        return sum(sizes) / max(1, len(sizes)), seconds

    def make_pieces(self, rows: Iterable[pa.Table], variants: int) -> Iterator[Piece]:
        for row, content in storage.read_ahead(
            self._fetch, self._list_rows(rows), uri=self.location
        ):
            try:
                if isinstance(content, RejectedError):
                    raise content
                records = self._encode_records(row["key"], content, row["label"], variants)
            except RejectedError as error:
                yield Piece(b"", {}, [Rejection(row["key"], str(error))], 1)
            else:
                yield Piece(b"".join(records), {row["counted"]: len(records)}, [], 1)

    def _list_examples(
        self, lines: ProgressLines, processes: Processes
    ) -> Iterator[Example | Rejection]:
        """Yield what the source lists; read remote files in threads, local ones in `processes`."""

        def map_items(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
            if not storage.is_remote(self.location):
                return processes.map(function, items, size=PIECE, modules=[__name__])
            results = storage.read_ahead(
                lambda piece: list(map(function, piece)), cut(items, PIECE), uri=self.location
            )
            return itertools.chain.from_iterable(results)

        for item in self.opened.examples(map_items):
            lines.advance(1)
            yield item

    def _list_rows(self, rows: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
        """Yield planned rows with their labels as in the records."""
        for part in rows:
            labels, indices = self.labels.encode(part["label"].combine_chunks())
            pairs = zip(labels.tolist(), indices.tolist(), strict=True)
            for row, (label, counted) in zip(part.to_pylist(), pairs, strict=True):
                yield {**row, "label": label, "counted": counted}

    def _fetch(self, row: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return a row with what the source fetched for it, or the RejectedError that it raised.

        Raise InputError if that is gone, or has changed since it was listed: then its split may
        have changed, too.
        """
        key, remedy = row["key"], "leave the source alone while it is read"
        try:
            content = self.opened.fetch(Reference(key, row["position"]))
        except RejectedError as error:
            return row, error
        except OSError as error:
            raise InputError(
                f"{key} was listed but can no longer be read ({error.strerror or error}); {remedy}"
            ) from None
        if self.opened.digest(content) != row["digest"]:
            raise InputError(
                f"{key or self.location} has changed since it was listed; {remedy}, and run again"
            )
        return row, content

    def _encode_records(self, key: str, content: Any, label: Any, variants: int) -> list[bytes]:
        """Return the records of an example and its augmented copies, in the file's format."""
        records = []
        for variant, values in enumerate(self.opened.encode(content, key, variants)):
            name = f"{key}#{variant}" if variant else key
            records.append(frame(serialize({"key": name.encode(), **values, "label": label})))
        return records
