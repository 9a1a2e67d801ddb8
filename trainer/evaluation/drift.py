"""Drift between the training data of two datasets, by column and by class.

Drift is computed from the statistics in dataset.json; no example is read. Numbers are binned at
the earlier dataset's quantiles; missing values have their own bin. For the bins' shares p (before)
and q (now):

    population stability index   sum((q - p) * ln(q / p)); by convention 0.1 is small, 0.25 large
    Jensen-Shannon distance      sqrt of the mean divergence from (p + q) / 2 in bits: 0 to 1

Even for two samples of n and m rows from the same distribution, the index is not 0: it is close to
(1/n + 1/m) times a chi-squared variable (Yurdakul, "Statistical properties of population
stability index", 2018). `noise` is a quantile of that variable.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from trainer.data import schema
from trainer.data.schema import Dataset, Feature
from trainer.errors import InputError

LABEL = "label"
MISSING, OTHER, PRESENT = "(missing)", "(other)", "(present)"
_BINS = 10
_MAX_CATEGORIES = 50
_FALSE_ALARMS = 0.01
"""Probability that any column of two datasets exceeds its noise without drift."""
# Added to the noise, because a hundred quantiles determine a bin's share only to half a percent.
_RESOLUTION = 0.01
_LEAST_SHARE = 0.005
"""Share that a bin of numbers counts as at least: a hundred quantiles miss smaller ones."""


@dataclasses.dataclass(frozen=True)
class Drift:
    """The drift of a column's values, or of the classes."""

    name: str  # column name; LABEL for the classes
    index: float  # population stability index
    distance: float  # Jensen-Shannon distance
    noise: float  # index that is exceeded by chance in at most 1 of 100 comparisons of datasets
    missing: tuple[float, float]  # shares of missing values, before and now
    bins: dict[str, tuple[float, float]]  # shares before and now, by bin name

    @property
    def is_drift(self) -> bool:
        """Return True if the index exceeds the noise."""
        return self.index > self.noise


def measure_since_training(model: str, now: Dataset) -> list[Drift]:
    """Return the drift since the data that a SavedModel (URI) was trained on; [] if unknown."""
    before = schema.find_training_data(model)
    return measure(before, now) if before else []


def measure(before: Dataset, now: Dataset) -> list[Drift]:
    """Compare classes and columns of the training splits of two datasets, largest index first.

    Columns that only one dataset has, and columns without a stored distribution (hashed columns
    and pixels), are left out.
    """
    counts = [dataset.splits["train"].class_counts for dataset in (before, now)]
    zeros: dict[str, float] = dict.fromkeys([*before.classes, *now.classes], 0)
    classes = [
        zeros | dict(zip(dataset.classes, count, strict=True))
        for dataset, count in zip((before, now), counts, strict=True)
    ]
    return measure_columns(before, now.features, sum(counts[1]), {LABEL: classes})


def measure_columns(
    before: Dataset,
    now: Sequence[Feature],
    rows_now: int,
    others: Mapping[str, list[dict[str, float]]] | None = None,
) -> list[Drift]:
    """Compare a dataset's columns with columns that have statistics over `rows_now` rows.

    Like `measure`, return the largest index first. `others` are additional histograms to compare,
    before and now, by name.
    """
    compared = dict(others or {})
    rows = [float(sum(before.splits["train"].class_counts)), float(rows_now)]
    earlier = {(feature.name, feature.kind): feature for feature in before.features}
    for feature in now:
        previous = earlier.get((feature.name, feature.kind))
        if previous and (pair := _build_histograms(previous, feature, rows)):
            compared[feature.name] = pair
    numbers = {feature.name for feature in now if "quantiles" in feature.statistics}
    drifts = [
        _measure_drift(name, pair, len(compared), _LEAST_SHARE if name in numbers else 0.0)
        for name, pair in compared.items()
    ]
    return sorted(drifts, key=lambda drift: -drift.index)


def _build_histograms(before: Feature, now: Feature, rows: list[float]) -> list[dict[str, float]]:
    """Return the number of rows in each bin, before and now; [] without a stored distribution."""
    missing = [feature.statistics.get("missing", {}).get("train", 0.0) for feature in (before, now)]
    present = [count * (1 - share) for count, share in zip(rows, missing, strict=True)]
    if "quantiles" in before.statistics and "quantiles" in now.statistics:
        pair = _count_numbers(before.statistics["quantiles"], now.statistics["quantiles"], present)
    elif "counts" in before.statistics and "counts" in now.statistics:
        pair = _count_categories(before.statistics["counts"], now.statistics["counts"], present)
    else:
        return []
    for histogram, count, share in zip(pair, rows, missing, strict=True):
        histogram[MISSING] = count * share
    return pair


