"""Commands that look at Google Cloud: doctor, status, cancel, logs."""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipelines import local_runs, run_history
from pipelines.cloud.flags import with_settings
from pipelines.cloud.settings import Settings
from pipelines.commands import runs_command
from pipelines.commands.arguments import (
    Rates,
    Recipe,
    RunsDirectory,
    SetOptions,
    not_empty,
    of_recipe,
    parse_settings,
    runs_folder,
)
from pipelines.console import print_plain
from trainer.errors import InputError

RunName = Annotated[str, typer.Argument(metavar="RUN", help="As `runs` lists them.")]
_LATEST = "As `runs` lists them; latest: the one that was started last on this machine"


@with_settings
def status(
    settings: Callable[[], Settings],
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help=f"{_LATEST}; default: list them.",
        ),
    ] = "",
    recipe: Recipe = None,
    rate: Rates = None,
    runs_directory: RunsDirectory = None,
) -> None:
    """List the runs, or show one: its tasks, its training job, what it cost on Vertex AI."""
    from pipelines.machines import cost

    rates = cost.parse_rates(rate or [])
    folder = runs_folder(runs_directory, local=True)
    if not run:
        runs_command.list_runs(folder, settings, of_recipe(recipe), runs_command.LISTED)
        return
    if run_history.is_here(folder, run):
        local_runs.show_status(folder, run)
        return
    from pipelines.cloud import bill, runs, watch
    from pipelines.cloud.connection import Connection, console_link, run_link

    own = _settings_for(run, settings, folder)
    connection = Connection(own)
    console = Console()
    job = runs.get(connection, run)
    lines = [f"{run}  {runs.state_of(job)}", f"console   {run_link(own, run)}"]
    _print(console, lines)
    console.print(watch.table(job))
    verdict = runs.verdict_of(job)
    if verdict:
        _print(console, [f"verdict   {verdict}"])
    jobs = runs.readable_jobs(connection, job)
    for custom_job in jobs:
        _print(console, [f"training  {runs.state_of(custom_job)}: {_pools(custom_job)}"])
        page = f"vertex-ai/locations/{{region}}/training/{runs.id_of(custom_job)}/cpu"
        _print(console, [f"          {console_link(own, page)}"])
    if jobs:
        _print(console, [f"cost      {bill.summary(jobs, rates)}"])
        _print(console, [f"          not included: {cost.NOT_INCLUDED}"])
    expiry = runs.expiry(connection, job)
    if expiry:
        _print(console, [f"error: {expiry}"])
    if runs.state_of(job) == "FAILED":
        now = datetime.datetime.now(datetime.timezone.utc)
        _print(console, [f"error: {runs.failure_of(job, jobs, now)}"])
        _print(console, [f"logs      python -m pipelines logs {run}"])


@with_settings
def cancel(settings: Callable[[], Settings], run: RunName) -> None:
    """Cancel a run; its training job is ended with it."""
    folder = runs_folder(None, local=True)
    if run_history.is_here(folder, run):
        raise InputError(f"{run} is a run on this machine; end it by Ctrl-C where it was started")
    from pipelines.cloud import runs
    from pipelines.cloud.connection import Connection

    runs.cancel(Connection(_settings_for(run, settings, folder)), run)
    _print(Console(), [f"{run} is being cancelled"])


@with_settings
def logs(
    settings: Callable[[], Settings],
    run: Annotated[str, typer.Argument(metavar="RUN", help=f"{_LATEST}.")],
    replica: Annotated[
        str | None,
        typer.Option(
            help="Of this one alone, such as workerpool1-0; all: of every one; default: the one "
            "that failed.",
            show_default=False,
        ),
    ] = None,
    lines: Annotated[int, typer.Option(min=1, max=1000, help="How many, the last ones.")] = 50,
    runs_directory: RunsDirectory = None,
) -> None:
    """Show a run's log lines: those of the replica that failed, or of the training job."""
    from pipelines.cloud import cloud_logging as reading
    from pipelines.cloud import runs
    from pipelines.cloud.connection import Connection

    if replica is not None:
        not_empty("--replica", replica)
    folder = runs_folder(runs_directory, local=True)
    if run_history.is_here(folder, run):
        local_runs.show_logs(folder, run, replica, lines)
        return
    connection = Connection(_settings_for(run, settings, folder))
    job = runs.get(connection, run)
    source = reading.source_of(connection, job, runs.readable_jobs(connection, job))
    chosen = source.replica if replica is None else {"all": ""}.get(replica, replica)
    console = Console()
    text = reading.lines(connection, source, chosen, lines)
    reading.show(console, text)
    if not text:
        place = f"of {chosen} " if chosen else ""
        _print(console, [f"no lines {place}yet: {reading.link(connection, source.job_id)}"])


@with_settings
def doctor(
    settings: Callable[[], Settings],
    recipe: Annotated[
        str, typer.Argument(metavar="[RECIPE]", help="Check the quota for its machines, too.")
    ] = "",
    set_: SetOptions = None,
) -> int:
    """Check that all is ready for runs on Vertex AI, and say how to mend what is not."""
    from pipelines import recipe as recipes
    from pipelines.cloud import doctor as examination
    from pipelines.cloud.connection import Connection
    from pipelines.machines import cost
    from trainer.machines.worker_pools import worker_pool_specs

    if set_ and not recipe:
        raise InputError("--set changes parameters of a recipe; name it: doctor RECIPE --set ...")
    pools, preemptible = [], False
    if recipe:
        parameters = recipes.load(recipe).with_values(parse_settings(set_), place="--set")
        pools = worker_pool_specs(parameters.machines)
        preemptible = parameters.pipeline.scheduling_strategy in cost.PREEMPTIBLE_STRATEGIES
    own = settings().require("project")
    if recipe:
        own.check_gpu_image(parameters.machines)
    console = Console()
    worst = 0
    for finding in examination.examine(Connection(own), pools, preemptible=preemptible):
        mark = {True: "✓", False: "✗", None: "?"}[finding.ok]
        mend = f"  -> {finding.mend}" if finding.mend and not finding.ok else ""
        _print(console, [f"{mark} {finding.what}{mend}"])
        worst = max(worst, 1 if finding.ok is False else 0)
    return worst


def _settings_for(run: str, settings: Callable[[], Settings], folder: Path) -> Settings:
    """Return the settings by which a run that is not here is found on Vertex AI.

    Raises:
        InputError: they name no project.
    """
    own = settings()
    if not own.project:
        raise InputError(
            f"no run {run!r} in the folder {folder}; to look on Vertex AI: {own.missing('project')}"
        )
    return own


def _pools(job: object) -> str:
    """Return 1 x n1-standard-4 + 2 x n1-standard-4 with 1 x NVIDIA_TESLA_T4."""
    from pipelines.cloud import bill

    texts = []
    for pool in bill.pools_of(job):
        machine = pool["machine_spec"]
        text = f"{pool['replica_count']} x {machine['machine_type']}"
        if "accelerator_type" in machine:
            text += f" with {machine['accelerator_count']} x {machine['accelerator_type']}"
        texts.append(text)
    return " + ".join(texts)


def _print(console: Console, lines: list[str]) -> None:
    for line in lines:
        print_plain(console, line)
