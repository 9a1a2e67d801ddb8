"""`run` on Vertex AI, from the recipe to the verdict."""

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from components.cloud_errors import CloudError, is_capacity
from pipelines.cloud import bill, cloud_logging, experiments, job_request, runs, watch
from pipelines.cloud.connection import Connection, run_link
from pipelines.cloud.settings import Settings
from pipelines.console import complain, say
from pipelines.parameters import ParameterSet
from pipelines.recipe import Recipe
from pipelines.startup import INTERRUPTED
from trainer.errors import InputError

FAILED = 1


def launch(
    recipe: Recipe,
    values: Mapping[str, Any],
    settings: Settings,
    *,
    name: str = "",
    detach: bool = False,
    cache: bool | None = None,
) -> int:
    """Start a run and, unless it is detached, wait for its end; return the exit code.

    Where its machines are unavailable, the run is sent again with the recipe's next fallback; its
    name gets a number, and cached steps are not repeated, unless nothing is to be cached.

    Args:
        values: parameters that were set, by name.
        name: of the run; empty: one is made.
        detach: end when the run has started.
        cache: for every task; None: as the pipeline has it.

    Raises:
        InputError: a mistake, before anything was sent where that can be known.
    """
    settings.require("project", "pipeline_root")
    first_id = job_request.run_id(recipe.name, name, datetime.datetime.now())
    package = job_request.compiled(recipe, settings)
    # All of them, before anything is sent.
    plans = []
    for number, parameters in enumerate(_shapes(recipe, values), 1):
        run_id = first_id if number == 1 else f"{first_id[:60]}-{number}"
        plans.append(
            (run_id, job_request.run_values(recipe, parameters, settings, package, run_id))
        )
    connection = Connection(settings, say)
    for run_id, run_values in plans:
        last = run_id == plans[-1][0] or detach
        job = job_request.pipeline_job(package, settings, run_values, cache)
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
    """Tell where a run is, put it into its experiment and, unless detached, wait for its end.

    Args:
        recipe: whose experiment it is; empty: it is in none.
        last: there are no other machines to try.

    Returns:
        The exit code; None where the run failed for lack of machines, and others can be tried.
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
        job = watch.wait(connection, run_id)
    except KeyboardInterrupt:
        say(f"The run goes on. To end it: python -m pipelines cancel {run_id}")
        return INTERRUPTED
    if expiry := runs.expiry(connection, job):
        complain(f"error: {expiry}")
        return FAILED
    state, jobs = runs.state_of(job), runs.readable_jobs(connection, job)
    say(f"{state}  {bill.summary(jobs)}".rstrip())
    if verdict := runs.verdict_of(job):
        say(f"verdict   {verdict}")
    if state != "FAILED":
        return 0 if state == "SUCCEEDED" else FAILED
    reason = runs.failure_of(job, jobs)
    complain(f"error: {reason}")
    lacking = is_capacity(reason) or (not jobs and cloud_logging.lack_machines(connection, job))
    if lacking and not last:
        return None
    cloud_logging.show_failure(connection, job, jobs)
    return FAILED


def _shapes(recipe: Recipe, values: Mapping[str, Any]) -> Iterator[ParameterSet]:
    """Yield the run's parameters as asked for, then with each fallback's machines."""
    yield recipe.with_values(values, place="--set")
    for number, fallback in enumerate(recipe.operation.fallbacks, 1):
        yield recipe.with_values({**values, **fallback}, place=f"fallbacks[{number}]")
