"""The command `run` on Vertex AI, from the recipe to the verdict, and `run --resume`."""

import itertools
import time
from collections.abc import Mapping
from typing import Any

from components.vertex.cloud_errors import CloudError, is_capacity
from pipelines.cloud import cloud_logging, experiments, job_request, past_runs, runs
from pipelines.cloud.connection import Connection, run_link
from pipelines.cloud.settings import Settings
from pipelines.console import Console, print_error, say
from pipelines.recipe import Recipe
from pipelines.run_view import Row, choose_view
from pipelines.startup import INTERRUPTED
from trainer.errors import InputError, escape_controls

FAILED = 1
POLLING_SECONDS = 10.0
_POLLS_BETWEEN_JOBS = 6
_PATIENT_SECONDS = 900.0
"""Time limit for retries after a broken connection or a server's error."""


def launch(
    recipe: Recipe,
    values: Mapping[str, Any],
    settings: Settings,
    *,
    name: str,
    detach: bool,
    cache: bool | None,
) -> int:
    """Start a run and, unless `detach`, wait for its end; return the exit code.

    If its machines are unavailable, start another run with the recipe's next fallback. The new
    run's name ends in a number, and it does not repeat cached steps unless `cache` is False.
    A user's mistake raises InputError, before anything is sent if possible.
    """
    settings.require("project", "pipeline_root")
    first_id = job_request.make_run_id(recipe.name, name)
    package = job_request.compile_package(recipe, settings)
    # Check every fallback before anything is sent.
    plans = {}
    for number, fallback in enumerate([{}, *recipe.run_options.fallbacks]):
        run_id = f"{first_id[:60]}-{number + 1}" if number else first_id
        origin = f"fallbacks[{number}]" if number else "--set"
        parameters = recipe.with_values({**values, **fallback}, place=origin)
        plans[run_id] = job_request.run_values(recipe, parameters, settings, package, run_id)
    job_request.warn_of_serving_image(parameters, settings)
    connection = Connection(settings, say)
    for run_id, run_values in plans.items():
        last = run_id == [*plans][-1] or detach
        job = job_request.build_pipeline_job(package, settings, run_values, cache)
        try:
            runs.create(connection, job, run_id)
        except CloudError as error:
            if last or not is_capacity(str(error)):
                raise
            say(f"{error}; trying the next of the recipe's fallbacks")
            continue
        code = follow(connection, recipe.name, run_id, detach=detach, last=last)
        if code is not None:
            return code
        say("trying the next of the recipe's fallbacks")
    return FAILED


def follow(
    connection: Connection, recipe: str, run_id: str, *, detach: bool, last: bool = True
) -> int | None:
    """Print a run's links, add it to its experiment and, unless `detach`, wait for its end.

    Returns:
        The exit code; None if the run failed for lack of machines and is not the `last` to try.
    """
    settings = connection.settings
    say(f"run       {run_id}", f"console   {run_link(settings, run_id)}")
    try:
        try:
            if recipe:
                experiment = experiments.add(connection, recipe, run_id)
                say(f"compared  {experiments.link(settings, experiment)}")
        except (CloudError, InputError) as error:
            say(f"warning   the run is in no experiment: {error}")
        if detach:
            say(f"status    python -m pipelines status {run_id}")
            return 0
        job = _wait_for_end(connection, run_id)
    except KeyboardInterrupt:
        say(f"The run continues. To cancel it: python -m pipelines cancel {run_id}")
        return INTERRUPTED
    if expiry := runs.find_expiry(connection, job):
        print_error(f"error: {expiry}")
        return FAILED
    state, jobs = runs.state_of(job), runs.list_readable_jobs(connection, job)
    say(f"{state}  {past_runs.format_cost(job, jobs)}".rstrip())
    if verdict := runs.verdict_of(job):
        say(f"verdict   {verdict}")
    if state != "FAILED":
        return 0 if state == "SUCCEEDED" else FAILED
    reason = runs.failure_of(job, jobs)
    print_error(f"error: {reason}")
    text, log_link = cloud_logging.fetch_failure_lines(connection, job, jobs)
    # If Vertex AI refuses the training job, only the log of the step Train may say why.
    lacking = is_capacity(reason) or (not jobs and any(map(is_capacity, text)))
    if lacking and not last:
        return None
    say(*(f"  {line}" for line in text), f"logs      {log_link}")
    return FAILED


