"""The Model Registry on this machine, in the folder of its runs."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from components.planning.registered_model import check_files
from pipelines import recipe as recipes
from pipelines.runs.run_folders import directory_flag
from trainer.data.storage import is_remote
from vertex.client.cloud_errors import translated
from vertex.client.vertex_client import connect_vertex
from vertex.emulator.environment import bypass_proxies
from vertex.emulator.model_service import FOLDER_NAME, ModelService
from vertex.emulator.operations import Operations
from vertex.emulator.server import Emulator
from vertex.errors import InputError
from vertex.facts.emulation import LOCATION, PROJECT
from vertex.registry.model_registry import ModelRegistry, Version, describe_promotion
from vertex.registry.model_upload import to_label
from vertex.registry.version_aliases import CHAMPION


@contextlib.contextmanager
def opened(runs_directory: Path) -> Iterator[ModelRegistry]:
    """Start a server for the registry of a folder of runs, and connect to it."""
    # The client reads these variables.
    os.environ.update(bypass_proxies(os.environ))
    operations = Operations()
    models = ModelService(operations, runs_directory / FOLDER_NAME)
    with Emulator(models, operations) as server:
        parent = f"projects/{PROJECT}/locations/{LOCATION}"
        client = connect_vertex("model", LOCATION, server.environment)
        yield ModelRegistry(client, parent)


def model_of(recipe: str, model_name: str | None) -> str:
    """Return `model_name` if given, else the recipe's model; raise InputError if it has none."""
    model = model_name or recipes.load(recipe).parameters.registry.model_name
    if not model:
        raise InputError(f"{recipe} registers no model: its model_name is empty; give --model-name")
    return model


def fetch_champion(
    recipe: str, model_name: str | None, runs_directory: Path, *, option: str = "--model-name "
) -> Version:
    """Return the champion of a recipe's model; raise InputError if it is missing or damaged.

    `option` is what the error puts before the name of another model that the recipe has trained.
    """
    model, folder = model_of(recipe, model_name), runs_directory / FOLDER_NAME
    train = f"train one: python -m pipelines run {recipe} --local"
    missing = f"model {model!r} has no champion in {folder} yet"
    if not folder.exists():
        raise InputError(f"{missing}; {train}")
    with translated(f"looking for the champion of {model!r}"), opened(runs_directory) as registry:
        champion = registry.find_champion(model)
        if champion is None:
            hints = []
            if versions := registry.list_versions(model):
                command = _promote_command(recipe, model, runs_directory)
                hints.append(describe_promotion(versions[-1], command))
            if others := _describe_others(registry, recipe, model, runs_directory, option):
                hints.append(others)
            raise InputError("; ".join([missing, *(hints or [train])]))
    uri = champion.artifact_uri
    if not is_remote(uri) and not Path(uri).is_dir():
        raise InputError(f"the champion {champion.name} is not at {uri}; move it back, or {train}")
    check_files(champion)
    return champion


def _promote_command(recipe: str, model: str, runs_directory: Path) -> str:
    default = recipes.load(recipe).parameters.registry.model_name
    named = "" if model == default else f" --model-name {model}"
    return f"python -m pipelines promote {recipe} --local{named}{directory_flag(runs_directory)}"


def _describe_others(
    registry: ModelRegistry, recipe: str, model: str, runs_directory: Path, option: str
) -> str:
    """Return which other models that runs of the recipe trained have a champion, or versions."""
    trained, champions = [], []
    for name in registry.list_models():
        versions = registry.list_versions(name) if name != model else []
        if versions and versions[-1].labels.get("recipe") == to_label(recipe):
            trained.append(name)
            champions += [name for version in versions if CHAMPION in version.aliases]
    if champions:
        have = "has" if len(champions) == 1 else "have"
        return f"{' and '.join(champions)} {have} one: {option}{champions[-1]}"
    if trained:
        command = _promote_command(recipe, trained[-1], runs_directory)
        return f"{trained[-1]} has versions, but no champion; `{command}` lists them"
    return ""
