"""The commands `recipes`, `parameters`, `plan` and `compile`: recipes before they run."""

import dataclasses
import json
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from pipelines import api
from pipelines import recipe as recipes
from pipelines.commands.arguments import (
    BatchInput,
    GivenSettings,
    Rates,
    RecipeName,
    SetOptions,
    expand_folder,
    parse_values,
    with_settings,
)
from pipelines.package import BUILD
from pipelines.parameters import PARAMETERS, TOPICS
from pipelines.printing import Console, say, show_table
from trainer.data.tables.columns import KEYS, MEANINGS, Column, Cross, SplitBy
from trainer.fields import convert, default_of, type_of
from trainer.models import MODELS
from trainer.models.backbone_table import BACKBONES
from vertex.errors import EXIT_CODE, InputError, one_line
from vertex.formats import suggest

app = typer.Typer(invoke_without_command=True, help="List the recipes, or write a new one.")
_LONGEST_MINUTES = 366 * 24 * 60


@app.callback()
def list_recipes(
    context: typer.Context,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="Print the JSON schema of recipes instead, for an editor."),
    ] = False,
) -> None:
    if context.invoked_subcommand:
        return
    if schema:
        print(json.dumps(recipes.json_schema(), indent=1))
        return
    rows, broken = [], []
    for name in recipes.list_names():
        try:
            recipe = recipes.load(name)
        except InputError as error:
            broken.append(one_line(error))
            continue
        parameters = recipe.parameters
        replicas = str(sum(parameters.machines.replicas.values()))
        source, model = parameters.records.source, parameters.training.model
        rows.append((name, recipe.summary, model, replicas, source))
    show_table(("Recipe", "Summary", "Model", "Replicas", "Source"), rows)
    for message in broken:
        print(f"error: {message}", file=sys.stderr)
    if broken:
        raise typer.Exit(EXIT_CODE)


@app.command("new")
def write_recipe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new recipe's name.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A table or photos, such as csv:FILE or images:FOLDER."
        ),
    ],
    label: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="The column to predict; without it, the columns that can be predicted are listed.",
            show_default=False,
        ),
    ] = "",
    column: Annotated[
        list[str],
        typer.Option(
            metavar="JSON",
            help="How to read a column, as in a recipe: "
            '\'{"name": "price", "format": "1.234,56"}\'; repeat the option for more columns.',
            show_default=False,
        ),
    ] = [],  # noqa: B006 - Typer copies it
    set_options: SetOptions = None,
    explain: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="Show what was found out about a column; write nothing.",
            show_default=False,
        ),
    ] = "",
    search: Annotated[
        bool, typer.Option("--search", help="Add a search for hyperparameters.")
    ] = False,
) -> None:
    """Write a recipe for a table or photos, and show how the data are read.

    Based on the first 200,000 rows of a table, without those of the test split. The recipe says
    which columns are left out and why, and lists what to check.
    """
    from pipelines import new_recipe

    values = new_recipe.convert_values(parse_values(set_options))
    columns = [convert("--column", entry, dict) for entry in column]
    if explain:
        proposal = new_recipe.propose_for(source, label, columns, values)
        say(*_align(new_recipe.explain(proposal, explain)))
        return
    _, lines = new_recipe.write(name, source, label, columns=columns, values=values, search=search)
    say(*_align([*lines, ("next", f"python -m pipelines run {name} --local")]))


