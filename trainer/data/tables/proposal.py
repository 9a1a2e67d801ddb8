"""Propose how to learn a column of a table from its other columns.

    proposal = propose(opened, "source='csv:homes.csv'", "price")
    proposal.label, proposal.columns     # as a recipe has them
    proposal.left_out                    # {"id": "different in each row"}

The first rows of the table decide, up to `SAMPLE_ROWS`, without those that a run tests on. A
proposal is a start, which its reader can correct; `described` says what is doubtful about it.
"""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from trainer.data.tables.cells import SHOWN
from trainer.data.tables.columns import clean_text
from trainer.data.tables.form_finder import are_lists, are_sentences, tell_words
from trainer.data.tables.label_proposal import FEW_CLASSES, is_whole_numbers, propose_label
from trainer.data.tables.table_sample import (
    EXAMPLES,
    MOST_INDICATORS,
    MOST_VALUES,
    TableSample,
    Values,
    reader_of,
    show_readings,
    tell_filler,
    tell_form,
)
from vertex.errors import InputError
from vertex.formats import suggest

MOST_QUANTILES = 64
_KEY = re.compile(r"(^|_|(?<=[a-z]))(id|key|uuid|guid|index)$", re.IGNORECASE)
_LIKE_A_KEY = "differs from row to row, like a key"
_LARGE = 1e8
"""Larger whole numbers that all differ are phone numbers and the like."""
_EXACT = 2**24
"""The largest whole number up to which a float32 has each."""
_CODE = re.compile(r"code|zip|type|class|(^|_)(id|no|nr)$", re.IGNORECASE)
"""Names of columns whose whole numbers may be names."""
_WORDS = 6
"""Words of texts that may come back, on average."""
_LONG = 10
"""Characters that texts without spaces have on average."""
_SKEWED = 1.5
"""Skewness above which the logarithm is learned, if its skewness is lower."""
_DISGUISED = 0.99
"""Share of a label's variation from which a column that explains it alone is the answer."""
_BUCKETS = 256


@dataclasses.dataclass
class Described:
    """The proposal for a column, with notes for the person who reviews it."""

    name: str
    column: dict[str, Any]  # as in a recipe; empty if the column is left out
    reason: str = ""  # why it is left out
    examples: list[str] = dataclasses.field(default_factory=list)  # values as they are read
    notes: list[str] = dataclasses.field(default_factory=list)  # what is doubtful
    # Other entries for the column, one of which may be right instead.
    alternatives: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    rows: int = 0
    distinct: int = 0
    missing: int = 0  # rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
    """Values that a recipe sets for the columns of a table."""

    rows: int  # of the sample, without those of the test split
    is_whole: bool  # whether the sample is the whole table
    label: dict[str, Any]
    target: Described  # the label
    described: list[Described]  # all other columns, in the order of the table
    unlabeled: float  # share of rows without a label, which are rejected
    longest: tuple[int, int]  # the first line of the row with most lines, and their number

    @property
    def columns(self) -> list[dict[str, Any]]:
        return [one.column for one in self.described if one.column]

    @property
    def left_out(self) -> dict[str, str]:
        """Return the columns that are not used, with the reason."""
        return {one.name: one.reason for one in self.described if not one.column}


