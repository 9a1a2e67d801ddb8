"""The Python API of the project, for notebooks and programs: the command line as functions.

    from pipelines import api

    recipe = api.load("digits")
    pools = api.plan(recipe, {"worker_count": 3})       # prints machines and price
    path = api.compile(recipe)                          # build/digits.yaml, for Vertex AI
    run = api.run(recipe, {"epochs": 3, "min_accuracy": 0})
    run.state, run.verdict, run.validation["accuracy"], run.metrics["accuracy"]
    model = api.load_model(api.results("latest"))       # a keras.Model

A mistake in a recipe or a value raises vertex.errors.InputError with a one-line message, and a
region or name that Vertex AI refuses raises vertex.errors.InputError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.package import BUILD
from pipelines.printing import Console, say
from pipelines.recipe import Recipe, list_names, load
from pipelines.runs import run_folders
from pipelines.runs.run import Run, find_trial
from vertex.errors import InputError

if TYPE_CHECKING:
    import keras

    from pipelines.project.settings import Settings
    from pipelines.runs.this_machine import LocalRuns
    from pipelines.runs.vertex_ai import VertexRuns
    from trainer.data.source import BilledBytes
    from trainer.data.source_options import SourceOptions

__all__ = ["compile", "load", "load_model", "plan", "predict", "results", "resume", "run"]

RUNS = Path("runs")


def plan(
    recipe: Recipe,
    values: Mapping[str, Any] | None = None,
    *,
    minutes: float = 0.0,
    rates: Sequence[str] = (),
    origin: str = "values",
) -> list[dict[str, Any]]:
    """Print a run's machines, quota, price and missing settings; return its worker_pool_specs.

    Args:
        values: parameter values that override the recipe's.
        minutes: expected duration of the training; 0: the recipe's.
        rates: prices per hour that override the table's, such as "n1-standard-4=0.2".
        origin: where `values` come from, for messages.
    """
    from components.planning.worker_pools import build_worker_pool_specs
    from pipelines import plan as planning
    from pipelines.package import read_images

    parameters = recipe.with_values(values or {}, origin=origin)
    resolved = _load_settings()
    compiled, _ = read_images(BUILD / f"{recipe.name}.yaml")
    minutes = minutes or recipe.run_options.expected_minutes
    billed = _measure_source(parameters.records, resolved)
    planning.show(recipe, parameters, minutes, rates, billed)
    say(*planning.describe_network(recipe, parameters, resolved.network))
    missing = resolved.list_missing(recipe, parameters, compiled)
    say(*(f"missing   {text}" for text in missing))
    return build_worker_pool_specs(parameters.machines)


def _measure_source(options: SourceOptions, settings: Settings) -> BilledBytes | str:
    """Return what a run is billed for reading its source, "" for nothing, or why it is unknown."""
    from pipelines.project.connection import Connection
    from trainer.data.sources import parse_source
    from vertex.client.cloud_errors import CloudError, translated

    kind, place = parse_source(options.source)
    if not kind.billed:
        return ""
    try:
        with translated("asking for its size"):
            call = Connection(settings).call_api
            return kind.measure(place, options, settings.project, call)
    except (CloudError, InputError) as error:
        return str(error)


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
        image: container image for components and replicas, which Vertex AI must be able to pull;
            default: the image in the existing file, or else a local name.
        gpu_image: container image for a step with an accelerator, if the recipe has no
            gpu_image_uri; default: the GPU image in the existing file, or else `image`.
        batch: compile the recipe's batch prediction to `<directory>/<recipe>-batch.yaml` instead.
    """
    from pipelines import compilation

    return compilation.write_yaml(recipe, directory, image, gpu_image, batch=batch)


def run(
    recipe: Recipe,
    values: Mapping[str, Any] | None = None,
    *,
    runs_directory: Path = RUNS,
    cache: bool = True,
    in_containers: bool = False,
    root: str = "",
    name: str = "",
    origin: str = "values",
) -> Run:
    """Compile a recipe, run it on this machine, and return its results when it has ended.

    Shows the run's progress. A run that fails or is interrupted raises no exception; check `state`
    and `error` of the result.

    Args:
        values: parameter values that override the recipe's.
        runs_directory: folder of all runs, in which the run creates its own.
        cache: reuse the records of earlier runs.
        in_containers: run components and replicas in containers of the pipeline's image.
        root: gs:// URI of the folder to write artifacts to; default: the run's folder.
        name: name of the run and of its folder; default: <recipe>-<time>.
        origin: where `values` come from, for messages.
    """
    from pipelines.local.preflight import prepare_training_values

    arguments = prepare_training_values(recipe, values or {}, origin, in_containers=in_containers)
    return _compile_and_run(
        recipe,
        arguments,
        runs_directory,
        name=name,
        cache=cache,
        in_containers=in_containers,
        root=root,
    )


