"""The rows of the live view of a run on this machine: its tasks, and the replicas of their jobs."""

import re
import time
from collections.abc import Iterator
from typing import Any

from pipelines.runs.failures import read_progress
from pipelines.runs.live_view import STARTING, Row, make_trial_row
from pipelines.runs.run import SearchTrial
from vertex.emulator.background_jobs import BackgroundJob
from vertex.emulator.engine.pipeline_run import PipelineRun
from vertex.facts.restart_rules import MAX_RESTARTS


def make_rows(run: PipelineRun) -> Iterator[Row]:
    """Yield a row for each task, followed by rows for the replicas of its training jobs."""
    for task in run.steps:
        text = read_progress(task.log) or STARTING if task.state == "RUNNING" else ""
        text = text.removeprefix(f"{task.display_name.lower().replace(' ', '_')}: ")
        jobs = run.processes.jobs_of(task.path)
        replicas = [job for job in jobs if job.replicas]
        yield Row(task.display_name, task.state, task.seconds, "" if replicas else text)
        for job in replicas:
            yield from _replica_rows(job, f"{run.folder}/")
        for job in jobs:
            yield from (make_trial_row(_read_trial(trial)) for trial in job.trials)


def _read_trial(trial: Any) -> SearchTrial:
    """Return a Trial of the API, as `read_trials` does, but without JSON: rows are made often."""
    seconds = 0.0
    if trial.start_time:
        ended = trial.end_time.timestamp() if trial.end_time else time.time()
        seconds = ended - trial.start_time.timestamp()
    measured = trial.final_measurement or (trial.measurements and trial.measurements[-1])
    return SearchTrial(
        name=trial.id,
        state=trial.state.name,
        values={parameter.parameter_id: parameter.value for parameter in trial.parameters},
        metrics={metric.metric_id: metric.value for metric in measured.metrics} if measured else {},
        curve=tuple(found.metrics[0].value for found in trial.measurements if found.metrics),
        seconds=seconds,
        error=trial.infeasible_reason,
    )


def _replica_rows(job: BackgroundJob, folder: str) -> Iterator[Row]:
    for replica in job.replicas:
        name = f"{replica.role} {replica.index}"
        text = read_progress(replica.log) if replica.state != "FAILED" else ""
        text = re.sub(rf"^({name}:? |{replica.role}: )", "", text)
        if replica.state == "STOPPED" and "told to stop" not in text:
            text = "shut down with the job"
        elif replica.state == "RUNNING" and replica is job.replicas[0] and not text:
            others = len(job.replicas) - 1
            text = "starting: loading TensorFlow"
            if others:
                awaited = f"{others} replicas" if others > 1 else "replica"
                text += f", then waiting for the other {awaited}"
        if replica.restarts and replica.state != "STOPPED":
            text = f"restart {replica.restarts} of {MAX_RESTARTS}  {text}".rstrip()
        # The view shows the run's folder above the table.
        seconds = (replica.ended or time.time()) - replica.started if replica.started else 0.0
        yield Row(name, replica.state, seconds, text.replace(folder, ""), is_replica=True)
