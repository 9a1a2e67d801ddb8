"""The rows of the live view of a run on this machine: its tasks, and the replicas of their jobs."""

import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pipelines.runs.failures import read_progress
from pipelines.runs.live_view import STARTING, Row
from pipelines.runs.screens import format_trial_value
from vertex_emulator.background_jobs import BackgroundJob
from vertex_emulator.engine.pipeline_run import PipelineRun
from vertex_facts.restart_rules import MAX_RESTARTS

_TRIAL_STATES = {
    "REQUESTED": "PENDING", "ACTIVE": "RUNNING", "STOPPING": "RUNNING", "INFEASIBLE": "FAILED"
}  # fmt: skip
_BARS = "▁▂▃▄▅▆▇█"
_CURVE = 12
"""Largest number of measurements that are drawn."""


def make_rows(run: PipelineRun) -> Iterator[Row]:
    """Yield a row for each task, followed by rows for the replicas of its training jobs."""
    for task in run.steps:
        text = read_progress(task.log) or STARTING if task.state == "RUNNING" else ""
        jobs = run.processes.jobs_of(task.path)
        replicas = [job for job in jobs if job.replicas]
        yield Row(task.display_name, task.state, task.seconds, "" if replicas else text)
        for job in replicas:
            yield from _replica_rows(job, f"{run.folder}/")
        for job in jobs:
            yield from map(_trial_row, job.trials)


def _trial_row(trial: Any) -> Row:
    """Return the row of a trial: its values, and the newest measurement."""
    seconds = 0.0
    if trial.start_time:
        ended = trial.end_time.timestamp() if trial.end_time else time.time()
        seconds = ended - trial.start_time.timestamp()
    parts = [f"{one.parameter_id} {format_trial_value(one.value)}" for one in trial.parameters]
    measured = trial.final_measurement or (trial.measurements and trial.measurements[-1])
    parts += [f"{one.metric_id} {one.value:.4f}" for one in measured.metrics] if measured else []
    curve = [one.value for point in trial.measurements for one in point.metrics[:1]]
    text = trial.infeasible_reason or f"{', '.join(parts)}  {draw_curve(curve)}".rstrip()
    state = _TRIAL_STATES.get(trial.state.name, trial.state.name)
    return Row(f"trial {trial.id}", state, seconds, text, is_replica=True)


def draw_curve(values: Sequence[float]) -> str:
    """Draw a curve in characters, one for each of the last values; empty if it has one point."""
    shown = values[-_CURVE:]
    low, spread = min(shown, default=0), max(shown, default=0) - min(shown, default=0)
    if not spread:
        return ""
    return "".join(_BARS[round((len(_BARS) - 1) * (one - low) / spread)] for one in shown)


def _replica_rows(job: BackgroundJob, folder: str) -> Iterator[Row]:
    for replica in job.replicas:
        name = f"{replica.role} {replica.index}"
        text = read_progress(replica.log) if replica.state != "FAILED" else ""
        text = re.sub(rf"^({name}:? |{replica.role}: )", "", text)
        if replica.state == "STOPPED" and "told to stop" not in text:
            text = "shut down with the job"
        elif replica.state == "RUNNING" and replica is job.replicas[0] and not text:
            others = len(job.replicas) - 1
            text = "starting: loads TensorFlow"
            if others:
                awaited = f"{others} replicas" if others > 1 else "replica"
                text += f", then waits for the other {awaited}"
        if replica.restarts and replica.state != "STOPPED":
            text = f"restart {replica.restarts} of {MAX_RESTARTS}  {text}".rstrip()
        # The view shows the run's folder above the table.
        seconds = (replica.ended or time.time()) - replica.started if replica.started else 0.0
        yield Row(name, replica.state, seconds, text.replace(folder, ""), is_replica=True)
