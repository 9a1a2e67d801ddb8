"""Drift between the training data of two datasets, by column and by class.

Drift is computed from the statistics in dataset.json; no example is read. Numbers are binned at
the earlier dataset's quantiles, the values of hashed columns by a hash, and texts by one word drawn
from each; missing values have their own bin. For the bins' shares p (before) and q (now):

    population stability index   sum((q - p) * ln(q / p)); by convention 0.1 is small, 0.25 large
    Jensen-Shannon distance      sqrt of the mean divergence from (p + q) / 2 in bits: 0 to 1

Even for two samples of n and m rows from the same distribution, the index is not 0. `noise` is a
quantile of the index that chance alone yields, from simulated samples. For large samples it is
close to (1/n + 1/m) times a quantile of a chi-squared variable (Yurdakul, "Statistical properties
of population stability index", 2018), but not for bins of few rows.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from trainer.data import schema
from trainer.data.schema import Dataset, Feature
from trainer.data.tables.dates import name_day
from trainer.data.tables.values import list_boolean_forms
from trainer.evaluation.stability_index import FALSE_ALARMS, compute_indices, simulate_noise
from vertex.errors import escape_controls

LABEL = "label"
THRESHOLD = 0.1
"""Index that a column must exceed to have drifted, where no other threshold is given."""
MISSING, OTHER, PRESENT = "(missing)", "(other)", "(present)"
_BINS = 10
_MAX_CATEGORIES = 50
_MIN_ROWS = 20
"""Least rows, before, of a value that is compared because it is one of the most common. With fewer
rows, values are among the most common by chance, and less common in any other sample."""
RESOLUTION = 0.01
"""Added to the noise: a hundred quantiles determine a bin's share only to half a percent."""
_LEAST_SHARE = 0.005
"""Share that a bin of numbers counts as at least: a hundred quantiles miss smaller ones."""


@dataclasses.dataclass(frozen=True)
class Drift:
    """The drift of a column's values, or of the labels."""

    name: str  # column name; LABEL for the labels
    of_labels: bool
    index: float  # population stability index
    distance: float  # Jensen-Shannon distance
    noise: float  # index that is exceeded by chance in about 1 of 100 comparisons of datasets
    quantile: float  # the chi-squared quantile to which noise is proportional for many rows
    rows: tuple[float, float]  # before and now
    missing: tuple[float, float]  # shares of missing values, before and now
    bins: dict[str, tuple[float, float]]  # shares before and now, by bin name

    @property
    def is_drift(self) -> bool:
        """Return True if the index exceeds both the noise and THRESHOLD."""
        return self.exceeds(THRESHOLD)

    def exceeds(self, threshold: float) -> bool:
        """Return True if the index exceeds both the noise and a threshold."""
        return self.index > max(self.noise, threshold)

    def count_needed_rows(self, threshold: float) -> int | None:
        """Return about how many rows now have a noise of `threshold`; None if no number has."""
        share = (threshold - RESOLUTION) / self.quantile - 1 / self.rows[0]
        return math.ceil(1 / share) if share > 0 else None


class Drifts(NamedTuple):
    """The drift between two datasets."""

    columns: list[Drift]  # the largest index first
    not_compared: dict[str, str]  # why a column can't be compared, by name

    def format_not_compared(self) -> str:
        """Return the columns that can't be compared, as text; empty if there are none."""
        named = ", ".join(f"{name} ({reason})" for name, reason in self.not_compared.items())
        named = escape_controls(named)
        return f"not compared: {named}" if named else ""


def measure_since_training(model: str, now: Dataset) -> Drifts | None:
    """Return the drift since the data that a SavedModel (URI) was trained on; None if unknown."""
    before = schema.find_training_data(model)
    return measure(before, now) if before else None


def measure(before: Dataset, now: Dataset) -> Drifts:
    """Compare labels and columns of the training splits of two datasets."""
    rows = sum(now.splits["train"].class_counts)
    return measure_columns(before, now.features, rows, count_classes(now, "train"))


