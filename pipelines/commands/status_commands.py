"""The commands `status`, `cancel` and `logs`."""

from typing import Annotated

import typer

from pipelines import api
from pipelines.commands import runs_command
from pipelines.commands.arguments import (
    RUNS,
    GivenSettings,
    Rates,
    RecipeFilter,
    RunsDirectory,
    with_settings,
)
from pipelines.printing import say
from pipelines.runs import screens, this_machine

RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run that `runs` lists.")]
_LATEST = "A run that `runs` lists, or latest: the last run started on this machine"


@with_settings
def status(
    settings: GivenSettings,
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help=f"{_LATEST}; default: list all."),
    ] = "",
    recipe: RecipeFilter = None,
    rate: Rates = None,
    runs_directory: RunsDirectory = None,
) -> None:
    """List the runs, or show one: its tasks, its training job and its cost on Vertex AI."""
    from vertex.machines import price_table

    rates = price_table.parse_rates(rate or [])
    folder = runs_directory or RUNS
    if not run:
        runs_command.list_runs(folder, settings, recipe or "", runs_command.LISTED)
        return
    backend = api.find_backend(run, folder, settings.load, rates)
    found = backend.fetch(run)
    batches = [] if found.on_vertex else this_machine.read_batches(found)
    screens.show_status(found, backend, batches)


@with_settings
def cancel(settings: GivenSettings, run: RunName, runs_directory: RunsDirectory = None) -> None:
    """Cancel a run and its training job."""
    api.find_backend(run, runs_directory or RUNS, settings.load).cancel(run)
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
    backend = api.find_backend(run, runs_directory or RUNS, settings.load)
    found = backend.fetch(run)
    error = found.error if replica is None else ""
    if error:
        say(f"error: {error}")
    shown = backend.read_log(found, replica, lines)
    say(*(line for line in shown if not (error and error.endswith(line.removeprefix("error: ")))))
