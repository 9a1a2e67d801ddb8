"""The commands `doctor`, `status`, `cancel` and `logs`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.machines.price import format_machines
from pipelines import local_runs, run_history
from pipelines.commands import runs_command
from pipelines.commands.arguments import (
    RUNS,
    GivenSettings,
    Rates,
    Recipe,
    RunsDirectory,
    SetOptions,
    parse_values,
    with_settings,
)
from pipelines.console import say
from trainer.errors import InputError
from trainer.formats import clock

if TYPE_CHECKING:
    from pipelines.cloud.connection import Connection

RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run that `runs` lists.")]
_LATEST = "A run that `runs` lists, or latest: the last run started on this machine"


@with_settings
def status(
    settings: GivenSettings,
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help=f"{_LATEST}; default: list all."),
    ] = "",
    recipe: Recipe = None,
    rate: Rates = None,
    runs_directory: RunsDirectory = None,
) -> None:
    """List the runs, or show one: its tasks, its training job and its cost on Vertex AI."""
    from components.machines import price_table

    rates = price_table.parse_rates(rate or [])
    folder = runs_directory or RUNS
    if not run:
        runs_command.list_runs(folder, settings, recipe or "", runs_command.LISTED)
        return
    if run_history.is_local(folder, run):
        local_runs.show_status(folder, run)
        return
    from pipelines.cloud import past_runs, runs
    from pipelines.cloud.connection import console_link, run_link

    connection = _connect(run, settings, folder)
    resolved = connection.settings
    job = runs.fetch(connection, run)
    say(f"{run}  {runs.state_of(job)}", f"console   {run_link(resolved, run)}")
    for task in runs.tasks_of(job):
        took = f"  {clock(task.seconds)}" if task.seconds else ""
        error = f"  {task.error}" if task.error else ""
        say(f"task      {task.state:<13}  {task.name}{took}{error}")
    if verdict := runs.verdict_of(job):
        say(f"verdict   {verdict}")
    jobs = runs.list_readable_jobs(connection, job)
    for custom_job in jobs:
        page = f"vertex-ai/locations/{{region}}/training/{runs.id_of(custom_job)}/cpu"
        machines = format_machines(past_runs.pools_of(custom_job))
        say(
            f"training  {runs.state_of(custom_job)}: {machines}",
            f"          {console_link(resolved, page)}",
        )
    if jobs:
        say(
            f"cost      {past_runs.format_cost(job, jobs, rates)}",
            f"          not included: {price_table.NOT_INCLUDED}",
        )
    if expiry := runs.find_expiry(connection, job):
        say(f"error: {expiry}")
    if runs.state_of(job) == "FAILED":
        say(f"error: {runs.failure_of(job, jobs)}", f"logs      python -m pipelines logs {run}")


@with_settings
def cancel(settings: GivenSettings, run: RunName) -> None:
    """Cancel a run and its training job."""
    if run_history.is_local(RUNS, run):
        raise InputError(f"{run} is a run on this machine; press Ctrl-C where it was started")
    from pipelines.cloud import runs

    runs.cancel(_connect(run, settings, RUNS), run)
    say(f"{run} is being cancelled")


@with_settings
def logs(
    settings: GivenSettings,
    run: Annotated[str, typer.Argument(metavar="RUN", help=f"{_LATEST}.")],
    replica: Annotated[
        str | None,
        typer.Option(
            help="Show every line of this replica, such as workerpool1-0; all: of every replica; "
            "default: the replica that failed, without TensorFlow's own messages."
        ),
    ] = None,
    lines: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of lines to show, from the end.")
    ] = 50,
    runs_directory: RunsDirectory = None,
) -> None:
    """Show the last log lines of a run: of the replica that failed, or of the training job."""
    from pipelines.cloud import cloud_logging as reading
    from pipelines.cloud import runs

    folder = runs_directory or RUNS
    if run_history.is_local(folder, run):
        local_runs.show_logs(folder, run, replica, lines)
        return
    connection = _connect(run, settings, folder)
    job = runs.fetch(connection, run)
    job_id, failed = reading.find_source(job, runs.list_readable_jobs(connection, job))
    chosen = failed if replica is None else {"all": ""}.get(replica, replica)
    noise = replica is not None
    text = reading.fetch_lines(connection, job, job_id, chosen, lines, noise=noise)
    place = f"of {chosen} " if chosen else ""
    say(*text or [f"no lines {place}yet: {reading.link(connection, job_id)}"])


@with_settings
def doctor(
    settings: GivenSettings,
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="Also check the quota for the machines of this recipe."
        ),
    ] = "",
    set_: SetOptions = None,
) -> int:
    """Check whether the project is ready for runs on Vertex AI, and show how to fix it if not."""
    from pipelines import recipe as recipes
    from pipelines.cloud import doctor as examination

    if set_ and not recipe:
        raise InputError("--set changes parameters of a recipe; name it: doctor RECIPE --set ...")
    parameters, accelerator = None, ""
    if recipe:
        loaded = recipes.load(recipe)
        parameters = loaded.with_values(parse_values(set_), place="--set")
        settings.load().require("project").check_gpu_images(loaded, parameters.machines)
        accelerator = loaded.run_options.evaluation_accelerator
    worst = 0
    for finding in examination.examine(settings.connect(), parameters, accelerator):
        mark = {True: "✓", False: "✗", None: "?"}[finding.ok]
        remedy = f"  -> {finding.remedy}" if finding.remedy and not finding.ok else ""
        say(f"{mark} {finding.what}{remedy}")
        worst = max(worst, 1 if finding.ok is False else 0)
    return worst


def _connect(run: str, settings: GivenSettings, folder: Path) -> "Connection":
    """Connect to the project of a run on Vertex AI; raise InputError if no project is set."""
    resolved = settings.load()
    if not resolved.project:
        raise InputError(
            f"no run {run!r} in the folder {folder}; to look on Vertex AI: "
            f"{resolved.describe_missing('project')}"
        )
    return settings.connect()