def predict(
    recipe: Recipe,
    values: Mapping[str, Any],
    *,
    runs_directory: Path = RUNS,
    root: str = "",
    name: str = "",
    origin: str = "values",
) -> Run:
    """Run batch prediction by a recipe's champion on this machine; return its results.

    `values` are input, output, batch_size and other keys of the recipe's [batch] table.
    """
    from pipelines.local.preflight import prepare_prediction_values

    arguments = prepare_prediction_values(recipe, values, runs_directory, origin)
    return _compile_and_run(recipe, arguments, runs_directory, batch=True, root=root, name=name)


def _compile_and_run(
    recipe: Recipe,
    arguments: dict[str, Any],
    runs_directory: Path,
    *,
    batch: bool = False,
    name: str = "",
    **options: Any,
) -> Run:
    """Compile a recipe, or its batch prediction, and run it with checked values.

    `options` are those of `execution.run`.
    """
    if name:
        run_folders.check_name(name)
    if name in (*list_names(), run_folders.LATEST):
        raise InputError(f"--name {name!r} is reserved: it selects the last run; give another")
    # The imports take seconds, more on a busy machine.
    with Console().status(f"Compiling {recipe.name}"):
        from pipelines.local import execution
        from pipelines.package import Package

        package = Package(compile(recipe, batch=batch))
    arguments["labels"] = {**arguments["labels"], **package.labels}
    directory = execution.run(
        package, parameters=arguments, runs_directory=runs_directory, name=name, **options
    )
    return results(directory.name, runs_directory=runs_directory)


def resume(
    recipe: str,
    name: str = "",
    machines: Mapping[str, Any] | None = None,
    *,
    runs_directory: Path = RUNS,
) -> Run:
    """Resume a run on this machine that was cancelled, failed or killed; return its results.

    Args:
        recipe: a recipe, whose latest run is resumed unless `name` is given, or the name of a run.
        machines: machine options to change, such as worker_count. The run is continued by a new
            one, which trains from its checkpoint.
    """
    if name or run_folders.is_local(runs_directory, recipe):
        run = run_folders.load_by_name(runs_directory, name or recipe)
        if name and run.recipe != recipe:
            raise InputError(f"{run.name} is a run of {run.recipe!r}, not of {recipe!r}")
    else:
        errors: list[str] = []
        runs = run_folders.list_runs(runs_directory, recipe, errors)
        if errors:
            raise InputError(f"{errors[0]}; or name the run to resume")
        if not runs:
            raise InputError(f"there is no run of {recipe!r} in {runs_directory} to resume")
        run = runs[0]
    from pipelines.local import execution

    directory = execution.resume(Path(run.link), machines)
    return results(directory.name, runs_directory=runs_directory)


def results(
    name: str = run_folders.LATEST,
    *,
    runs_directory: Path = RUNS,
    settings: Callable[[], Settings] | None = None,
) -> Run:
    """Return the results of a run: state, parameters, metrics, verdict.

    Args:
        name: name of a run on this machine or on Vertex AI, or "latest"; of a trial, RUN/NUMBER.
        settings: settings of Vertex AI; default: from vertex.toml and the environment.
    """
    name, _, trial = name.partition("/")
    run = find_backend(name, runs_directory, settings or _load_settings).fetch(name)
    return find_trial(run, trial) if trial else run


def find_backend(
    run: str,
    runs_directory: Path,
    settings: Callable[[], Settings],
    rates: Mapping[str, float] | None = None,
) -> LocalRuns | VertexRuns:
    """Return where a run is; raise InputError if it is not here and no project is set."""
    if run_folders.is_local(runs_directory, run):
        from pipelines.runs.this_machine import LocalRuns

        return LocalRuns(runs_directory)
    from pipelines.project.connection import Connection
    from pipelines.runs.vertex_ai import VertexRuns

    resolved = settings()
    if not resolved.project:
        raise InputError(
            f"no run {run!r} in the folder {runs_directory}, and for Vertex AI there is "
            f"{resolved.describe_missing('project')}"
        )
    return VertexRuns(Connection(resolved), rates or {})


def _load_settings() -> Settings:
    from pipelines.project import settings

    return settings.load({}, os.environ)


def load_model(run: Run) -> keras.Model:
    """Return the model of a run, which maps pixels, or a table's encoded columns, to logits.

    If the model is one of your own, this imports its module, which defines its layers.
    """
    from pipelines.runs import run_files
    from trainer.data.storage import join
    from trainer.exported import keras_file, model_files

    if not run.training:
        raise InputError(f"{run.name} is {run.state} and has no model; wait for its training")
    run_files.check(run.link, join(run.training, "model", model_files.LIST))
    return keras_file.load_model(run.training, str(run.parameters.get("model", "")))
