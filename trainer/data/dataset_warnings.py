"""Describe what a person should know of a dataset before trusting its figures, in sentences.

Everything follows from dataset.json, so that the step's log, the run's summary and the report say
the same.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from trainer.data.schema import ROWS, SPLITS, Dataset
from vertex.errors import escape_controls
from vertex.formats import listing, number_of

NAMED = 3
"""Number of classes, and of reasons of rejections, that a sentence names."""
MIN_POINTS = 0.02
"""Least difference between a split's share and its fraction that is described."""
MIN_STANDARD_ERRORS = 3.0


def list_warnings(dataset: Dataset) -> list[str]:
    """Return sentences about classes that a split lacks, and about splits of unexpected sizes."""
    by_split = {
        split: _count_classes(dataset, split) for split in SPLITS if dataset.splits[split].examples
    }
    unit = "rows" if dataset.contents == ROWS else "images"
    return [*describe_absent_classes(by_split, unit), *_describe_shares(dataset)]


def describe_rejections(rejected: Mapping[str, Any], given: int, unit: str) -> str:
    """Return how many of the `given` items were rejected, by reason; empty if none were.

    `rejected` is that of dataset.json, and `unit` the plural noun for items.
    """
    if not rejected.get("count") or not given:
        return ""
    reasons = sorted(rejected["reasons"].items(), key=lambda pair: -pair[1])
    first = rejected.get("first", {})
    shown = [
        f"{number:,} {reason}" + (f" (first: {first[reason]})" if reason in first else "")
        for reason, number in reasons[:NAMED]
    ]
    more = sum(number for _, number in reasons[NAMED:])
    shown += [f"{more:,} for other reasons"] if more else []
    return escape_controls(
        f"{rejected['count']:,} of {number_of(given, unit)} were rejected "
        f"({rejected['count'] / given:.1%}): {', '.join(shown)}"
    )


def describe_absent_classes(by_split: Mapping[str, Mapping[str, int]], unit: str) -> Iterator[str]:
    """Describe the classes without any example in a split, given the counts of those with some."""
    for split in reversed(SPLITS):
        absent = [name for name, number in by_split.get(split, {}).items() if not number]
        if not absent:
            continue
        one = len(absent) == 1
        more = f" and {len(absent) - NAMED:,} more" if len(absent) > NAMED else ""
        consequence = {
            "train": f"{'it' if one else 'they'} can't be learned",
            "validation": f"the best epoch is chosen without {'it' if one else 'them'}",
            "test": f"{'it is' if one else 'they are'} not evaluated",
        }
        yield (
            f"{'class' if one else 'classes'} {listing(map(repr, absent[:NAMED]))}{more} "
            f"{'has' if one else 'have'} no {unit.removesuffix('s')} in the "
            f"{'training' if split == 'train' else split} split: {consequence[split]}"
        )


def _count_classes(dataset: Dataset, split: str) -> Mapping[str, int]:
    """Return the examples of each class or label in a split; empty if the label is a number."""
    counts = dataset.splits[split].class_counts
    if len(counts) == len(dataset.classes):
        return dict(zip(dataset.classes, counts, strict=True))
    by_split: dict[str, Any] = dataset.feature("label").statistics.get("by_split", {})
    return by_split.get(split, {})


def _describe_shares(dataset: Dataset) -> Iterator[str]:
    """Describe the splits of a table if a share is off its fraction by more than chance."""
    options = dataset.creation.get("options", {})
    fractions, split_by = options.get("split_fractions", []), options.get("split_by", {})
    rows = [dataset.splits[split].examples for split in SPLITS]
    total = sum(rows)
    is_drawn = not split_by or "group" in split_by
    if dataset.contents != ROWS or not is_drawn or len(fractions) != len(rows) or not total:
        return
    expected = [fraction / sum(fractions) for fraction in fractions]
    shares = [count / total for count in rows]
    if not any(
        abs(share - fraction)
        > max(MIN_POINTS, MIN_STANDARD_ERRORS * math.sqrt(fraction * (1 - fraction) / total))
        for share, fraction in zip(shares, expected, strict=True)
    ):
        return
    why = ""
    if "group" in split_by:
        why = f": the groups of {split_by['group']!r} differ in size, and each is in one split"
    elif copies := dataset.creation.get("copies", 0):
        why = f": {copies:,} of {total:,} rows are duplicates, which stay in one split"
    shown, wanted = (
        "/".join(f"{100 * share:.0f}" for share in part) + "%" for part in (shares, expected)
    )
    yield f"train, validation and test have {shown} of the rows instead of {wanted}{why}"
