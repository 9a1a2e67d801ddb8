"""`run` on Vertex AI, from the recipe to the verdict."""

import dataclasses
import datetime
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from components.cloud_errors import CloudError, is_capacity
from pipelines.cloud import bill, cloud_logging, experiments, runs, watch
from pipelines.cloud import template as templates
from pipelines.cloud.connection import Connection, run_link
from pipelines.cloud.settings import Settings
from pipelines.console import for_errors, print_plain
from pipelines.parameters import ParameterSet
from pipelines.recipe import Recipe
from trainer.errors import InputError

FAILED = 1
INTERRUPTED = 130


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A run as the user asks for it.

    Attributes:
        recipe: to run.
        values: parameters that were set, by name.
        name: of the run; empty: one is made.
        detach: end when the run has started.
        cache: for every task; None: as the pipeline has it.
    """

    recipe: Recipe
    values: Mapping[str, Any]
    name: str = ""
    detach: bool = False
    cache: bool | None = None


def launch(request: Request, settings: Settings, console: Console) -> int:
    """Start a run and, unless it is detached, waits for its end.

    Where its machines are unavailable, the run is sent again with the recipe's next fallback; its
    name gets a number, and cached steps are not repeated, unless nothing is to be cached.

    Returns:
        The exit code.

    Raises:
        InputError: a mistake, before anything was sent where that can be known.
        CloudError: the cloud refused.
    """
    settings.require("project", "pipeline_root")
    recipe = request.recipe
    first_id = templates.run_id(recipe.name, request.name, datetime.datetime.now())
    template = templates.compiled(recipe, settings)
    shapes = list(_shapes(recipe, request.values))
    # All of them, before anything is sent.
    plans = []
    for number, parameters in enumerate(shapes, 1):
        run_id = first_id if number == 1 else f"{first_id[:60]}-{number}"
        plans.append((run_id, templates.run_values(recipe, parameters, settings, template, run_id)))
    say = functools.partial(print_plain, console)
    connection = Connection(settings, say)
    for number, (run_id, values) in enumerate(plans, 1):
        last = number == len(plans) or request.detach
        job = templates.pipeline_job(template, settings, values, request.cache)
        try:
            runs.create(connection, job, run_id)
        except CloudError as error:
            if last or not is_capacity(str(error)):
                raise
            say(f"{error}; trying the next of the recipe's fallbacks")
            continue
        followed = follow(
            connection, recipe.name, run_id, console, detach=request.detach, last=last
        )
        if not followed.lacking:
            return followed.code
        say("trying the next of the recipe's fallbacks")
    return FAILED


@dataclasses.dataclass(frozen=True)
class Followed:
    """The end of a run, or of the user's patience.

    Attributes:
        code: the exit code.
        lacking: it failed for lack of machines, and others can be tried.
    """

    code: int
    lacking: bool = False


def follow(
    connection: Connection,
    recipe: str,
    run_id: str,
    console: Console,
    *,
    detach: bool,
    last: bool = True,
) -> Followed:
    """Tell where a run is, put it into its experiment and, unless detached, wait for its end.

    Args:
        last: there are no other machines to try.
    """
    say = functools.partial(print_plain, console)
    settings = connection.settings
    say(f"run       {run_id}")
    say(f"console   {run_link(settings, run_id)}")
    try:
        try:
            experiment = experiments.add(connection, recipe, run_id)
            say(f"compared  {experiments.link(settings, experiment)}")
        except (CloudError, InputError) as error:
            say(f"warning   the run is in no experiment: {error}")
        if detach:
            say(f"status    python -m pipelines status {run_id}")
            return Followed(0)
        job = watch.wait(connection, run_id, console)
    except KeyboardInterrupt:
        say(f"The run goes on. To end it: python -m pipelines cancel {run_id}")
        return Followed(INTERRUPTED)
    expiry = runs.expiry(connection, job)
    if expiry:
        print_plain(for_errors(console), f"error: {expiry}")
        return Followed(FAILED)
    jobs = runs.readable_jobs(connection, job)
    say(f"{runs.state_of(job)}  {bill.summary(jobs)}".rstrip())
    verdict = runs.verdict_of(job)
    if verdict:
        say(f"verdict   {verdict}")
    if runs.state_of(job) != "FAILED":
        return Followed(0 if runs.state_of(job) == "SUCCEEDED" else FAILED)
    reason = runs.failure_of(job, jobs, datetime.datetime.now(datetime.timezone.utc))
    print_plain(for_errors(console), f"error: {reason}")
    lacking = is_capacity(reason) or (not jobs and cloud_logging.lack_machines(connection, job))
    if lacking and not last:
        return Followed(FAILED, lacking=True)
    cloud_logging.show_failure(connection, job, jobs, console)
    return Followed(FAILED)


def _shapes(recipe: Recipe, values: Mapping[str, Any]) -> Iterator[ParameterSet]:
    """Yield the run's parameters as asked for, then with each fallback's machines."""
    yield recipe.with_values(values, place="--set")
    for number, fallback in enumerate(recipe.operation.fallbacks, 1):
        yield recipe.with_values({**values, **fallback}, place=f"fallbacks[{number}]")
