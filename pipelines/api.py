"""The project from Python, for notebooks and programs: what the command line does, in functions.

    from pipelines import api

    recipe = api.load("digits")
    pools = api.plan(recipe, {"worker_count": 3})       # prints machines and price
    path = api.compile(recipe)                          # build/digits.yaml, for Vertex AI
    run = api.run(recipe, {"epochs": 3, "min_accuracy": 0})
    run.state, run.verdict, run.metrics["accuracy"]
    model = api.load_model(api.results("latest"))       # a keras.Model

A mistake in a recipe or a value raises trainer.errors.InputError, whose message is one line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pipelines import recipe as recipes
from pipelines import run_history
from pipelines.console import say
from pipelines.recipe import Recipe
from pipelines.run_history import PastRun
from trainer.errors import InputError

if TYPE_CHECKING:
    import keras

    from pipelines.cloud.settings import Settings

__all__ = ["compile", "load", "load_model", "plan", "predict", "results", "resume", "run"]

BUILD = Path("build")
RUNS = Path("runs")


def load(name: str) -> Recipe:
    """Return the recipe `name`, of the project or of recipes/ in the working folder."""
    return recipes.load(name)


def plan(
    recipe: Recipe,
    values: Mapping[str, Any] | None = None,
    *,
    minutes: float = 0.0,
    rates: Sequence[str] = (),
    place: str = "values",
) -> list[dict[str, Any]]:
    """Print the machines, quota and price of a run; return its worker_pool_specs.

    Args:
        recipe: as `load` returned it.
        values: of parameters, in place of the recipe's.
        minutes: expected time of training; 0: the recipe's.
        rates: prices an hour in place of the table's, such as "n1-standard-4=0.2".
        place: that `values` come from, for messages.
    """
    from pipelines import plan as planning
    from pipelines.cloud import settings
    from trainer.machines.worker_pools import worker_pool_specs

    parameters = recipe.with_values(values or {}, place=place)
    evaluation = recipe.operation.evaluation_accelerator
    if parameters.machines.accelerator_count or evaluation:
        settings.load({}, os.environ).check_gpu_image(parameters.machines, evaluation)
    minutes = minutes or recipe.operation.expected_minutes
    planning.show(parameters, minutes, rates, recipe.operation)
    return worker_pool_specs(parameters.machines)


def compile(
    recipe: Recipe,
    *,
    image: str = "",
    gpu_image: str = "",
    directory: Path = BUILD,
    batch: bool = False,
) -> Path:
    """Compile a recipe to `<directory>/<recipe>.yaml`, which Vertex AI runs; return the file.

    Args:
        recipe: as `load` returned it.
        image: of components and replicas, as Vertex AI can pull it; empty: that of the file
            which is there, else a name that only this machine knows.
        gpu_image: of a step with an accelerator, where the recipe has no gpu_image_uri; empty:
            that of the file, else `image`.
        directory: made where it is missing.
        batch: compile its batch prediction, to `<directory>/<recipe>-batch.yaml`.
    """
    from pipelines import compilation

    return compilation.write(recipe, directory, image, gpu_image, batch=batch)


def run(
    recipe: Recipe,
    values: Mapping[str, Any] | None = None,
    *,
    runs_directory: Path = RUNS,
    cache: bool = True,
    in_containers: bool = False,
    root: str = "",
    place: str = "values",
) -> PastRun:
    """Compile a recipe, run it on this machine to its end, and return what it has left.

    Shows the run's progress. A run that fails or is interrupted raises nothing: see `state` and
    `error` of what is returned.

    Args:
        recipe: as `load` returned it.
        values: of parameters, in place of the recipe's.
        runs_directory: where runs leave their folders.
        cache: take over records of earlier runs.
        in_containers: run components and replicas in containers of the pipeline's image.
        root: gs:// URI below which artifacts lie; empty: in the run's folder.
        place: that `values` come from, for messages.
    """
    parameters = recipe.with_values(values or {}, place=place)
    # What is imported takes seconds, more on a busy machine.
    with Console().status(f"Compiling {recipe.name}"):
        from pipelines import compilation, sources
        from pipelines import plan as planning
        from pipelines.local import accelerators
        from pipelines.local.execution import run as run_locally
        from pipelines.package import Package

        planning.check_affordable(parameters)
        given = {name: parameters.values()[name] for name in values or {}}
        given |= sources.on_this_machine(parameters, in_containers=in_containers)
        evaluation = recipe.operation.evaluation_accelerator
        for line in accelerators.substitutes(parameters.machines, evaluation):
            say(line)
        package = Package(compilation.write(recipe, BUILD))
        given["labels"] = {**parameters.job.labels, **package.labels}
    result = run_locally(
        package.path,
        recipe=recipe.name,
        parameters=given,
        runs_directory=runs_directory,
        cache=cache,
        in_containers=in_containers,
        root=root,
    )
    return run_history.load(result.directory.resolve())


def predict(
    recipe: Recipe,
    values: Mapping[str, Any],
    *,
    runs_directory: Path = RUNS,
    root: str = "",
    place: str = "values",
) -> PastRun:
    """Predict many instances by a recipe's champion on this machine, as `run` runs its training.

    Args:
        values: of the parameters of batch prediction: input, output, batch_size, ...
    """
    with Console().status(f"Compiling {recipe.name}"):
        from pipelines.local.execution import run as run_locally
        from pipelines.package import Package
        from pipelines.prediction_values import on_this_machine

        given = on_this_machine(recipe, values, runs_directory, place)
        package = Package(compile(recipe, batch=True))
        given["labels"] |= package.labels
    result = run_locally(
        package.path,
        recipe=package.recipe,
        parameters=given,
        runs_directory=runs_directory,
        root=root,
    )
    return run_history.load(result.directory.resolve())


def resume(recipe: str, name: str = "", *, runs_directory: Path = RUNS) -> PastRun:
    """Go on with a run of this machine that was cancelled, failed or killed, to its end.

    Args:
        recipe: whose latest run is meant, or the name of a run.
        name: of the run; empty: see `recipe`.

    Raises:
        InputError: there is no such run, or it can't be resumed.
    """
    if name or run_history.is_here(runs_directory, recipe):
        found = run_history.find(runs_directory, name or recipe)
        if name and found.recipe != recipe:
            raise InputError(f"{found.name} is a run of {found.recipe!r}, not of {recipe!r}")
    else:
        runs = run_history.listed(runs_directory, recipe)
        if not runs:
            raise InputError(
                f"there is no run of {recipe!r} in the folder {runs_directory} to resume; "
                "`python -m pipelines runs` lists the runs"
            )
        found = runs[0]
    from pipelines.local.resumption import resume as go_on

    return run_history.load(go_on(Path(found.link)).directory)


def results(
    name: str = run_history.LATEST,
    *,
    runs_directory: Path = RUNS,
    settings: Callable[[], Settings] | None = None,
) -> PastRun:
    """Return what a run has left: state, parameters, metrics, verdict.

    Args:
        name: of a run on this machine, "latest", or of a run on Vertex AI.
        runs_directory: where runs of this machine are kept.
        settings: by which Vertex AI is found; default: of vertex.toml and the environment.
    """
    if not run_history.is_here(runs_directory, name):
        from pipelines.cloud import past_runs
        from pipelines.cloud.connection import Connection
        from pipelines.cloud.settings import load as load_settings

        own = settings() if settings else load_settings({}, os.environ)
        if own.project:
            return past_runs.find(Connection(own), name)
    return run_history.find(runs_directory, name)


def load_model(run: PastRun) -> keras.Model:
    """Return the model of a run, from the records' inputs to logits.

    Imports the module of a model of your own, and so what its layers are made of.
    """
    from trainer.training import weights

    if not run.training:
        raise InputError(f"{run.name} is {run.state} and has no model; wait for its training")
    return weights.load_model(run.training, str(run.parameters.get("model", "")))
