"""Describe what a person should know of a dataset before trusting its figures, in sentences.

Everything follows from dataset.json, so that the step's log, the run's summary and the report say
the same.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from trainer.data.schema import ROWS, SPLITS, Dataset
from trainer.errors import escape_controls
from trainer.formats import listing, number_of

NAMED = 3
"""Number of classes, and of reasons of rejections, that a sentence names."""
MIN_POINTS = 0.02
"""Least difference between a split's share and its fraction that is described."""
MIN_STANDARD_ERRORS = 3.0
_CONSEQUENCES = {
    "train": ("it can't be learned", "they can't be learned"),
    "validation": (
        "the best epoch is chosen without it",
        "the best epoch is chosen without them",
    ),
    "test": (
        "nothing here says how well it is predicted",
        "nothing here says how well they are predicted",
    ),
}


def list_warnings(dataset: Dataset) -> list[str]:
    """Return sentences about classes that a split lacks, and about splits of unexpected sizes."""
    return [*_describe_absent_classes(dataset), *_describe_shares(dataset)]


def describe_rejections(dataset: Dataset) -> str:
    """Return how many items were rejected, by reason; empty if none were."""
    rejected, given = dataset.rejected, dataset.creation.get("given", 0)
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
        f"{rejected['count']:,} of {number_of(given, _unit(dataset))} were rejected "
        f"({rejected['count'] / given:.1%}): {', '.join(shown)}"
    )


def _unit(dataset: Dataset) -> str:
    return "rows" if dataset.contents == ROWS else "images"


def _describe_absent_classes(dataset: Dataset) -> Iterator[str]:
    unit = _unit(dataset).removesuffix("s")
    for split in reversed(SPLITS):
        counts = _count_classes(dataset, split)
        absent = [name for name, number in counts.items() if not number]
        if not absent or not dataset.splits[split].examples:
            continue
        more = f" and {len(absent) - NAMED:,} more" if len(absent) > NAMED else ""
        names = f"{'class' if len(absent) == 1 else 'classes'} "
        names += f"{listing(map(repr, absent[:NAMED]))}{more}"
        have = "has" if len(absent) == 1 else "have"
        consequence = _CONSEQUENCES[split][len(absent) > 1]
        which = "training" if split == "train" else split
        yield f"{names} {have} no {unit} in the {which} split: {consequence}"


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
    off = [
        abs(count / total - share)
        > max(MIN_POINTS, MIN_STANDARD_ERRORS * math.sqrt(share * (1 - share) / total))
        for count, share in zip(rows, expected, strict=True)
    ]
    if not any(off):
        return
    shares, wanted = (
        "/".join(f"{100 * share:.0f}" for share in shares) + "%"
        for shares in ([count / total for count in rows], expected)
    )
    copies = dataset.creation.get("copies", 0)
    why = f": {copies:,} of {total:,} rows are copies, and equal rows are in one split"
    if "group" in split_by:
        why = f": the groups of {split_by['group']!r} differ in size, and a group is in one split"
    elif not copies:
        why = ""
    yield f"train, validation and test have {shares} of the rows instead of {wanted}{why}"
