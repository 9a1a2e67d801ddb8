"""The command `serve`: serve the champion on this machine, with the serving image's server."""

import os
import sys
from typing import Annotated

import typer

from pipelines.commands.arguments import RUNS, ModelName, RecipeName, RunsDirectory
from pipelines.commands.monitor_command import load_table_recipe
from pipelines.local_programs import component_environment
from pipelines.printing import say
from trainer.serving import LOG_VARIABLE, PORT, VERSION_VARIABLE


def serve(
    recipe: RecipeName,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port on 127.0.0.1; 0: any free port.")
    ] = PORT,
    log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Append requests to a file, up to 64 MB, which `monitor` reads; only for models "
            "of tables.",
            show_default=False,
        ),
    ] = None,
    model_name: ModelName = None,
    runs_directory: RunsDirectory = None,
) -> None:
    """Serve a recipe's champion on this machine until Ctrl-C, as the serving image does."""
    from pipelines.local import local_registry

    if log is not None:
        load_table_recipe(recipe, "--log")
    directory = runs_directory or RUNS
    version = local_registry.fetch_champion(recipe, model_name, directory)
    say(f"loading {version.name}; Ctrl-C ends the server")
    environment = {
        **component_environment(),
        "AIP_STORAGE_URI": version.artifact_uri,
        "AIP_HTTP_PORT": str(port),
        VERSION_VARIABLE: version.name,
        LOG_VARIABLE: log or "",
    }
    sys.stdout.flush()
    # Replace this process: the server gets its signals, and no child can outlive it.
    os.execve(sys.executable, [sys.executable, "-m", "trainer.serving"], environment)  # noqa: S606