def count_classes(dataset: Dataset, split: str) -> dict[str, float]:
    """Return the rows of each class; none if labels have statistics instead."""
    counts = dataset.splits[split].class_counts
    is_counted = len(counts) == len(dataset.classes)
    return dict(zip(dataset.classes, map(float, counts), strict=True)) if is_counted else {}


def measure_columns(
    before: Dataset,
    now: Sequence[Feature],
    rows_now: int,
    classes: Mapping[str, float] | None = None,
) -> Drifts:
    """Compare a dataset's columns with columns that have statistics over `rows_now` rows.

    `classes` are the rows of each class now, which are compared, too.
    """
    # For each kind and name, as below, histograms before and now, and the least share of a bin.
    compared: dict[tuple[str, str], tuple[list[dict[str, float]], float]] = {}
    not_compared = {}
    if classes and (trained_on := count_classes(before, "train")):
        zeros = dict.fromkeys([*trained_on, *classes], 0.0)
        compared[LABEL, LABEL] = [zeros | trained_on, zeros | dict(classes)], 0.0
    rows = [float(sum(before.splits["train"].class_counts)), float(rows_now)]
    earlier, later = (
        {
            _identify(feature): feature
            for feature in features
            if feature.kind not in _NOT_COLUMNS or feature.statistics
        }
        for features in (before.features, now)
    )
    for key in {**earlier, **later}:
        if reason := _find_obstacle(earlier.get(key), later.get(key)):
            not_compared[key[1]] = reason
            continue
        least = _LEAST_SHARE if "quantiles" in later[key].statistics else 0.0
        compared[key] = _build_histograms(earlier[key], later[key], rows), least
    drifts = [_measure_drift(*key, *given, len(compared)) for key, given in compared.items()]
    return Drifts(sorted(drifts, key=lambda drift: -drift.index), not_compared)


_NOT_COLUMNS = ("label", "key", "cross")


def _identify(feature: Feature) -> tuple[str, str]:
    """Return a kind and the user's own name: a column may have the name of another feature."""
    if feature.kind == "weight":
        return "weight", feature.settings["column"]
    return (LABEL if feature.kind == LABEL else ""), feature.name


def _find_obstacle(before: Feature | None, now: Feature | None) -> str:
    """Return why two columns of the same name can't be compared; empty if they can."""
    if not before or not now:
        return f"only in the {'earlier' if before else 'later'} data"
    if before.kind != now.kind:
        return f"was {before.kind}, is {now.kind}"
    if now.kind == "image":
        return "pixels have no statistics"
    if not before.statistics.keys() & now.statistics.keys() & {"quantiles", "counts"}:
        return f"the records have no counts of a {now.kind} column"
    return ""


def _build_histograms(before: Feature, now: Feature, rows: list[float]) -> list[dict[str, float]]:
    """Return the number of rows in each bin, before and now."""
    missing = [feature.statistics.get("missing", {}).get("train", 0.0) for feature in (before, now)]
    present = [count * (1 - share) for count, share in zip(rows, missing, strict=True)]
    if "quantiles" in now.statistics:
        name_edge = name_day if now.kind == "date" else _name_number
        quantiles = (before.statistics["quantiles"], now.statistics["quantiles"])
        pair = _count_numbers(*quantiles, present, name_edge)
    else:
        if now.kind == "label":  # An example may have any number of labels.
            present = [float(sum(side.statistics["counts"].values())) for side in (before, now)]
        counts = before.statistics["counts"]
        forms = list_boolean_forms([*counts])
        later: collections.Counter[str] = collections.Counter()
        for name, number in now.statistics["counts"].items():
            later[forms.get(name, name)] += number
        pair = _count_categories(counts, later, present)
    for histogram, total, share in zip(pair, rows, missing, strict=True):
        histogram[MISSING] = total * share
    return pair


