"""Propose how to learn a column of a table from its other columns.

    proposal = propose(opened, "source='csv:homes.csv'", "price")
    proposal.label, proposal.columns     # as a recipe has them
    proposal.left_out                    # {"id": "different in each row"}

The first rows of the table decide, up to `SAMPLE_ROWS`, without those that a run tests on. A
proposal is a start, which its reader can correct: a code that looks like a number is a number here.
"""

import collections
import dataclasses
import re
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.data.digests import draw_splits
from trainer.data.schema import SPLITS
from trainer.data.source_options import SourceOptions
from trainer.data.tables.cells import is_list, to_texts
from trainer.data.tables.dates import clean_date
from trainer.data.tables.rows import Block, Rows
from trainer.data.tables.values import parse_number
from trainer.errors import InputError

SAMPLE_ROWS = 200_000
_FRACTIONS = SourceOptions().split_fractions
SEPARATORS = (";", "|", ",")
"""Texts between several labels."""
FEW_CLASSES, FEW_ROWS, MOST_CLASSES = 20, 5, 1000
"""More different whole numbers are a quantity; each class must have that many rows on average."""
MOST_QUANTILES = 64
MOST_INDICATORS, MOST_VALUES = 32, 1000
"""Different texts up to which a column has indicators, and a vocabulary."""
_MISSING = ("?", "NA", "N/A", "NULL", "null", "None", "NaN", "nan")
_MOST_MARKERS, _MARKED = 5, 0.5
"""A column of numbers has at most so many other texts, in at most that share of its rows."""
_KEY = re.compile(r"(^|_|(?<=[a-z]))(id|key|uuid|guid|index)$", re.IGNORECASE)
_SKEWED = 1.5
"""Skewness above which the logarithm is learned, if its skewness is lower."""
_DISGUISED = 0.99
"""Share of a label's variation from which a column that explains it alone is the answer."""
_BUCKETS = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
    """Values that a recipe sets for the columns of a table."""

    rows: int  # of the sample, without those of the test split
    is_whole: bool  # whether the sample is the whole table
    label: dict[str, Any]
    columns: list[dict[str, Any]]
    left_out: dict[str, str]  # columns that are not used, with the reason
    unlabeled: float  # share of rows without a label, which are rejected


class _Values:
    """A column of the sample.

    `texts` are its values, "" where they are missing: string [n]. `numbers` are float64 [n], NaN
    where missing; None if the column is text.
    """

    def __init__(self, texts: pa.Array) -> None:
        coded = texts.dictionary_encode()
        self.rows = len(texts)
        self.codes = coded.indices.to_numpy()
        self.distinct: list[str] = coded.dictionary.to_pylist()
        self.counts = np.bincount(self.codes, minlength=len(self.distinct))
        rows = dict(zip(self.distinct, self.counts.tolist(), strict=True))
        numbers = {text: _to_number(text) for text in self.distinct if text}
        words = [text for text in numbers if np.isnan(numbers[text]) and text.lower() != "nan"]
        marked = sum(rows[text] for text in words) / max(1, self.rows - rows.get("", 0))
        is_number = len(words) < len(numbers) and len(words) <= _MOST_MARKERS and marked <= _MARKED
        self.markers = words if is_number else [text for text in _MISSING if text in rows]
        values = np.array([numbers.get(text, np.nan) for text in self.distinct])
        self.numbers = values[self.codes] if is_number else None
        unknown = {"", *self.markers}
        is_unknown = np.array([text in unknown for text in self.distinct], bool)
        self.is_missing = (np.isnan(values) if is_number else is_unknown)[self.codes]

    @property
    def present(self) -> np.ndarray:
        """Return the codes of the rows that have a value."""
        return self.codes[~self.is_missing]

    @property
    def names(self) -> list[str]:
        """Return the different values."""
        return [self.distinct[code] for code in np.unique(self.present)]


def propose(opened: Any, place: str, label: str, hidden: Collection[str] = ()) -> Proposal:
    """Return columns for a label; raise InputError for a table or a label that can't be learned.

    Args:
        opened: a `TableKind`.
        place: what was opened, for messages.
        hidden: names of columns that must not be inputs.
    """
    sample, is_whole, left_out = _read_sample(opened, label)
    if not sample:
        raise InputError(f"{place} has no rows that can be read")
    own = sample.pop(label)
    described, target = _describe_label(f"{place}: label column {label!r}", label, own)
    has_label = ~own.is_missing
    columns = []
    for name, values in sample.items():
        if name in hidden:
            continue
        column, reason = _describe_column(name, values)
        if not reason and _explain(values, target, has_label) > _DISGUISED:
            reason = f"says {label} almost alone: an answer in disguise?"
        if reason:
            left_out[name] = reason
        else:
            columns.append(column)
    if not columns:
        reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
        raise InputError(f"{place} has no column to learn {label!r} from: {reasons}")
    is_set = described.get("type") == "multilabel"
    return Proposal(
        rows=own.rows,
        is_whole=is_whole,
        label=described,
        columns=columns,
        left_out=left_out,
        unlabeled=0.0 if is_set else float(own.is_missing.mean()),
    )


