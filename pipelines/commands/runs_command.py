"""The command `runs`: list the runs on this machine and on Vertex AI, or compare two of them."""

import os
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.padding import Padding

from pipelines import api
from pipelines.commands.arguments import (
    RUNS,
    GivenSettings,
    RecipeFilter,
    RunsDirectory,
    with_settings,
)
from pipelines.printing import Console, make_cell, say, show_table
from pipelines.runs import run_folders
from pipelines.runs.run import Run, Trial
from pipelines.runs.this_machine import read_search
from pipelines.runs.trial_rows import format_trial
from trainer.tasks.label_kinds import HEADLINES
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
LISTED = 20
"""Default number of runs that are listed."""
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
    limit: Annotated[int, typer.Option(min=1, help="Largest number of runs to list.")] = LISTED,
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
    list_runs(folder, settings, recipe or "", limit)


def list_runs(folder: pathlib.Path, settings: GivenSettings, recipe: str, limit: int) -> None:
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


def _show(run: Run, before: Run | None, trials: Sequence[Trial], width: int) -> None:
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
    name = next((name for name in HEADLINES if name in run.metrics), "")
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
    from pipelines.runs.run_comparison import find_differing_parameters, format_value

    if before is None:
        return ""
    changed = find_differing_parameters(before, run)
    texts = []
    for name, old, new in changed[:_CHANGES]:
        values = [format_value(new), format_value(old)]
        now, was = map(_shorten, values)
        if now == was:  # They differ where they are cut.
            start = len(os.path.commonprefix(values)) - _CONTEXT  # noqa: RUF071
            now, was = (_shorten(f"...{value[start:]}") for value in values)
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
    shown = run_comparison.format_value
    parameters = [(name, shown(old), shown(new)) for name, old, new in compared.parameters]
    metrics = [(name, str(old), str(new)) for name, old, new in compared.metrics]
    show_table(("Parameter", first.name, second.name), parameters)
    say("" if parameters else "no parameters differ\n")
    show_table(("Metric", first.name, second.name), metrics)
    say("")
    folder.mkdir(exist_ok=True)
    page = folder / f"{first.name}--{second.name}.html".replace("/", "-")  # of trials
    comparison_page.write(page, compared)
    say(*compared.verdicts, f"page  {page}")
