"""The commands `schedule`: a recipe's [retraining] on Vertex AI."""

from typing import Annotated

import typer

from pipelines.commands.arguments import GivenSettings, RecipeName, confirm, with_settings
from pipelines.printing import say, show_table
from vertex.errors import InputError
from vertex.formats import suggest

app = typer.Typer(no_args_is_help=True, help="Run a recipe on the schedule that it declares.")


@app.command()
@with_settings
def apply(
    settings: GivenSettings,
    recipe: RecipeName,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING",
            help="Apply it even if its runs lose a setting that they have now, such as "
            "encryption_key, network or labels; repeat the option for more settings.",
        ),
    ] = None,
) -> None:
    """Create or update a schedule as its recipe declares it.

    For the schedule of the recipe's batch prediction, give RECIPE-batch.
    """
    from pipelines import recipe as recipes

    settings.load().require("project", "pipeline_root")
    base, names = recipe.removesuffix(recipes.BATCH_SUFFIX), recipes.list_names()
    is_batch = base != recipe and base in names and recipe not in names
    loaded = recipes.load(base if is_batch else recipe)
    # Imported after the checks, as they take seconds.
    from pipelines.cloud import batch_runs, schedules

    for name in remove or []:
        if name not in schedules.REMOVABLE:
            raise InputError(
                f"--remove {name!r} is not a setting{suggest(name, schedules.REMOVABLE)}"
            )
    module = batch_runs if is_batch else schedules
    applied = module.apply(settings.connect(), loaded, removed=remove or [])
    schedule = applied.schedule
    changed = f" ({', '.join(applied.changed)})" if applied.changed else ""
    say(f"{applied.action}{changed}: {schedule.name}")
    if applied.action == "recreated":
        say("          that can't be updated: a new one, which counts runs from 0, replaces it")
    say(f"runs      at {schedule.cron}, up to {schedule.max_concurrent_run_count} at a time")
    uri = schedule.create_pipeline_job_request.pipeline_job.template_uri
    say(f"pinned to sha256:{applied.digest}{f', {uri}' if uri else ''}")
    say("          later changes to the recipe or code take effect when you apply it again")


@app.command("list")
@with_settings
def list_schedules(settings: GivenSettings) -> None:
    """List the schedules that this project created."""
    from pipelines.cloud import schedules

    rows = []
    for schedule in schedules.list_schedules(settings.connect()):
        labels = schedule.create_pipeline_job_request.pipeline_job.labels
        started, template = str(schedule.started_run_count), f"sha256:{labels.get('template', '')}"
        state = schedule.state.name
        due = schedule.next_run_time if state == "ACTIVE" else None
        next_run = f"{due:%Y-%m-%d %H:%M} UTC" if due else ""
        recipe = schedules.recipe_of(schedule)
        rows.append((recipe, state, schedule.cron, next_run, started, template))
    show_table(("Recipe", "State", "Cron", "Next run", "Started", "Template"), rows)


@app.command()
@with_settings
def pause(settings: GivenSettings, recipe: RecipeName) -> None:
    """Pause a recipe's schedule: no run starts until it is resumed."""
    from pipelines.cloud import schedules

    schedules.set_state(settings.connect(), recipe, "PAUSED")
    say(f"the schedule of {recipe} is paused")


@app.command()
@with_settings
def resume(settings: GivenSettings, recipe: RecipeName) -> None:
    """Resume a recipe's schedule; runs missed in the meantime are not started."""
    from pipelines.cloud import schedules

    schedules.set_state(settings.connect(), recipe, "ACTIVE")
    say(f"the schedule of {recipe} is active")


@app.command()
@with_settings
def delete(
    settings: GivenSettings,
    recipe: RecipeName,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> None:
    """Delete a recipe's schedule. Its runs are kept."""
    from pipelines.cloud import schedules

    connection = settings.connect()
    schedules.fetch_schedules(connection, recipe)
    if confirm(f"Delete the schedule of {recipe}?", yes=yes):
        schedules.delete(connection, recipe)
        say(f"the schedule of {recipe} is deleted")
