"""Measurements of trials: read from their reports, and compared for the final one and for stops.

A replica reports by cloudml-hypertune: a file with one JSON object per line, such as

    {"timestamp": 1785000000.5, "trial": "1", "accuracy": "0.93", "global_step": "120"}

The file is rewritten for each report, and has the last 100. With several metrics, the first one
decides which measurement is the best, and whether a trial is stopped.
"""

import contextlib
import datetime
import json
import math
import pathlib
import statistics
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from vertex.emulator import messages
from vertex.emulator.replica_process import METRICS_SUFFIX
from vertex.emulator.tuning_search import is_minimized

Curve = list[tuple[float, float]]
_FEWEST_CURVES = 5
"""Number of completed trials from which final values are predicted."""
_LAST_POINTS = 3
"""Number of a curve's last measurements by which its rise is predicted."""
_UNLIKELY = 0.01
"""Probability below which a trial is stopped; the page says "very low"."""
_CLOSE = 1e-9


def read_reports(folder: pathlib.Path, seen: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the reports in the folder of a trial's job that are not in `seen`; add them to it."""
    for path in sorted(folder.glob(f"*{METRICS_SUFFIX}")):
        for line in path.read_text(errors="replace").splitlines():
            # A line that is being written is not yet JSON.
            with contextlib.suppress(ValueError):
                if line not in seen and isinstance(report := json.loads(line), dict):
                    seen.add(line)
                    yield report


def add_report(spec: Any, trial: Any, report: dict[str, Any]) -> None:
    """Add the metrics of the study that a report has to the measurements of a Trial.

    A second value of a step is that of a replica that has started again: it replaces the first. A
    program that counts no steps reports step 0.
    """
    names = [metric.metric_id for metric in spec.metrics]
    try:
        found = {name: float(report.get(name, "nan")) for name in names}
        step, now = int(report.get("global_step") or 0), float(report["timestamp"])
    except (KeyError, TypeError, ValueError):
        return
    values = {name: value for name, value in found.items() if math.isfinite(value)}
    if not values:
        return
    measurements = list(map(messages.Measurement, trial.measurements))
    same = [
        measurement
        for measurement in measurements
        if measurement.step_count == step and (step or not values.keys() & _metrics(measurement))
    ]
    if not same:
        elapsed = datetime.timedelta(seconds=max(0.0, now - trial.start_time.timestamp()))
        same = [messages.Measurement(step_count=step, elapsed_duration=elapsed)]
        measurements += same
    metrics = {**_metrics(same[-1]), **values}
    same[-1].metrics = [{"metric_id": name, "value": value} for name, value in metrics.items()]
    measurements.sort(key=lambda other: (other.step_count, other.elapsed_duration))
    trial.measurements = measurements


def choose_final(spec: Any, trial: Any) -> Any:
    """Return the final Measurement of a Trial, one with all metrics; None if it has none."""
    names = {metric.metric_id for metric in spec.metrics}
    complete = [found for found in trial.measurements if names <= _metrics(found).keys()]
    if spec.measurement_selection_type.name == "BEST_MEASUREMENT":
        return max(complete, key=lambda found: _objective(spec, found), default=None)
    return complete[-1] if complete else None


def should_stop(spec: Any, trial: Any, trials: Sequence[Any]) -> bool:
    """Return whether a running Trial is stopped by the study's rule, if it has one."""
    name = spec._pb.WhichOneof("automated_stopping_spec")
    if not name:
        return False
    by_time = getattr(spec, name).use_elapsed_duration
    own = _read_curve(spec, trial, by_time=by_time)
    ended = [other for other in trials if other.state.name == "SUCCEEDED"]
    completed = [_read_curve(spec, other, by_time=by_time) for other in ended]
    is_bad = _is_below_median if name.startswith("median") else _is_unlikely_the_best
    return bool(own) and is_bad(own, completed)


def _is_below_median(own: Curve, completed: Sequence[Curve]) -> bool:
    """Return whether a trial's best value is below the median of the means of completed trials.

    A mean is that of the values up to the trial's last measurement.
    """
    last = own[-1][0]
    values = [[value for position, value in curve if position <= last] for curve in completed]
    means = [statistics.fmean(of_curve) for of_curve in values if of_curve]
    return bool(means) and max(value for _, value in own) < statistics.median(means)


def _is_unlikely_the_best(own: Curve, completed: Sequence[Curve]) -> bool:
    """Return whether a trial's final value exceeds the best so far with a very low probability.

    From completed trials, a Gaussian process learns how much a curve still rises after its last
    points up to the trial's last measurement.
    """
    if len(completed) < _FEWEST_CURVES:
        return False
    import numpy as np
    from scipy.stats import norm
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    positions, values = np.transpose(own[-_LAST_POINTS:])
    known = np.array([np.interp(positions, *np.transpose(curve)) for curve in completed])
    finals = np.array([curve[-1][1] for curve in completed])
    center, spread = known.mean(axis=0), known.std(axis=0) + _CLOSE
    kernel = kernels.ConstantKernel() * kernels.RBF() + kernels.WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Parameters of the kernel may be at their bounds.
        process.fit((known - center) / spread, finals - known[:, -1])
        rises, deviations = process.predict([(values - center) / spread], return_std=True)
    ahead = values[-1] + rises[0] - finals.max()
    return bool(norm.cdf(ahead / (deviations[0] + _CLOSE)) < _UNLIKELY)


def _read_curve(spec: Any, trial: Any, *, by_time: bool) -> Curve:
    """Return the objective values of a Trial, each with its step or its seconds."""
    first = spec.metrics[0].metric_id
    found = [measurement for measurement in trial.measurements if first in _metrics(measurement)]
    return [
        (one.elapsed_duration.total_seconds() if by_time else one.step_count, _objective(spec, one))
        for one in found
    ]


def _metrics(measurement: Any) -> dict[str, float]:
    return {metric.metric_id: metric.value for metric in measurement.metrics}


def _objective(spec: Any, measurement: Any) -> float:
    """Return the value of the first metric, so that a larger one is better."""
    value = _metrics(measurement)[spec.metrics[0].metric_id]
    return -value if is_minimized(spec.metrics[0]) else value
