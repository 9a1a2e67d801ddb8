"""`run --resume` on Vertex AI: another PipelineJob of the same pipeline and parameters.

A PipelineJob that has ended can't go on. The new one takes the records from the cache, and
its parameter resume_from names the directory of the interrupted training job, whose replicas
find their checkpoint there. Training refuses a checkpoint of other records or settings.
"""

import datetime
from typing import Any

from pipelines.cloud import job_request, past_runs, runs, watch
from pipelines.cloud.connection import Connection
from pipelines.cloud.launch import follow
from pipelines.cloud.settings import Settings
from trainer.errors import InputError


def resume(settings: Settings, recipe: str, run_id: str, name: str, *, detach: bool) -> int:
    """Start the run that goes on with an interrupted one; returns the exit code.

    Waits for the end of a run that is being cancelled.

    Args:
        recipe: whose latest run is meant, or the ID of a run.
        run_id: of the interrupted run; empty: see `recipe`.
        name: of the new run; empty: <recipe>-<time>.

    Raises:
        InputError: no such run, it has succeeded, or it or its training job has not ended.
    """
    settings.require("project")
    connection = Connection(settings)
    latest = [] if run_id else runs.listed(connection, recipe, limit=1)
    job = runs.get(connection, runs.id_of(latest[0]) if latest else run_id or recipe)
    if run_id and job.display_name != recipe:
        raise InputError(f"{run_id!r} is a run of {job.display_name!r}, not of {recipe!r}")
    if runs.state_of(job) == "CANCELLING":
        job = watch.wait(connection, runs.id_of(job))
    _check(connection, job)
    new_id = job_request.run_id(job.display_name, name, datetime.datetime.now())
    runs.create(connection, _again(job, new_id), new_id)
    return follow(connection, job.display_name, new_id, detach=detach) or 0


def _check(connection: Connection, job: Any) -> None:
    """Raise InputError for a run with which nothing can go on now."""
    run_id, state = runs.id_of(job), runs.state_of(job)
    if state == "SUCCEEDED":
        raise InputError(f"the run {run_id!r} has succeeded; there is nothing to resume")
    if state not in runs.ENDED:
        raise InputError(f"the run {run_id!r} is {state}; wait for its end, or cancel it first")
    for training in runs.custom_jobs(connection, job):
        if runs.state_of(training) not in runs.JOB_ENDED:
            raise InputError(
                f"the training job of {run_id!r} is {runs.state_of(training)}, and may still "
                "write its checkpoint; try again when it has ended"
            )


def _again(job: Any, new_id: str) -> Any:
    """Return the same job, whose training goes on from the checkpoint of `job`."""
    from google.cloud.aiplatform_v1 import types
    from google.protobuf import json_format

    old = json_format.MessageToDict(job._pb)
    values = old["runtimeConfig"]["parameterValues"]
    values = {**values, "labels": {**values.get("labels", {}), "run": new_id}}
    directory = past_runs.uri_of(job, past_runs.PLAN, past_runs.TRAINING)
    if directory:
        values["resume_from"] = directory
    kept = ("displayName", "pipelineSpec", "labels", "serviceAccount", "network", "encryptionSpec")
    document = {name: old[name] for name in kept if name in old}
    document["runtimeConfig"] = {
        "gcsOutputDirectory": old["runtimeConfig"]["gcsOutputDirectory"],
        "parameterValues": values,
    }
    again = types.PipelineJob()
    json_format.ParseDict(document, again._pb)
    return again
