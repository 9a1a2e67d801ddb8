"""Trials of a search in words: a line of `status` and `runs`, and a row of the live view."""

from collections.abc import Sequence

from pipelines.runs.live_view import Row
from pipelines.runs.run import SearchTrial
from vertex.formats import decimal

_STATES = {
    "REQUESTED": "PENDING", "ACTIVE": "RUNNING", "STOPPING": "RUNNING", "INFEASIBLE": "FAILED"
}  # fmt: skip
_BARS = "▁▂▃▄▅▆▇█"
_CURVE = 12
"""Largest number of measurements that are drawn."""


def make_trial_row(trial: SearchTrial) -> Row:
    """Return the row of a trial: its newest measurement, its values, and its curve."""
    state = _STATES.get(trial.state, trial.state)
    text = trial.error or f"{_describe(trial)}  {draw_curve(trial.curve)}".strip()
    return Row(f"trial {trial.name}", state, trial.seconds, text, is_replica=True)


def format_trial(trial: SearchTrial) -> str:
    """Return a trial's number, measurement and values, or why it has failed."""
    return f"{trial.name}: {trial.error or _describe(trial)}"


def draw_curve(values: Sequence[float]) -> str:
    """Draw a curve in characters, one for each of the last values; empty if it has one point."""
    shown = values[-_CURVE:]
    low, spread = min(shown, default=0), max(shown, default=0) - min(shown, default=0)
    if not spread:
        return ""
    return "".join(_BARS[round((len(_BARS) - 1) * (value - low) / spread)] for value in shown)


def _describe(trial: SearchTrial) -> str:
    parts = [f"{name} {decimal(value, 4)}" for name, value in trial.metrics.items()]
    for name, value in trial.values.items():
        parts.append(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}")
    return ", ".join(parts)
