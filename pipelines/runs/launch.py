"""The command `run` on Vertex AI, from the recipe to the verdict, and `run --resume`."""

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.parameters import change_machines
from pipelines.printing import Console, print_error, say
from pipelines.project.connection import Connection, run_link
from pipelines.project.settings import Settings
from pipelines.recipe import Recipe
from pipelines.runs import cloud_logging, experiments, job_request, vertex_ai, vertex_jobs
from pipelines.runs.live_view import Row, choose_view, make_trial_row
from pipelines.runs.run import ENDED, EXPIRED, JOB_ENDED, SEARCH_STEP, Run
from pipelines.runs.screens import show_results
from pipelines.startup import EXIT_FAILED, EXIT_INTERRUPTED
from vertex.client.cloud_errors import CloudError, is_capacity
from vertex.errors import InputError, escape_controls

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
    run's name ends in a number. It does not repeat cached steps unless `cache` is False. If the
    training has begun, it goes on from the last checkpoint, unless one of the two has parameter
    servers and the other does not.
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
        parameters = recipe.with_values({**values, **fallback}, origin=origin)
        run_values = job_request.run_values(recipe, parameters, settings, package, run_id)
        plans[run_id] = run_values, bool(parameters.machines.ps_count)
    connection = Connection(settings, say)
    # base_output_directory of the newest training, without and with parameter servers: a checkpoint
    # fits only trainings of its own kind.
    begun: dict[bool, str] = {}
    for run_id, (run_values, has_servers) in plans.items():
        if has_servers in begun:
            run_values["resume_from"] = begun[has_servers]
        last = run_id == [*plans][-1] or detach
        job = job_request.build_pipeline_job(package, settings, run_values, cache)
        try:
            vertex_jobs.create(connection, job, run_id)
        except CloudError as error:
            if last or not is_capacity(str(error)):
                raise
            say(f"{error}; trying the next of the recipe's fallbacks")
            continue
        code = follow(connection, recipe.name, run_id, detach=detach, last=last)
        if code is not None:
            return code
        failed = vertex_jobs.fetch(connection, run_id)
        if training := vertex_ai.read(connection, failed, with_jobs=False).training:
            begun[has_servers] = training
        say("trying the next of the recipe's fallbacks")
    return EXIT_FAILED


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
                say(f"compare   {experiments.link(settings, experiment)}")
        except (CloudError, InputError) as error:
            say(f"warning   the run was not added to an experiment: {error}")
        if detach:
            say(f"status    python -m pipelines status {run_id}")
            return 0
        run = _wait_for_end(connection, run_id)
    except KeyboardInterrupt:
        say(f"The run continues. To cancel it: python -m pipelines cancel {run_id}")
        return EXIT_INTERRUPTED
    if run.state == EXPIRED:
        print_error(f"error: {run.error}")
        return EXIT_FAILED
    say(f"{run.state}  {vertex_ai.format_cost(run)}".rstrip())
    show_results(run)
    if run.state != "FAILED":
        return 0 if run.state == "SUCCEEDED" else EXIT_FAILED
    print_error(f"error: {run.error}")
    text, log_link = cloud_logging.fetch_failure_lines(connection, run)
    # If Vertex AI refuses the training job, only the log of the step Train may say why.
    lacking = is_capacity(run.error) or (not run.jobs and any(map(is_capacity, text)))
    if lacking and not last:
        return None
    say(*(f"  {line}" for line in text), f"logs      {log_link}")
    return EXIT_FAILED