def _align(lines: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{title:<10}{one_line(text)}" for title, text in lines]


def list_parameters(
    word: Annotated[
        str,
        typer.Argument(
            metavar="WORD",
            help=f"Show only matching parameters: a topic ({', '.join(TOPICS)}), or part of a name "
            "or description.",
        ),
    ] = "",
) -> None:
    """List the parameters that --set can change."""
    console, wanted = Console(), word.lower()
    found = {topic: names for topic in TOPICS if (names := _find_names(topic, wanted))}
    if not found:
        hint = suggest(word, [*TOPICS, *PARAMETERS], f"; topics are {', '.join(TOPICS)}")
        raise InputError(f"no parameter has {word!r} in its name or description{hint}")
    for number, (topic, names) in enumerate(found.items()):
        console.print(Text(f"\n{topic}" if number else topic, "bold underline"))
        for name in names:
            _show_option(console, *PARAMETERS[name])
    # The exact names add the options of each model or type.
    if wanted == "model_options":
        _show_model_options(console)
    if wanted == "columns":
        for kind, keys in KEYS.items():
            _show_options(console, f"type {kind}: {MEANINGS[kind]}", Column, keys)
        _show_options(console, "crosses: combinations of columns", Cross)
        _show_options(console, "split_by: how rows are split", SplitBy)


def _find_names(topic: str, wanted: str) -> list[str]:
    """Return the names of a topic's parameters that match a word."""
    fields = {name: field for name, (group, field) in PARAMETERS.items() if group is TOPICS[topic]}
    if wanted in TOPICS:
        return list(fields) if wanted == topic else []
    return [
        name
        for name, field in fields.items()
        if wanted in f"{name} {field.metadata['help']}".lower()
    ]


def _show_model_options(console: Console) -> None:
    """Print the options of each model and of each backbone that has any."""
    for model, options in MODELS.items():
        _show_options(console, f"with model={model}", options)
    by_options: dict[type, list[str]] = {}
    for name, backbone in BACKBONES.items():
        by_options.setdefault(backbone.options, []).append(name)
    for options, names in by_options.items():
        if dataclasses.fields(options):
            _show_options(console, f"backbone_options of {', '.join(names)}", options)
    console.print(Text(f"\nbackbones: {', '.join(BACKBONES)}"))


def _show_options(console: Console, title: str, options: type, names: Collection[str] = ()) -> None:
    """Print the options `names` of a dataclass; without names, print all."""
    console.print(Text(f"\n{title}", "bold underline"))
    for field in dataclasses.fields(options):
        if not names or field.name in names:
            _show_option(console, options, field)


def _show_option(console: Console, group: type, field: dataclasses.Field) -> None:
    """Print an option's name, type, default and description."""
    default = default_of(field)
    shown = '""' if default == "" else str(default)
    kind = type_of(group, field.name).__name__
    console.print(Text.assemble((field.name, "bold"), f"  {kind}, default {shown}"))
    console.print(Padding(Text(field.metadata["help"]), (0, 0, 0, 4)))


def plan(
    recipe: RecipeName,
    set_: SetOptions = None,
    minutes: Annotated[
        float,
        typer.Option(
            min=0,
            max=_LONGEST_MINUTES,
            help="Expected duration of the training in minutes; default: the recipe's.",
            show_default=False,
        ),
    ] = 0.0,
    rate: Rates = None,
    batch: BatchInput = None,
) -> None:
    """Show the machines, quota and price of a run.

    Asks only BigQuery, for the size of a source there.
    """
    loaded, values = api.load(recipe), parse_values(set_, batch)
    if batch is not None:
        if minutes:
            raise InputError("--minutes is for training; leave it out with --batch")
        from pipelines import plan as planning

        planning.show_batch(loaded.batch_values(values, origin="--batch"), rate or [])
        return
    api.plan(loaded, values, minutes=minutes, rates=rate or [], origin="--set")


@with_settings
def compile_recipes(
    settings: GivenSettings,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="RECIPE", help="Recipes to compile; default: all.")
    ] = None,
    output_directory: Annotated[
        Path, typer.Option(help="Folder to write the files to.", callback=expand_folder)
    ] = BUILD,
    upload: Annotated[
        bool,
        typer.Option(
            "--upload",
            help="Upload the files to template_repository, with the tags version, commit, latest.",
        ),
    ] = False,
) -> None:
    """Compile recipes to the YAML that Vertex AI runs.

    Components and replicas run in the container image --image, which Vertex AI must be able to
    pull. Default: the image in the existing YAML file, or else a local name.
    """
    from pipelines.cloud import upload as storing
    from pipelines.package import Package
    from pipelines.project.connection import Connection
    from pipelines.runs.job_request import require_image

    resolved = settings.load()
    if upload:
        resolved.require("project", "template_repository")
    for loaded in [api.load(name) for name in names or recipes.list_names()]:
        if upload:
            resolved.check_gpu_images(loaded)
        for batch in [False, True] if loaded.run_options.batch else [False]:
            start = time.monotonic()
            path = api.compile(
                loaded,
                image=resolved.image,
                gpu_image=resolved.gpu_image,
                directory=output_directory,
                batch=batch,
            )
            say(f"{path}  {path.stat().st_size / 1000:.0f} kB, {time.monotonic() - start:.1f} s")
            if not upload:
                continue
            package = Package(path)
            require_image(package.image, resolved)
            uri, is_new = storing.upload(Connection(resolved), package)
            say(f"{'uploaded' if is_new else 'unchanged'}  {uri}")
            say(f"tags      {', '.join(storing.make_tags())}")
