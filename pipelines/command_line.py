"""python -m pipelines: what there is to run, on which machines, and running it.

What a command needs beyond the recipes, KFP above all, is imported in it: listing
recipes takes no second.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pipelines import recipe as recipes
from pipelines import sources
from pipelines.parameters import PARAMETERS
from trainer.errors import EXIT_CODE, InputError
from trainer.fields import default_of, type_of

FAILED = 1
INTERRUPTED = 130

app = typer.Typer(
    help="TensorFlow training as a Vertex AI pipeline.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Name = Annotated[str, typer.Argument(metavar="RECIPE", help="As `recipes` lists them.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter, as `parameters` lists them; may be given again for others.",
    ),
]


def run(application: typer.Typer, arguments: Sequence[str]) -> int:
    """Runs a command line; returns its exit code, 2 after one line on a user's mistake."""
    command = typer.main.get_command(application)
    try:
        return command.main(list(arguments), standalone_mode=False) or 0
    except InputError as error:
        message = str(error)
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:
        # Typer's usage errors; which class they are of depends on its version.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()
        if not message:
            return EXIT_CODE
        message = f"{message.rstrip('.')}; --help shows what there is"
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_CODE


@app.command("recipes")
def list_recipes() -> None:
    """List the recipes."""
    table = Table("Recipe", "What it makes", "Model", "Replicas", "Source", box=None)
    for name in recipes.names():
        recipe = recipes.load(name)
        parameters = recipe.parameters
        table.add_row(
            name,
            recipe.summary,
            parameters.training.model,
            str(1 + parameters.machines.worker_count),
            parameters.records.source,
        )
    Console().print(table)


@app.command("parameters")
def list_parameters() -> None:
    """List the pipeline's parameters, which --set takes."""
    table = Table("Parameter", "Type", "Default", "What it does", box=None)
    for name, (group, field) in PARAMETERS.items():
        default = default_of(field)
        text = field.metadata["help"]
        choices = [choice for choice in field.metadata["choices"] if choice != ""]
        if choices:
            text += f" One of {', '.join(map(str, choices))}."
        shown = f'"{default}"' if default == "" else str(default)
        table.add_row(name, type_of(group, name).__name__, shown, text)
    Console().print(table)


@app.command()
def plan(recipe: Name, set_: Settings = None) -> None:
    """Show which machines a run would train on. Asks no server."""
    from trainer.config import to_flags
    from trainer.worker_pools import worker_pool_specs

    loaded = recipes.load(recipe)
    parameters = loaded.with_values(parse_settings(set_), place="--set")
    # The very list that the plan_training step makes.
    pools = worker_pool_specs(parameters.machines, to_flags(parameters.training))
    table = Table("Role", "Replicas", "Machine", "Accelerators of each", "Disk of each", box=None)
    for role, pool in zip(parameters.machines.replicas, pools, strict=True):
        machine, disk = pool["machine_spec"], pool["disk_spec"]
        accelerators = "none"
        if "accelerator_type" in machine:
            accelerators = f"{machine['accelerator_count']} x {machine['accelerator_type']}"
        table.add_row(
            role,
            str(pool["replica_count"]),
            machine["machine_type"],
            accelerators,
            f"{disk['boot_disk_size_gb']} GB {disk['boot_disk_type']}",
        )
    console = Console()
    console.print(table)
    console.print(
        f"strategy {parameters.training.strategy}, provisioned as "
        f"{parameters.pipeline.scheduling_strategy}, ended after {parameters.job.timeout} at most",
        highlight=False,
    )


@app.command("run")
def run_recipe(
    recipe: Name,
    local: Annotated[bool, typer.Option("--local", help="Run on this machine.")] = False,
    set_: Settings = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Write records again even where they are cached.")
    ] = False,
    runs_directory: Annotated[Path, typer.Option(help="Where the run leaves its folder.")] = Path(
        "runs"
    ),
) -> int:
    """Compile a recipe to build/<recipe>.yaml and run that file."""
    loaded = recipes.load(recipe)
    given = parse_settings(set_)
    parameters = loaded.with_values(given, place="--set")
    if not local:
        raise InputError(
            f"a run on Vertex AI starts from the uploaded build/{recipe}.yaml (python compile.py "
            f"{recipe} --image URI) for now; add --local to run on this machine"
        )
    values = {name: parameters.values()[name] for name in given}
    values.update(sources.on_this_machine(parameters))

    from pipelines import compilation
    from pipelines.local import run as run_locally

    package = compilation.write(loaded, Path("build"))
    result = run_locally(
        package,
        recipe=recipe,
        parameters=values,
        runs_directory=runs_directory,
        cache=not no_cache,
    )
    return {"SUCCEEDED": 0, "CANCELLED": INTERRUPTED}.get(result.state, FAILED)


def parse_settings(settings: Sequence[str] | None) -> dict[str, Any]:
    """`name=value` texts as a dictionary; raises InputError for one without `=`."""
    values = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise InputError(f"--set {setting!r} is not NAME=VALUE, such as --set epochs=3")
        values[name.strip()] = value
    return values


def main() -> None:
    """Entry point of `python -m pipelines`."""
    sys.exit(run(app, sys.argv[1:]))