def propose(
    opened: Any,
    place: str,
    label: str,
    hidden: Collection[str] = (),
    entries: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Proposal:
    """Return columns for a label; raise InputError for a table or a label that can't be learned.

    Args:
        opened: a `TableKind`.
        place: what was opened, for messages.
        hidden: names of columns that must not be inputs.
        entries: what a person says of some columns, as in a recipe, by name.
    """
    sample = TableSample(opened, label)
    sample.check(place)
    values = sample.read_values(entries)
    for name in entries:
        if name not in values:
            raise InputError(f"{place} has no column {name!r}{suggest(name, values)}")
    own = values.pop(label)
    described_label, target, notes = propose_label(f"{place}: label column {label!r}", own)
    has_label = ~own.is_missing
    described = []
    for name, column in values.items():
        if name in hidden:
            continue
        one = _describe_column(column)
        if one.column and _explain(column, target, has_label) > _DISGUISED:
            one.column = {}
            one.reason = f"predicts {label} almost alone: is it known when predicting?"
        described.append(one)
    described += [Described(name, {}, reason) for name, reason in sample.unreadable.items()]
    if not any(one.column for one in described):
        reasons = "; ".join(f"{one.name} {one.reason}" for one in described)
        raise InputError(f"{place} has no column that could predict {label!r}: {reasons}")
    is_set = described_label.get("type") == "multilabel"
    return Proposal(
        rows=own.rows,
        is_whole=sample.is_whole,
        label=described_label,
        target=_show(own, Described(label, described_label, notes=notes)),
        described=described,
        unlabeled=0.0 if is_set else float(own.is_missing.mean()),
        longest=sample.longest,
    )


def _describe_column(values: Values) -> Described:
    """Return a column of a recipe, or the reason to leave it out."""
    described = Described(values.name, {})
    column, described.reason = _choose_type(values, described)
    if not described.reason:
        if missing := column.pop("missing", values.markers):  # Last, as it is long.
            column["missing"] = missing
        described.column = {"name": values.name, **column}
    return _show(values, described)


def _choose_type(values: Values, described: Described) -> tuple[dict[str, Any], str]:
    """Return the type and settings of a column, or the reason to leave it out."""

    def numeric(settings: dict[str, Any]) -> dict[str, Any]:
        return {"name": values.name, "type": "numeric", **settings}

    present, names, found, dates = values.present, values.names, values.found, values.dates
    if len(present) < 0.02 * values.rows:
        return {}, "is almost always missing"
    if len(names) < 2 and len(present) == values.rows:
        return {}, f"is always {names[0]!r}"
    repeated = len(names) / len(present)
    if values.entry.get("type") == "date" and not dates:
        raise InputError(f"column {values.name!r} has no dates, such as {names[0][:SHOWN]!r}")
    if "type" in values.entry:
        return dict(values.entry), ""
    if dates and dates.readings:
        described.alternatives = [
            {"name": values.name, "type": "date", "quantiles": 16, **reading}
            for reading in dates.readings
        ]
        return {}, show_readings(values.given, described.alternatives)
    if dates:
        described.notes += dates.notes
        if values.numbers is not None:
            assert found
            described.alternatives = [numeric(found.settings)]
        return {"type": "date", "quantiles": 16, **dates.settings}, ""
    if found and found.readings:
        described.alternatives = list(map(numeric, found.readings))
        return {}, show_readings(values.given, described.alternatives)
    if found:
        described.notes += found.notes
        described.alternatives = list(map(numeric, found.alternatives))
    if values.numbers is not None:
        assert found
        return _describe_numbers(values, values.numbers, repeated, found.settings, described)
    if found and found.fits and not values.is_padded:
        described.notes = ["read as names: few distinct values, and words are frequent"]
        described.alternatives = [numeric(found.settings)]
    if values.is_padded:
        described.notes.append("read as names: codes with leading zeros")
    spaces = np.mean([text.count(" ") for text in names])
    is_text = bool(repeated > 0.5 and spaces >= 2) or bool(
        len(names) > MOST_VALUES and spaces >= _WORDS
    )
    is_long = np.mean([len(text) for text in names]) >= _LONG
    if not is_text and len(present) > 100 and (repeated > 0.9 or (repeated > 0.5 and is_long)):
        is_text = are_sentences(names)
    if not values.is_padded:
        described.notes += tell_form(values)
    if is_text or (repeated > 0.5 and are_lists(values.given)):
        return {"type": "text"}, ""
    return _describe_names(values, repeated, described)


def _describe_names(
    values: Values, repeated: float, described: Described
) -> tuple[dict[str, Any], str]:
    names = values.names
    if repeated > 0.9 and len(values.present) > 100:
        return {}, described.notes[0] if described.notes else _LIKE_A_KEY
    described.notes += tell_words(values.named_missing, values.given)
    if len(names) > MOST_VALUES:
        buckets = int(2 ** np.ceil(np.log2(2 * len(names))))
        return {"type": "hashed", "buckets": buckets, "embedding": 8}, ""
    if len(names) > MOST_INDICATORS:
        return {"type": "vocabulary", "minimum_count": 2, "embedding": 8}, ""
    return {"type": "vocabulary"}, ""


def _describe_numbers(
    values: Values,
    numbers: np.ndarray,
    repeated: float,
    settings: dict[str, Any],
    described: Described,
) -> tuple[dict[str, Any], str]:
    present, is_whole = values.present, is_whole_numbers(numbers)
    span = np.nanmax(numbers) - np.nanmin(numbers)
    counts_rows = span < 1.5 * len(present) or _KEY.search(values.name)
    counts_rows = counts_rows or (repeated > 0.99 and np.nanmin(numbers) > _LARGE)
    if repeated > 0.95 and is_whole and not settings and counts_rows and len(present) > 100:
        return {}, _LIKE_A_KEY
    known = np.unique(numbers[~np.isnan(numbers)])
    # Python's floats, too, are equal for some numbers of 17 digits.
    different = len(known if settings else values.names)
    is_large = np.abs(known).max() > _EXACT
    if is_whole and is_large and len(np.unique(known.astype(np.float32))) < 0.5 * different:
        names, reason = _describe_names(values, repeated, described)
        note = "read as names: float32 can't distinguish numbers of more than seven digits"
        described.notes += [] if reason else [note]
        return names, reason
    if is_whole and not settings and _CODE.search(values.name) and len(values.names) > 2:
        described.alternatives = [{"name": values.name, "type": "vocabulary"}]
        described.notes.append(
            "treated as a quantity; if it holds codes, such as ZIP codes, make it a vocabulary"
        )
    described.notes += tell_filler(numbers)
    column: dict[str, Any] = {"type": "numeric"} | ({"log": True} if _is_skewed(numbers) else {})
    if len(values.names) > 2:
        column["quantiles"] = min(MOST_QUANTILES, max(8, len(present) // 50))
    return column | settings, ""


def _show(values: Values, described: Described) -> Described:
    """Add examples and counts to what is proposed for a column."""
    described.rows, described.missing = values.rows, int(values.is_missing.sum())
    described.distinct = len(values.names)
    read = reader_of(described.column)
    shown: Iterable[str] = values.names
    if read:
        shown = (text for text in values.given if clean_text(text) not in values.markers)
    for text in itertools.islice(shown, EXAMPLES):
        with contextlib.suppress(ValueError):
            reading = f" is {read(text)}" if read else ""
            described.examples.append(f"{text[:SHOWN]!r}{reading}")
    return described


def _explain(values: Values, target: np.ndarray | None, has_label: np.ndarray) -> float:
    """Return the share of the variation of the target, [n, k], that a column alone explains.

    Means by value, or by range of numbers, of every other row are compared with the rest.
    """
    if target is None:
        return 0.0
    codes = values.codes
    if values.numbers is not None and len(values.distinct) > _BUCKETS:
        edges = np.nanquantile(values.numbers, np.linspace(0, 1, _BUCKETS + 1)[1:-1])
        codes = np.searchsorted(edges, values.numbers)
    codes, own = codes[has_label], target[has_label]
    known, other = slice(0, None, 2), slice(1, None, 2)
    sums = np.zeros((codes.max() + 1, own.shape[1]))
    np.add.at(sums, codes[known], own[known])
    counts = np.bincount(codes[known], minlength=len(sums))[:, None]
    mean = own[known].mean(axis=0)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), mean)
    variation = np.square(own[other] - mean).sum()
    return float(1 - np.square(own[other] - means[codes[other]]).sum() / max(variation, 1e-9))


def _is_skewed(numbers: np.ndarray) -> bool:
    """Return whether the logarithm of 1 + numbers is much less skewed."""
    known = numbers[~np.isnan(numbers)]
    if known.min() < 0 or len(np.unique(known)) < FEW_CLASSES:
        return False
    skewness = _measure_skewness(known)
    return skewness > _SKEWED and abs(_measure_skewness(np.log1p(known))) < 0.75 * skewness


def _measure_skewness(values: np.ndarray) -> float:
    away = values - values.mean()
    return float((away**3).mean() / max((away**2).mean() ** 1.5, 1e-30))
