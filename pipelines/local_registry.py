"""The Model Registry on this machine, in the folder of its runs."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines import recipe as recipes
from pipelines.run_history import directory_flag
from trainer.errors import InputError

if TYPE_CHECKING:
    from components.registry.model_registry import ModelRegistry, Version


@contextlib.contextmanager
def opened(runs_directory: Path) -> "Iterator[ModelRegistry]":
    """Start a server for the registry of a folder of runs, and connect to it."""
    from components.registry.model_registry import ModelRegistry
    from components.vertex.vertex_client import connect_vertex
    from pipelines.emulator import environment
    from pipelines.emulator.model_service import FOLDER_NAME, ModelService
    from pipelines.emulator.operations import Operations
    from pipelines.emulator.server import Emulator

    # The client reads these variables.
    os.environ.update(environment.bypass_proxies(os.environ))
    operations = Operations()
    models = ModelService(operations, runs_directory / FOLDER_NAME)
    with Emulator(models, operations) as server:
        parent = f"projects/{environment.PROJECT}/locations/{environment.LOCATION}"
        client = connect_vertex("model", environment.LOCATION, server.environment)
        yield ModelRegistry(client, parent)


def model_of(recipe: str, model_name: str | None) -> str:
    """Return `model_name` if given, else the recipe's model; raise InputError if it has none."""
    model = model_name or recipes.load(recipe).parameters.registry.model_name
    if not model:
        raise InputError(f"{recipe} registers no model: its model_name is empty; give --model-name")
    return model


def fetch_champion(
    recipe: str, model_name: str | None, runs_directory: Path, *, option: str = "--model-name "
) -> "Version":
    """Return the champion of a recipe's model; raise InputError if there is none.

    `option` is what the error puts before the name of another model that the recipe has trained.
    """
    from pipelines.emulator.model_service import FOLDER_NAME

    model, place = model_of(recipe, model_name), runs_directory / FOLDER_NAME
    train = f"train one: python -m pipelines run {recipe} --local"
    if not place.exists():
        raise InputError(f"model {model!r} has no champion in {place} yet; {train}")
    with opened(runs_directory) as registry:
        if champion := registry.find_champion(model):
            return champion
        default = recipes.load(recipe).parameters.registry.model_name
        flags = "" if model == default else f" --model-name {model}"
        flags += directory_flag(runs_directory)
        return registry.fetch_champion(
            model,
            place=place,
            promote=f"python -m pipelines promote {recipe} --local{flags}",
            others=_describe_champions(registry, recipe, option),
            train=train,
        )


def _describe_champions(registry: "ModelRegistry", recipe: str, option: str) -> str:
    """Return which models have a champion that a run of the recipe trained, and how to name one."""
    from components.registry.model_upload import to_label

    champions = [registry.find_champion(name) for name in registry.list_models()]
    names = [
        champion.model
        for champion in champions
        if champion and champion.labels.get("run", "").startswith(to_label(f"{recipe}-"))
    ]
    if not names:
        return ""
    return f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} one: {option}{names[-1]}"
