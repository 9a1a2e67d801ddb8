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
from collections.abc import Iterator, Sequence
from typing import Any

from vertex_emulator import messages
from vertex_emulator.replica_process import METRICS_SUFFIX
from vertex_emulator.tuning_search import is_minimized


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
    try:
        found = {metric.metric_id: report.get(metric.metric_id, "nan") for metric in spec.metrics}
        values = {name: float(value) for name, value in found.items()}
        step, now = int(report.get("global_step") or 0), float(report["timestamp"])
    except (KeyError, TypeError, ValueError):
        return
    values = {name: value for name, value in values.items() if math.isfinite(value)}
    measurements = list(map(messages.Measurement, trial.measurements))
    for name, value in values.items():
        same = [
            measurement
            for measurement in measurements
            if measurement.step_count == step and (step or name not in _metrics(measurement))
        ]
        if not same:
            elapsed = datetime.timedelta(seconds=max(0.0, now - trial.start_time.timestamp()))
            same = [messages.Measurement(step_count=step, elapsed_duration=elapsed)]
            measurements += same
        changed = {**_metrics(same[-1]), name: value}
        same[-1].metrics = [{"metric_id": name, "value": value} for name, value in changed.items()]
    measurements.sort(key=lambda other: (other.step_count, other.elapsed_duration))
    trial.measurements = measurements


def choose_final(spec: Any, trial: Any) -> Any:
    """Return the final Measurement of a Trial, one with all metrics; None if it has none."""
    names = {metric.metric_id for metric in spec.metrics}
    complete = [found for found in trial.measurements if names <= _metrics(found).keys()]
    if not complete:
        return None
    if spec.measurement_selection_type.name == "BEST_MEASUREMENT":
        return max(complete, key=lambda found: _objective(spec, found))
    return complete[-1]


def should_stop(spec: Any, trial: Any, trials: Sequence[Any]) -> bool:
    """Return whether the median automated stopping rule stops a running Trial.

    It does if the best objective value of the trial is worse than the median, over all completed
    trials, of the mean of their values up to the trial's last measurement.
    """
    if "median_automated_stopping_spec" not in spec:
        return False
    by_time = spec.median_automated_stopping_spec.use_elapsed_duration

    def place(measurement: Any) -> Any:
        return measurement.elapsed_duration if by_time else measurement.step_count

    def objectives(other: Any) -> list[float]:
        name = spec.metrics[0].metric_id
        return [
            _objective(spec, measurement)
            for measurement in other.measurements
            if place(measurement) <= last and name in _metrics(measurement)
        ]

    last = max(map(place, trial.measurements))
    completed = [objectives(other) for other in trials if other.state.name == "SUCCEEDED"]
    means = [statistics.fmean(values) for values in completed if values]
    own = objectives(trial)
    return bool(means and own) and max(own) < statistics.median(means)


def _metrics(measurement: Any) -> dict[str, float]:
    return {metric.metric_id: metric.value for metric in measurement.metrics}


def _objective(spec: Any, measurement: Any) -> float:
    """Return the value of the first metric, so that a larger one is better."""
    value = _metrics(measurement)[spec.metrics[0].metric_id]
    return -value if is_minimized(spec.metrics[0]) else value
