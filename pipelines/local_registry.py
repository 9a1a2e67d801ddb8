"""The Model Registry on this machine, in the folder of its runs."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines import recipe as recipes
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


def fetch_champion(recipe: str, model_name: str | None, runs_directory: Path) -> "Version":
    """Return the champion of a recipe's model; raise InputError if it is missing or damaged."""
    from components.registry.model_registry import no_champion_error
    from components.vertex.cloud_errors import translated
    from pipelines.emulator.model_service import FOLDER_NAME

    model = model_of(recipe, model_name)
    champion = None
    if (runs_directory / FOLDER_NAME).exists():
        doing = f"looking for the champion of {model!r}"
        with translated(doing), opened(runs_directory) as registry:
            champion = registry.find_champion(model)
    if champion is None:
        remedy = f"train one: python -m pipelines run {recipe} --local"
        raise no_champion_error(model, runs_directory / FOLDER_NAME, remedy)
    champion.check_files()
    return champion