def _count_numbers(
    before: Sequence[float],
    now: Sequence[float],
    present: list[float],
    name_edge: Callable[[float], str],
) -> list[dict[str, float]]:
    if not before or not now:
        # Every value is missing on one side: only the share of missing values can be compared.
        return [{PRESENT: count} for count in present]
    # The outer bins are open, for values that are smaller or larger now.
    # As float32, in which a model gets numbers: 0.1 in a request equals an edge of 0.1.
    quantiles = [np.array(values, np.float32) for values in (before, now)]
    tenths = np.linspace(0, 1, _BINS + 1)[1:-1]
    edges = np.unique(np.quantile(quantiles[0], tenths, method="inverted_cdf"))
    shown = [name_edge(edge) for edge in edges]
    names = [f"to {edge}" for edge in shown] + [f"over {shown[-1]}"]
    pair = []
    for values, count in zip(quantiles, present, strict=True):
        below = np.searchsorted(values, edges, side="right") / len(values)
        shares = np.diff(below, prepend=0.0, append=1.0)
        pair.append(dict(zip(names, (shares * count).tolist(), strict=True)))
    return pair


def _name_number(number: float) -> str:
    # All digits: rounded, the edges of dates such as 20240131 would be one bin.
    return np.format_float_positional(number, trim="-")


def _count_categories(
    before: Mapping[str, int], now: Mapping[str, int], present: list[float]
) -> list[dict[str, float]]:
    sides = list(zip((before, now), present, strict=True))
    # A vocabulary of limited size does not say how often the other values occur.
    complete = [sum(counts.values()) > total - 0.5 for counts, total in sides]
    names = [
        name
        for name in {**before, **now}
        if all(whole or name in counts for whole, (counts, _) in zip(complete, sides, strict=True))
    ]
    if len(names) > _MAX_CATEGORIES or not complete[0]:
        names = [name for name in names if before.get(name, 0) >= _MIN_ROWS]
    names.sort(key=lambda name: (-before.get(name, 0), name))
    pair = []
    for counts, total in sides:
        histogram = {name: float(counts.get(name, 0)) for name in names[:_MAX_CATEGORIES]}
        histogram[OTHER] = max(0.0, total - sum(histogram.values()))
        pair.append(histogram)
    return pair


def _measure_drift(
    kind: str, name: str, pair: list[dict[str, float]], least_share: float, columns: int
) -> Drift:
    # Imported here: takes half a second, which only a run with a champion needs.
    from scipy import stats
    from scipy.spatial.distance import jensenshannon

    kept = [name for name in pair[0] if pair[0][name] or pair[1][name]]
    counts = np.array([[histogram[name] for name in kept] for histogram in pair])
    totals = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    # Missing values are counted, not taken from quantiles.
    least = np.array([0.0 if bin == MISSING else least_share for bin in kept])
    chance = FALSE_ALARMS / columns
    shares = counts / totals
    # The divergence of almost equal shares may be -1e-17, whose root is NaN.
    with np.errstate(invalid="ignore"):
        distance = float(np.nan_to_num(jensenshannon(*shares, base=2))) if len(kept) > 1 else 0.0
    missing = [float(row[kept.index(MISSING)]) if MISSING in kept else 0.0 for row in shares]
    return Drift(
        name=name,
        of_labels=kind == LABEL,
        index=float(compute_indices(counts, least)),
        distance=distance,
        noise=simulate_noise(counts, least, chance) + RESOLUTION,
        quantile=float(stats.chi2.ppf(1 - chance, max(len(kept) - 1, 1))),
        rows=(float(totals[0, 0]), float(totals[1, 0])),
        missing=(missing[0], missing[1]),
        bins={bin: (float(p), float(q)) for bin, p, q in zip(kept, *shares, strict=True)},
    )


def format_drifts(drifts: Iterable[Drift], threshold: float = THRESHOLD) -> str:
    """Return the columns that have drifted and their indices, as text; empty if there are none."""
    drifted = [drift for drift in drifts if drift.exceeds(threshold)]
    return escape_controls(", ".join(f"{drift.name} {drift.index:.2f}" for drift in drifted))
