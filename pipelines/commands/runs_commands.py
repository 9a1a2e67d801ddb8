"""The commands `runs`, `status`, `logs`, `cancel` and `tensorboard`: runs that have started."""

import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.padding import Padding

from pipelines import api
from pipelines.commands.arguments import (
    RUNS,
    GivenSettings,
    Rates,
    RecipeFilter,
    RunsDirectory,
    with_settings,
)
from pipelines.local.local_programs import QUIET, component_environment
from pipelines.printing import Console, make_cell, say, show_table
from pipelines.runs import run_folders, screens
from pipelines.runs.live_view import format_trial
from pipelines.runs.run import Run, SearchTrial
from pipelines.runs.this_machine import read_batches, read_search
from trainer.data.storage import is_object
from vertex.client.cloud_errors import CloudError, is_refused
from vertex.errors import InputError, one_line
from vertex.formats import clock, count, decimal

_COLORS = {
    "SUCCEEDED": "green",
    "FAILED": "red",
    "KILLED": "red",
    "CANCELLED": "yellow",
    "RUNNING": "blue",
}
_LISTED = 20
"""Default number of runs that are listed."""
_METRICS = ("accuracy", "r2", "example_f1", "roc_auc", "log_loss")
_WIDE, _NARROW = 39, 26
"""Columns of the metrics of both splits, and of the validation split alone."""
_WIDTH = 32 + _WIDE
"""Columns of a run's first line after its name."""
_CHANGES = 3
_TRIALS = 3
"""Number of the best trials of a search that are listed."""
_LONGEST_VALUE = 24
_CONTEXT = 8
"""Characters before the first difference of two values that are cut."""
_LATEST = "A run that `runs` lists, or latest: the last run started on this machine"
_RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run that `runs` lists.")]
# Ctrl-C ends the process without an exception: Python drops a KeyboardInterrupt in a callback,
# such as the one that runs when a thread of the server is deleted. `notf` is TensorBoard's own
# switch to run without TensorFlow, which takes seconds to import and logs a lot.
_PROGRAM = """
import os, signal, sys, types

def end(*_):
    if "main" in globals():  # Else TensorBoard is still being imported.
        manager.remove_info_file()
    os._exit(0)

signal.signal(signal.SIGINT, end)
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")
from tensorboard import manager
from tensorboard import main
main.run_main()
"""


@with_settings
def runs(
    settings: GivenSettings,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN", help="Two runs, or trials as RUN/7, to compare; default: list all runs."
        ),
    ] = None,
    recipe: RecipeFilter = None,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of runs to list.")] = _LISTED,
    runs_directory: RunsDirectory = None,
) -> None:
    """List the runs on this machine and on Vertex AI, the latest first, or compare two of them."""
    folder = runs_directory or RUNS
    if names and len(names) != 2:
        raise InputError("give two runs to compare, or none to list them")
    if names:
        first, second = (
            api.results(name, runs_directory=folder, settings=settings.load) for name in names
        )
        on_vertex = first.on_vertex or second.on_vertex
        _compare(first, second, folder, settings.connect().storage if on_vertex else None)
        return
    _list_runs(folder, settings, recipe or "", limit)


