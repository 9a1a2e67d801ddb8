"""Raise InputError for a source, a plan or a dataset that can't be used."""

from collections.abc import Sequence
from pathlib import Path

from trainer.data import storage
from trainer.data.schema import SPLITS
from trainer.data.source import Rejection
from trainer.data.tables.number_finder import suggest_forms
from trainer.data.totals import ClassCounts, Totals
from trainer.data.write.open_source import OpenSource
from vertex import formats
from vertex.errors import InputError

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


def check_rejections(rejections: Sequence[Rejection], item_count: int, source: OpenSource) -> None:
    """Raise InputError if more than `max_rejected_fraction` of a source is rejected.

    Tolerated rejections are not counted. The message names the first of the other rejections.
    """
    rejected, counted = _split_rejections(rejections, item_count)
    options = source.options
    allowed = options.max_rejected_fraction * counted
    if len(rejected) <= allowed:
        return
    given = formats.number_of(counted, source.unit)
    raise InputError(
        f"source={options.source!r}: {len(rejected):,} of {given} "
        f"({len(rejected) / counted:.1%}) can't be used, but max_rejected_fraction="
        f"{options.max_rejected_fraction} allows only {int(allowed):,}; fix or remove them, or "
        f"allow more; {_name_first(rejected)}"
    )


def check_any(totals: Totals, source: OpenSource) -> None:
    """Raise InputError, with the first reasons, if a source has no usable example."""
    if totals.counts.total():
        return
    rejections = totals.rejections
    rejected, _ = _split_rejections(rejections, len(rejections))
    named = f"; {_name_first(rejected)}" if rejected else ""
    raise InputError(f"source={source.options.source!r} has no usable {source.unit}{named}")


def _name_first(rejected: Sequence[Rejection]) -> str:
    keys_by_reason: dict[str, list[str]] = {}
    for rejection in sorted(rejected, key=lambda rejection: rejection.key)[:MAX_NAMED]:
        keys_by_reason.setdefault(rejection.reason, []).append(rejection.key)
    details = "; ".join(f"{', '.join(keys)}: {reason}" for reason, keys in keys_by_reason.items())
    prefix = f"the first {MAX_NAMED}: " if len(rejected) > MAX_NAMED else ""
    return f"{prefix}{details}{suggest_forms(keys_by_reason)}"


def has_too_many(rejections: Sequence[Rejection], item_count: int, source: OpenSource) -> bool:
    """Return whether `check_rejections` is sure to fail, and has enough examples to name."""
    rejected, counted = _split_rejections(rejections, item_count)
    fraction = source.options.max_rejected_fraction
    return len(rejected) >= MAX_NAMED and len(rejected) > fraction * counted


def _split_rejections(
    rejections: Sequence[Rejection], item_count: int
) -> tuple[list[Rejection], int]:
    rejected = [rejection for rejection in rejections if not rejection.tolerated]
    return rejected, item_count - (len(rejections) - len(rejected))


def check_counts(counts: ClassCounts, source: OpenSource) -> None:
    """Raise InputError if a class or a split has no example; `counts` are examples or records."""
    options, place = source.options, f"source={source.options.source!r}"
    for name in source.labels.counted:
        if not any(counts[split, name] for split in SPLITS):
            raise InputError(
                f"{place}: class {name!r} has no usable {source.unit}; add some or remove the class"
            )
    for split in ("train", "test"):
        if not any(counts[split, name] for name in source.labels.counted):
            none = f"{place}: none of its {formats.number_of(counts.total(), source.unit)}"
            if column := options.split_by.get("column"):
                raise InputError(
                    f"{none} has {split} in {column!r}, the column of split_by; add some"
                )
            raise InputError(
                f"{none} falls into {split} (split_fractions={options.split_fractions}); add "
                f"{source.unit}, or give {split} a larger fraction"
            )