def _count_numbers(
    before: Sequence[float], now: Sequence[float], present: list[float]
) -> list[dict[str, float]]:
    if not before or not now:
        # Every value is missing on one side: only the share of missing values can be compared.
        return [{PRESENT: count} for count in present]
    # The outer bins are open, for values that are smaller or larger now.
    # As float32, in which a model gets numbers: 0.1 in a request equals an edge of 0.1.
    quantiles = [np.array(values, np.float32) for values in (before, now)]
    tenths = np.linspace(0, 1, _BINS + 1)[1:-1]
    edges = np.unique(np.quantile(quantiles[0], tenths, method="inverted_cdf"))
    # All digits: rounded, the edges of dates such as 20240131 would be one bin.
    shown = [np.format_float_positional(edge, trim="-") for edge in edges]
    names = [f"to {edge}" for edge in shown] + [f"over {shown[-1]}"]
    pair = []
    for values, count in zip(quantiles, present, strict=True):
        below = np.searchsorted(values, edges, side="right") / len(values)
        shares = np.diff(below, prepend=0.0, append=1.0)
        pair.append(dict(zip(names, (shares * count).tolist(), strict=True)))
    return pair


def _count_categories(
    before: Mapping[str, int], now: Mapping[str, int], present: list[float]
) -> list[dict[str, float]]:
    names = sorted({*before, *now}, key=lambda name: (-before.get(name, 0), name))
    pair = []
    for counts, total in zip((before, now), present, strict=True):
        histogram = {name: float(counts.get(name, 0)) for name in names[:_MAX_CATEGORIES]}
        histogram[OTHER] = max(0.0, total - sum(histogram.values()))
        pair.append(histogram)
    return pair


def _measure_drift(
    name: str, pair: list[dict[str, float]], columns: int, least_share: float
) -> Drift:
    # Imported here: takes half a second, which only a run with a champion needs.
    from scipy import stats
    from scipy.spatial.distance import jensenshannon

    kept = [name for name in pair[0] if pair[0][name] or pair[1][name]]
    counts = np.array([[histogram[name] for name in kept] for histogram in pair])
    totals = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    shares = counts / totals
    # An empty bin counts as half an example. Missing values are counted, not taken from quantiles.
    least = np.array([0.0 if bin == MISSING else least_share for bin in kept])
    smooth = np.maximum(shares, np.maximum(0.5 / totals, least))
    smooth /= smooth.sum(axis=1, keepdims=True)
    index = float(((smooth[1] - smooth[0]) * np.log(smooth[1] / smooth[0])).sum())
    freedom = max(len(kept) - 1, 1)
    quantile = stats.chi2.ppf(1 - _FALSE_ALARMS / columns, freedom)
    # The divergence of almost equal shares may be -1e-17, whose root is NaN.
    with np.errstate(invalid="ignore"):
        distance = float(np.nan_to_num(jensenshannon(*shares, base=2))) if len(kept) > 1 else 0.0
    missing = [float(row[kept.index(MISSING)]) if MISSING in kept else 0.0 for row in shares]
    return Drift(
        name=name,
        index=index,
        distance=distance,
        noise=float(quantile * (1 / totals).sum()) + _RESOLUTION,
        missing=(missing[0], missing[1]),
        bins={bin: (float(p), float(q)) for bin, p, q in zip(kept, *shares, strict=True)},
    )


def check(drifts: list[Drift], champion: str, max_drift: float) -> None:
    """Raise InputError if an index exceeds both its noise and `max_drift`, unless that is 0.

    `champion` is the model@version whose training data are the earlier dataset.
    """
    too_far = [drift for drift in drifts if max_drift and drift.index > max_drift]
    if drifted := format_drifts(too_far):
        raise InputError(
            f"max_drift={max_drift:g}: the training data have drifted since {champion}: {drifted}; "
            "look at the source, or raise max_drift"
        )


def is_small(drifts: list[Drift], min_drift: float) -> bool:
    """Return True if `drifts` is not empty and nothing has drifted by `min_drift`."""
    large = [drift for drift in drifts if drift.index >= min_drift]
    return bool(drifts) and min_drift > 0 and not format_drifts(large)


def format_drifts(drifts: list[Drift]) -> str:
    """Return one line of the drifted columns and their indices; empty if there are none."""
    drifted = [drift for drift in drifts if drift.is_drift]
    return ", ".join(f"{drift.name} {drift.index:.2f}" for drift in drifted)