def _list_runs(folder: pathlib.Path, settings: GivenSettings, recipe: str, limit: int) -> None:
    """Print the runs of a folder and of the settings' project, if any.

    Raises CloudError, after the runs on this machine, if Google Cloud refuses to list the others.
    """
    unreadable: list[str] = []
    failure = None
    found = run_folders.list_runs(folder, recipe, unreadable)
    notes = [f"not listed: {one_line(line)}" for line in unreadable]
    resolved = settings.load()
    if resolved.project:
        from pipelines.project.connection import console_link
        from pipelines.runs import experiments, vertex_ai
        from vertex.facts import regions

        try:
            found += vertex_ai.list_runs(resolved, recipe, limit + 1)
            if recipe and regions.has_experiments(resolved.region):
                name = experiments.experiment_of(recipe)
                notes.append(f"experiment   {experiments.link(resolved, name)}")
            notes.append(f"all runs     {console_link(resolved, 'vertex-ai/pipelines/runs')}")
        except (CloudError, InputError) as error:
            if not found:
                raise
            unlisted = f"runs on Vertex AI are not listed: {one_line(error)}"
            failure = CloudError(unlisted) if is_refused(error) else None
            notes += [] if failure else [unlisted]
    found.sort(key=lambda run: (run.started, run.name), reverse=True)
    if not found and not unreadable:
        where = f" and none in {resolved.project}, {resolved.region}" if resolved.project else ""
        say(f"no runs{f' of {recipe!r}' if recipe else ''} in the folder {folder}{where}")
    width = max((len(run.name) for run in found[:limit]), default=0)
    for number, run in enumerate(found[:limit]):
        earlier = (other for other in found[number + 1 :] if other.recipe == run.recipe)
        try:
            trials = run.trials if run.on_vertex else read_search(pathlib.Path(run.link))
        except InputError as error:
            notes.append(f"trials of {run.name} are not listed: {one_line(error)}")
            trials = ()
        _show(run, next(earlier, None), trials, width)
    if len(found) > limit:
        say("older runs are not listed; --limit lists more, --recipe the runs of one recipe")
    say(*notes)
    if failure:
        raise failure


def _show(run: Run, before: Run | None, trials: Sequence[SearchTrial], width: int) -> None:
    """Print a run: a line with its state and result, and one with its recipe and changes."""
    console = Console()
    line = make_cell(f"{run.name:<{width}}  ")
    line.append(f"{run.state:<9}", _COLORS.get(run.state, ""))
    took = "" if run.seconds is None else clock(run.seconds)
    is_narrow = console.is_terminal and console.width < width + _WIDTH
    figures = _format_metrics(run, is_narrow=is_narrow)
    line.append(make_cell(f"  {figures}  {run.verdict:<8}  {took:>7}".rstrip()))
    console.print(line, soft_wrap=True, highlight=False)
    started = f"{run.started.astimezone():%Y-%m-%d %H:%M}"
    backend = f" on {run.backend}" if run.on_vertex else ""
    details = make_cell(f"{run.recipe}{backend}, {started}{_describe_changes(run, before)}", "dim")
    # Wrap only on a terminal; to a file or a pipe, write one line.
    if console.is_terminal:
        console.print(Padding(details, (0, 0, 0, 4), expand=False))
    else:
        say(f"    {details.plain}")
    best = sorted((trial for trial in trials if trial.rank), key=lambda trial: trial.rank)
    for trial in best[:_TRIALS]:
        say(f"    trial {format_trial(trial)}")
    if others := len(trials) - len(best[:_TRIALS]):
        say(f"    {count(others, 'other trial')}: status {run.name}")


def _format_metrics(run: Run, *, is_narrow: bool) -> str:
    """Format a metric of the validation split, by which to choose, and one of the test split."""
    name = next((name for name in _METRICS if name in run.metrics), "")
    test = f"{name.replace('_', ' ')} {decimal(run.metrics[name], 4)}" if name else ""
    if not run.validation:
        shown = test and f"test {test}"
    else:
        metric, value = next(iter(run.validation.items()))
        shown = f"validation {metric} {decimal(value, 4)}"
        if test and not is_narrow:
            shown += f", test {test.removeprefix(f'{metric} ')}"
    return f"{shown:<{_NARROW if is_narrow else _WIDE}}"