def _wait_for_end(connection: Connection, run_id: str) -> Run:
    """Show a run until it ends or its training job expires; return it.

    Raises CloudError after `_PATIENT_SECONDS` without an answer, or if the run was deleted.
    """
    rows: list[Row] = []
    with choose_view(lambda: rows, Console(), run_id) as view:
        patient = connection.make_retry(view.note, _PATIENT_SECONDS)
        for poll in itertools.count(1):
            try:
                job = vertex_jobs.fetch(connection, run_id, patient)
            except vertex_jobs.NoRunError:
                raise CloudError(
                    f"the run {run_id!r} was started, but has been deleted since"
                ) from None
            except (CloudError, InputError) as error:
                advice = f"the run may continue: python -m pipelines status {run_id}"
                raise CloudError(f"{error}; {advice}") from None
            ended = vertex_jobs.state_of(job) in ENDED
            with_jobs = ended or poll % _POLLS_BETWEEN_JOBS == 0
            run = vertex_ai.read(connection, job, with_jobs=with_jobs)
            rows[:] = [*_make_rows(connection, run), Row("run", vertex_jobs.state_of(job), 0.0, "")]
            view.update()
            if ended or run.state == EXPIRED:
                return run
            time.sleep(POLLING_SECONDS)
    raise AssertionError


def _make_rows(connection: Connection, run: Run) -> Iterator[Row]:
    """Yield a row for each task, followed by the last lines of the replicas of its running job."""
    for task in run.tasks:
        name, error = escape_controls(task.display_name), escape_controls(task.error)
        yield Row(name, task.state, task.seconds, error)
        if task.state == "RUNNING" and task.custom_jobs:
            progress: Mapping[str, str] = {}
            # The run goes on, whether or not its lines can be read.
            with contextlib.suppress(CloudError, InputError):
                job_id = task.custom_jobs[-1].rpartition("/")[2]
                progress = cloud_logging.fetch_progress(connection, run, job_id)
            for replica, text in sorted(progress.items()):
                yield Row(replica.replace("-", " "), "RUNNING", 0.0, text, is_replica=True)
        if task.display_name == SEARCH_STEP:
            yield from map(make_trial_row, run.trials)


def resume(
    settings: Settings,
    recipe: str,
    run_id: str,
    name: str,
    machines: Mapping[str, Any],
    *,
    detach: bool,
) -> int:
    """Resume an interrupted run; return the exit code.

    Vertex AI can't resume a PipelineJob, so this starts a new one with the same pipeline and
    parameters. (Its rerun of single tasks, a preview, would also start a new one.) The new run
    reads the records from the cache, and its parameter resume_from names the directory of the
    interrupted training job, which holds the checkpoint. Training refuses a checkpoint of other
    records or settings. A run that is being cancelled is waited for first.

    Args:
        recipe: a recipe, whose latest run is resumed unless `run_id` is given, or the ID of a run.
        name: name of the new run; empty: <recipe>-<time>.
        machines: machine options that differ from those of the interrupted run.
    """
    connection = Connection(settings.require("project"))
    latest = [] if run_id else vertex_jobs.list_runs(connection, recipe, limit=1)
    found = vertex_jobs.id_of(latest[0]) if latest else run_id or recipe
    job = vertex_jobs.fetch(connection, found)
    run = vertex_ai.read(connection, job, with_jobs=False)
    if run_id and run.recipe.lower() != recipe.lower():
        raise InputError(f"{run_id!r} is a run of {run.recipe!r}, not of {recipe!r}")
    if run.state == "CANCELLING":
        run = _wait_for_end(connection, run.name)
        job = vertex_jobs.fetch(connection, run.name)
    if run.state == "SUCCEEDED":
        raise InputError(f"the run {run.name!r} has succeeded; there is nothing to resume")
    if run.state not in ENDED:
        raise InputError(
            f"the run {run.name!r} is {run.state}; wait for its end, or cancel it first"
        )
    for training in vertex_jobs.list_custom_jobs(connection, job):
        if (now := vertex_jobs.state_of(training)) not in JOB_ENDED:
            raise InputError(f"the training job of {run.name!r} is {now}; wait for its end")
    new_id = job_request.make_run_id(run.recipe, name)
    machines = change_machines(run.parameters, machines)
    copy = job_request.copy_job(job, new_id, run.training, machines)
    vertex_jobs.create(connection, copy, new_id)
    return follow(connection, run.recipe, new_id, detach=detach) or 0