def _read_sample(opened: Any, label: str) -> tuple[dict[str, _Values], bool, dict[str, str]]:
    """Return the columns of the first rows, whether those are all, and unreadable columns."""
    parts: dict[str, list[pa.Array]] = collections.defaultdict(list)
    left_out: dict[str, str] = {}
    rows, is_whole = 0, True
    for block in (block for file in range(len(opened.names)) for block in opened.blocks(file)):
        if rows >= SAMPLE_ROWS:
            is_whole = False
            break
        twice = {name for name in block.names if block.names.count(name) > 1}
        left_out |= dict.fromkeys(filter(None, twice), "is twice in the header")
        names = [name for name in block.names if name and name not in left_out]
        read, columns = _read_columns(block, names, label, left_out)
        learned = pa.array(draw_splits(read.halves[:, 1], _FRACTIONS) < SPLITS.index("test"))
        for name, column in columns.items():
            texts = _join_lists(column) if is_list(column) else to_texts(column)
            parts[name].append(texts.filter(learned))
        rows = sum(map(len, parts[label]))
    if not rows:
        return {}, True, {}
    sample = {
        name: _Values(pa.concat_arrays(arrays)[:SAMPLE_ROWS])
        for name, arrays in parts.items()
        if name not in left_out
    }
    return sample, is_whole and rows <= SAMPLE_ROWS, left_out


def _read_columns(
    block: Block, names: list[str], label: str, left_out: dict[str, str]
) -> tuple[Rows, dict[str, pa.Array]]:
    """Return the rows of a block, and their columns that can be read; name others in `left_out`."""
    try:
        read = block.read(names, [label])
        return read, read.columns
    except InputError:
        read, columns = block.read([label], [label]), dict[str, pa.Array]()
        for name in names:
            try:
                columns |= block.read([name], [label]).columns
            except InputError:
                left_out[name] = "has values that are neither numbers nor text"
        return read, columns


def _join_lists(lists: pa.Array) -> pa.Array:
    """Return lists as text with the first of SEPARATORS."""
    return pc.fill_null(pc.binary_join(lists.cast(pa.list_(pa.string())), SEPARATORS[0]), "")


def _to_number(text: str) -> float:
    try:
        return parse_number(text)
    except ValueError:
        return float("nan")


def _describe_label(
    place: str, name: str, values: _Values
) -> tuple[dict[str, Any], np.ndarray | None]:
    """Return the label of a recipe, and what `_explain` gets: ranks, or 1 in a class's column."""
    names, rows = values.names, len(values.present)
    if len(names) < 2:
        found = f"only one value, {names[0]!r}" if names else "no value"
        raise InputError(f"{place} has {found}; there is nothing to learn")
    numbers = values.numbers
    if numbers is not None and (
        len(names) > FEW_CLASSES or (len(names) > 2 and not _is_whole(numbers))
    ):
        ranks = np.unique(numbers, return_inverse=True)[1].astype(float)
        return {"column": name, "type": "numeric"}, ranks[:, None]
    for separator in SEPARATORS:
        parts = {part.strip() for text in names for part in text.split(separator)}
        several = sum(separator in text for text in names)
        if several > 1 and len(parts) <= min(len(names), MOST_CLASSES):
            given = {} if separator == SEPARATORS[0] else {"separator": separator}
            return {"column": name, "type": "multilabel", **given}, None
    if len(names) > MOST_CLASSES or rows < FEW_ROWS * len(names):
        raise InputError(
            f"{place} has {len(names):,} different texts in {rows:,} rows, too many for classes; "
            "name a column of numbers, or of classes that have more rows"
        )
    common = np.argsort(-values.counts, kind="stable")[:FEW_CLASSES]
    return {"column": name}, (values.codes[:, None] == common).astype(float)


def _describe_column(name: str, values: _Values) -> tuple[dict[str, Any], str]:
    """Return a column of a recipe, or the reason to leave it out."""
    present, names = values.present, values.names
    if len(present) < 0.02 * values.rows:
        return {}, "is almost always missing"
    if len(names) < 2 and len(present) == values.rows:
        return {}, f"is always {names[0]!r}"
    described: dict[str, Any] = {"name": name}
    missing = {"missing": values.markers} if values.markers else {}
    repeated = len(names) / len(present)
    numbers = values.numbers
    if numbers is not None:
        span = np.nanmax(numbers) - np.nanmin(numbers)
        counts_rows = span < 1.5 * len(present) or _KEY.search(name)
        if repeated > 0.95 and _is_whole(numbers) and counts_rows and len(present) > 100:
            return {}, "differs from row to row, like a key"
        log = {"log": True} if _is_skewed(numbers) else {}
        described |= {"type": "numeric", **log}
        if len(names) > 2:
            described["quantiles"] = min(MOST_QUANTILES, max(8, len(present) // 50))
        return described | missing, ""
    if all(map(_is_date, names[:1000])):
        return described | {"type": "date", "quantiles": 16} | missing, ""
    if repeated > 0.5 and np.mean([text.count(" ") for text in names]) >= 2:
        return described | {"type": "text"} | missing, ""
    if repeated > 0.9 and len(present) > 100:
        return {}, "differs from row to row, like a key"
    if len(names) > MOST_VALUES:
        buckets = int(2 ** np.ceil(np.log2(2 * len(names))))
        return described | {"type": "hashed", "buckets": buckets, "embedding": 8} | missing, ""
    described |= {"type": "vocabulary"}
    if len(names) > MOST_INDICATORS:
        described |= {"minimum_count": 2, "embedding": 8}
    return described | missing, ""


def _is_date(text: str) -> bool:
    try:
        return bool(clean_date(text))
    except ValueError:
        return False


def _explain(values: _Values, target: np.ndarray | None, has_label: np.ndarray) -> float:
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


def _is_whole(numbers: np.ndarray) -> bool:
    known = numbers[~np.isnan(numbers)]
    return bool((known == np.floor(known)).all())


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