def _describe_changes(run: Run, before: Run | None) -> str:
    """Describe the parameters that differ from those of the previous run."""
    from pipelines.runs.run_comparison import find_differing_parameters

    if before is None:
        return ""
    changed = find_differing_parameters(before, run)
    texts = []
    for name, old, new in changed[:_CHANGES]:
        now, was = _shorten(new), _shorten(old)
        if now == was:  # They differ where they are cut.
            start = len(os.path.commonprefix([new, old])) - _CONTEXT  # noqa: RUF071
            now, was = (_shorten(f"...{value[start:]}") for value in (new, old))
        texts.append(f"{name}={now} (was {was})")
    if len(changed) > _CHANGES:
        texts.append(f"{len(changed) - _CHANGES} more")
    return "; " + (", ".join(texts) or "same parameters")


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _compare(first: Run, second: Run, folder: pathlib.Path, client: Any) -> None:
    """Print the comparison, and write the page with the curves."""
    from pipelines.runs import comparison_page, run_comparison

    compared = run_comparison.compare(first, second, client)
    metrics = [(name, str(old), str(new)) for name, old, new in compared.metrics]
    show_table(("Parameter", first.name, second.name), compared.parameters)
    say("" if compared.parameters else "no parameters differ\n")
    show_table(("Metric", first.name, second.name), metrics)
    say("")
    folder.mkdir(exist_ok=True)
    page = folder / f"{first.name}--{second.name}.html".replace("/", "-")  # of trials
    comparison_page.write(page, compared)
    say(*compared.verdicts, f"page  {page}")


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
        _list_runs(folder, settings, recipe or "", _LISTED)
        return
    backend = api.find_backend(run, folder, settings.load, rates)
    found = backend.fetch(run)
    batches = [] if found.on_vertex else read_batches(found)
    screens.show_status(found, backend, batches)


@with_settings
def cancel(settings: GivenSettings, run: _RunName, runs_directory: RunsDirectory = None) -> None:
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


def tensorboard(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE|RUN",
            help="Show these runs, or the runs of these recipes; default: all on this machine.",
        ),
    ] = None,
    runs_directory: RunsDirectory = None,
) -> None:
    """Show the learning curves of runs on this machine in TensorBoard, until Ctrl-C."""
    folder = runs_directory or RUNS
    runs = _choose_runs(folder, names or [])
    # Paths are relative to the folder of runs, because its name may contain a comma.
    directories = [f"{run.name}:{os.path.relpath(f'{run.training}/logs', folder)}" for run in runs]
    flags = [f"--logdir_spec={','.join(directories)}", "--host=127.0.0.1", "--port=default"]
    say(f"{count(len(runs), 'run')} in TensorBoard (without TensorFlow); Ctrl-C ends it")
    sys.stdout.flush()
    os.chdir(folder)
    # Replace this process: TensorBoard gets its signals, and no child can outlive it.
    command = [sys.executable, "-c", _PROGRAM, *flags]
    os.execve(sys.executable, command, {**component_environment(), **QUIET})  # noqa: S606


def _choose_runs(folder: pathlib.Path, names: Sequence[str]) -> list[Run]:
    """Return the named runs that have logs, without duplicates; raise InputError if none has."""
    chosen: dict[str, Run] = {}
    unreadable: list[str] = []
    for name in names:
        if run_folders.is_local(folder, name):
            runs = [run_folders.load_by_name(folder, name)]
        else:
            runs = run_folders.list_runs(folder, name, unreadable)
            if not runs:
                raise InputError(
                    f"{name!r} is neither a run nor a recipe with readable runs in the folder "
                    f"{folder}; `python -m pipelines runs` lists the runs"
                )
        chosen.update((run.name, run) for run in runs)
    runs = list(chosen.values()) if names else run_folders.list_runs(folder, "", unreadable)
    say(*(f"not shown: {error}" for error in dict.fromkeys(unreadable)))
    logged = [run for run in runs if pathlib.Path(run.training, "logs").is_dir()]
    if not logged:
        elsewhere = " on this machine" if any(is_object(run.training) for run in runs) else ""
        raise InputError(f"no run in the folder {folder} has TensorBoard logs{elsewhere} yet")
    return logged
