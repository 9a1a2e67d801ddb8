"""Raise InputError for a source, a plan or a data set that can't be used."""

from collections.abc import Sequence
from pathlib import Path

from trainer.data import storage
from trainer.data.record_options import SPLITS, RecordOptions
from trainer.data.sources import Rejection, Source
from trainer.data.write.totals import ClassCounts
from trainer.data.write.writing_progress import format_count
from trainer.errors import InputError

MAX_NAMED = 10
"""Number of rejected examples that a message names."""


def check_apart(source_uri: str, output_uri: str) -> None:
    """Raise InputError if the output folder is inside the source or contains it."""
    if not source_uri:
        return
    uris = (source_uri, output_uri)
    first, second = (
        f"{uri.rstrip('/') if storage.is_remote(uri) else Path(uri).resolve()}/" for uri in uris
    )
    if first.startswith(second) or second.startswith(first):
        raise InputError(
            f"the output {output_uri} and the source {source_uri} overlap; write to another folder"
        )


def check_rejections(
    rejections: Sequence[Rejection], given: int, options: RecordOptions, unit: str
) -> None:
    """Raise InputError if more than `max_rejected_fraction` of a source is rejected.

    Tolerated rejections count neither as rejected nor as given. The message names the first of the
    other rejections.
    """
    rejected, judged = _split_rejections(rejections, given)
    allowed = options.max_rejected_fraction * judged
    if len(rejected) <= allowed:
        return
    named: dict[str, list[str]] = {}
    for rejection in sorted(rejected, key=lambda rejection: rejection.key)[:MAX_NAMED]:
        named.setdefault(rejection.reason, []).append(rejection.key)
    listed = "; ".join(f"{', '.join(keys)}: {reason}" for reason, keys in named.items())
    first = f"the first {MAX_NAMED}: " if len(rejected) > MAX_NAMED else ""
    raise InputError(
        f"source={options.source!r}: {len(rejected):,} of {format_count(judged, unit)} "
        f"({len(rejected) / judged:.1%}) can't be used, max_rejected_fraction="
        f"{options.max_rejected_fraction} allows {int(allowed):,}; fix or remove them, or "
        f"allow more; {first}{listed}"
    )


def has_too_many(rejections: Sequence[Rejection], given: int, options: RecordOptions) -> bool:
    """Return whether `check_rejections` is sure to fail, with enough examples for its message."""
    rejected, judged = _split_rejections(rejections, given)
    return len(rejected) >= MAX_NAMED and len(rejected) > options.max_rejected_fraction * judged


def _split_rejections(rejections: Sequence[Rejection], given: int) -> tuple[list[Rejection], int]:
    rejected = [rejection for rejection in rejections if not rejection.tolerated]
    return rejected, given - (len(rejections) - len(rejected))


def check_counts(counts: ClassCounts, source: Source, options: RecordOptions) -> None:
    """Raise InputError if a class or a split has no example; `counts` are examples or records."""
    for name in source.classes:
        if not any(counts[split, name] for split in SPLITS):
            raise InputError(
                f"source={options.source!r}: class {name!r} has no {source.unit} that can be "
                "used; add some or remove the class"
            )
    for split in ("train", "test"):
        if not any(counts[split, name] for name in source.classes):
            raise InputError(
                f"source={options.source!r}: none of its "
                f"{format_count(counts.total(), source.unit)} falls into {split} "
                f"(split_fractions={options.split_fractions}); give more "
                f"{source.unit}, or {split} a larger share"
            )
