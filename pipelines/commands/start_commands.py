"""The commands `run` and `tune`: run a recipe on Vertex AI or on this machine."""

import functools
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pipelines import api, startup
from pipelines.commands.arguments import (
    BatchInput,
    GivenSettings,
    RecipeName,
    RunsDirectory,
    SetOptions,
    parse_values,
    runs_folder,
    with_settings,
)
from pipelines.project.settings import Settings
from pipelines.recipe import Recipe
from vertex.errors import InputError
from vertex.facts import resource_names

_RunToResume = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN",
        help="With --resume: the run to resume, which `runs` lists; default: the recipe's latest.",
        show_default=False,
    ),
]
_Resume = Annotated[
    bool, typer.Option("--resume", help="Resume a run that was cancelled, failed or killed.")
]
_InContainers = Annotated[
    bool,
    typer.Option(
        "--in-containers",
        help="With --local: run components and replicas in containers of the pipeline's image.",
    ),
]
_Cache = Annotated[
    bool | None,
    typer.Option(
        "--cache/--no-cache",
        help="Reuse the outputs of earlier runs for every step, or for no step; default: reuse "
        "only the records.",
    ),
]
_Name = Annotated[str | None, typer.Option(help="Name of the run; default: <recipe>-<time>.")]
_Detach = Annotated[
    bool, typer.Option("--detach", help="Start the run without waiting for its end.")
]


@with_settings
def run_recipe(
    settings: GivenSettings,
    recipe: RecipeName,
    runs: _RunToResume = None,
    local: Annotated[bool, typer.Option("--local", help="Run on this machine.")] = False,
    resume: _Resume = False,
    in_containers: _InContainers = False,
    batch: BatchInput = None,
    set_: SetOptions = None,
    cache: _Cache = None,
    name: _Name = None,
    detach: _Detach = False,
    runs_directory: RunsDirectory = None,
) -> int:
    """Compile a recipe to build/<recipe>.yaml and run it, on Vertex AI or on this machine."""
    directory = runs_folder(runs_directory, local=local)
    vertex_options = _list_given({"--detach": detach}) + settings.options()
    if resume:
        fixed: dict[str, Any] = {"--cache": cache is not None}
        fixed |= {"--in-containers": in_containers, "--batch": batch, "--name": local and name}
        run = _choose_run(runs or [], _list_given(fixed) + (vertex_options if local else []))
        machines = parse_values(set_)
        if local:
            resumed = api.resume(recipe, run, machines, runs_directory=directory)
            return startup.exit_code(resumed.state)
        from pipelines.runs import launch

        return launch.resume(settings.load(), recipe, run, name or "", machines, detach=detach)
    if runs:
        raise _extra_argument_error(runs[0], recipe, batch)
    loaded = api.load(recipe)
    values = parse_values(set_, batch)
    if batch is not None and (in_containers or cache is not None):
        raise InputError("--in-containers and --cache are for training; leave them out")
    if local:
        root = _choose_root(settings, vertex_options, in_containers)
        common: dict[str, Any] = {"runs_directory": directory, "root": root, "name": name or ""}
        if batch is not None:
            ended = api.predict(loaded, values, **common, origin="--batch")
        else:
            ended = api.run(
                loaded,
                values,
                **common,
                cache=cache is not False,
                in_containers=in_containers,
                origin="--set",
            )
        return startup.exit_code(ended.state)
    if in_containers:
        raise InputError("--in-containers is for runs on this machine; add --local")
    options: dict[str, Any] = {"cache": cache, "name": name or "", "detach": detach}
    return start_on_vertex(settings.load(), loaded, values, batch=batch is not None, **options)


def start_on_vertex(
    settings: Settings,
    loaded: Recipe,
    values: dict[str, Any],
    *,
    batch: bool,
    cache: bool | None,
    name: str,
    detach: bool,
) -> int:
    """Start training or batch prediction on Vertex AI; return the exit code."""
    from pipelines.cloud import batch_runs
    from pipelines.runs import launch
    from pipelines.runs.vertex_jobs import NameTakenError

    if not settings.project:
        raise InputError(f"{settings.describe_missing('project')}; or add --local to run here")
    start = batch_runs.launch if batch else functools.partial(launch.launch, cache=cache)
    while True:
        try:
            return start(loaded, values, settings, name=name, detach=detach)
        except NameTakenError:
            # Another run was started in the same second; the next second gives another name.
            if name:
                raise


def _choose_run(runs: list[str], refused: list[str]) -> str:
    """Return the run to resume, or "" for the recipe's latest."""
    if refused:
        raise InputError(f"{refused[0]} excludes --resume: a run continues as it was started")
    run, *others = runs or [""]
    if others:
        raise InputError(f"{others[0]!r} was given after {run!r}; give one run to resume")
    return run


def _extra_argument_error(word: str, recipe: str, batch: str | None) -> InputError:
    """Return the error for a word after the recipe without --resume."""
    if batch is not None:
        return InputError(
            f"--batch takes one value, but {word!r} was given, too; for several files, give a "
            "pattern in quotes, such as --batch 'scans-*.jsonl'"
        )
    return InputError(
        f"{word!r} was given after {recipe!r}; write --set before each parameter, with quotes "
        "around JSON, or add --resume to resume a run"
    )


def _list_given(options: Mapping[str, Any]) -> list[str]:
    return [option for option, value in options.items() if value]


def _choose_root(settings: GivenSettings, vertex_options: list[str], in_containers: bool) -> str:
    """Return the root of a run on this machine; refuse other options that are for Vertex AI."""
    for option in vertex_options:
        if option != "--pipeline-root":
            raise InputError(f"{option} is for runs on Vertex AI; leave it out of a --local run")
    # Only the flag counts, not the environment or a file: a local run writes to a bucket only if
    # its command line says so.
    root = settings.flags["pipeline_root"] or ""
    resource_names.check("pipeline_root", root)
    if root and in_containers:
        raise InputError("--pipeline-root excludes --in-containers: containers have no credentials")
    return root


@with_settings
def tune_recipe(
    settings: GivenSettings,
    recipe: RecipeName,
    local: Annotated[bool, typer.Option("--local", help="Search on this machine.")] = False,
    trials: Annotated[int | None, typer.Option(help="Number of trials.")] = None,
    parallel: Annotated[
        int | None, typer.Option(help="Number of trials that run in parallel.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            "--search", metavar="NAME=VALUE", help="Option of the recipe's `search` table."
        ),
    ] = None,
    set_: SetOptions = None,
    name: _Name = None,
    detach: _Detach = False,
    runs_directory: RunsDirectory = None,
) -> int:
    """Search for hyperparameters as the recipe's `search` table says, and train with the best.

    The name of the search is RECIPE-search: give it to `compile`, `schedule` and `run --resume`.
    """
    changes: dict[str, Any] = parse_values(search, option="--search")
    counts = {"trials": trials, "parallel": parallel}
    changes |= {name: value for name, value in counts.items() if value is not None}
    values = parse_values(set_)
    loaded = api.load(recipe).as_search(changes, values)
    if local:
        if detach or settings.options():
            raise InputError("--detach and settings of Vertex AI exclude --local; leave them out")
        directory = runs_folder(runs_directory, local=True)
        ended = api.run(loaded, values, runs_directory=directory, name=name or "", origin="--set")
        return startup.exit_code(ended.state)
    options: dict[str, Any] = {"cache": None, "name": name or "", "detach": detach}
    return start_on_vertex(settings.load(), loaded, values, batch=False, **options)
