"""The command `promote`: choose the version of a model that is the champion.

The gate promotes better versions automatically. Use this command in other cases: to promote a
challenger after a review, or to roll back a bad champion.
"""

import contextlib
from typing import Annotated

import typer

from pipelines.commands.arguments import (
    GivenSettings,
    ModelName,
    RecipeName,
    RunsDirectory,
    runs_folder,
    with_settings,
)
from pipelines.printing import say, show_table
from vertex.client.cloud_errors import translated
from vertex.errors import InputError


@with_settings
def promote(
    settings: GivenSettings,
    recipe: RecipeName,
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="N", help="Make this version the champion."),
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Make the previous champion the champion again.")
    ] = False,
    model_name: ModelName = None,
    local: Annotated[
        bool, typer.Option("--local", help="Use the Model Registry on this machine.")
    ] = False,
    runs_directory: RunsDirectory = None,
) -> None:
    """Promote a version of a recipe's model, roll the last promotion back, or list versions."""
    from pipelines.local import local_registry

    directory = runs_folder(runs_directory, local=local)
    if runs_directory is not None and not directory.is_dir():
        raise InputError(f"--runs-directory {str(directory)!r}: there is no such folder")
    if local and (given := settings.options()):
        raise InputError(f"{given[0]} is for the registry of Vertex AI; leave it out with --local")
    if version and rollback:
        raise InputError("--version and --rollback exclude each other; give one")
    model = local_registry.model_of(recipe, model_name)
    with contextlib.ExitStack() as stack:
        repeat = f"`promote {recipe}` lists the champion"
        stack.enter_context(translated(f"calling the Model Registry for {model!r}", repeat=repeat))
        if local:
            registry = stack.enter_context(local_registry.opened(directory))
        else:
            registry = settings.connect().registry
        if version:
            champion = registry.promote(model, version)
            say(f"{champion.name} is the champion of {model}")
        elif rollback:
            champion, withdrawn = registry.roll_back(model)
            after = f", after {withdrawn.name}" if withdrawn else ""
            say(f"{champion.name} is the champion of {model} again{after}")
        elif versions := registry.list_versions(model):
            rows = [
                (
                    entry.version,
                    ", ".join(sorted(entry.aliases)),
                    entry.labels.get("run", ""),
                    entry.artifact_uri,
                )
                for entry in versions
            ]
            show_table(("Version", "Aliases", "Run", "Model"), rows)
        else:
            say(f"{model} has no version yet")