def _wait_for_end(connection: Connection, run_id: str) -> Any:
    """Show a run until it ends or its training job expires; return the PipelineJob.

    Raises CloudError after `_PATIENT_SECONDS` without an answer, or if the run was deleted.
    """
    rows: list[Row] = []
    with choose_view(lambda: rows, Console(), run_id) as view:
        patient = connection.make_retry(view.note, _PATIENT_SECONDS)
        for poll in itertools.count(1):
            try:
                job = runs.fetch(connection, run_id, patient)
            except runs.NoRunError:
                raise CloudError(
                    f"the run {run_id!r} was started, but somebody has deleted it since"
                ) from None
            except (CloudError, InputError) as error:
                advice = f"the run may continue: python -m pipelines status {run_id}"
                raise CloudError(f"{error}; {advice}") from None
            state = runs.state_of(job)
            rows[:] = [
                Row(
                    escape_controls(task.name),
                    task.state,
                    task.seconds,
                    escape_controls(task.error),
                )
                for task in runs.tasks_of(job)
            ]
            rows.append(Row("run", state, 0.0, ""))
            view.update()
            checks_expiry = poll % _POLLS_BETWEEN_JOBS == 0
            if state in runs.ENDED or (checks_expiry and runs.find_expiry(connection, job)):
                return job
            time.sleep(POLLING_SECONDS)


def resume(settings: Settings, recipe: str, run_id: str, name: str, *, detach: bool) -> int:
    """Resume an interrupted run; return the exit code.

    Vertex AI can't resume a PipelineJob, so this starts a new one with the same pipeline and
    parameters. (Its rerun of single tasks, a preview, would also start a new one.) The new run
    reads the records from the cache, and its parameter resume_from names the directory of the
    interrupted training job, which holds the checkpoint. Training refuses a checkpoint of other
    records or settings. A run that is being cancelled is waited for first.

    Args:
        recipe: a recipe, whose latest run is resumed unless `run_id` is given, or the ID of a run.
        name: name of the new run; empty: <recipe>-<time>.
    """
    connection = Connection(settings.require("project"))
    latest = [] if run_id else runs.list_runs(connection, recipe, limit=1)
    job = runs.fetch(connection, runs.id_of(latest[0]) if latest else run_id or recipe)
    made_by = runs.recipe_of(job)
    if run_id and made_by.lower() != recipe.lower():
        raise InputError(f"{run_id!r} is a run of {made_by!r}, not of {recipe!r}")
    if runs.state_of(job) == "CANCELLING":
        job = _wait_for_end(connection, runs.id_of(job))
    run_id, state = runs.id_of(job), runs.state_of(job)
    if state == "SUCCEEDED":
        raise InputError(f"the run {run_id!r} has succeeded; there is nothing to resume")
    if state not in runs.ENDED:
        raise InputError(f"the run {run_id!r} is {state}; wait for its end, or cancel it first")
    for training in runs.list_custom_jobs(connection, job):
        if runs.state_of(training) not in runs.JOB_ENDED:
            raise InputError(
                f"the training job of {run_id!r} is {runs.state_of(training)}; wait for its end"
            )
    new_id = job_request.make_run_id(made_by, name)
    resume_from = past_runs.uri_of(job, past_runs.PLAN, past_runs.TRAINING)
    runs.create(connection, job_request.copy_job(job, new_id, resume_from), new_id)
    return follow(connection, made_by, new_id, detach=detach) or 0
