"""python -m pipelines schedule: a recipe's [retraining] on Vertex AI."""

from typing import Annotated

import typer

from pipelines.commands.arguments import GivenSettings, RecipeName, confirm, with_settings
from pipelines.console import say, show_table

app = typer.Typer(no_args_is_help=True, help="Run a recipe again and again, as it declares.")


@app.command()
@with_settings
def apply(settings: GivenSettings, recipe: RecipeName) -> None:
    """Make a recipe's schedule, or change it to what the recipe declares now.

    RECIPE-batch is the schedule of its batch prediction.
    """
    from pipelines import prediction_values
    from pipelines import recipe as recipes
    from pipelines.cloud import batch_launch, job_request, schedules

    own = settings().require("project", "pipeline_root")
    if base := prediction_values.base_of(recipe):
        applied = batch_launch.apply(settings.connect(), recipes.load(base))
    else:
        loaded = recipes.load(recipe)
        compiled = job_request.compiled(loaded, own)
        applied = schedules.apply(settings.connect(), loaded, compiled)
    schedule = applied.schedule
    changed = f" ({', '.join(applied.changed)})" if applied.changed else ""
    say(f"{applied.action}{changed}: {schedule.name}")
    if applied.action == "recreated":
        say("          no update can do that: a new one, which counts its runs from 0, replaces it")
    say(f"runs      at {schedule.cron}, {schedule.max_concurrent_run_count} at once")
    uri = schedule.create_pipeline_job_request.pipeline_job.template_uri
    say(f"pinned to sha256:{applied.digest}{f', {uri}' if uri else ''}")
    say("          a recipe or code that changes later takes effect when it is applied again")


@app.command("list")
@with_settings
def list_schedules(settings: GivenSettings) -> None:
    """List the schedules that this project made."""
    from pipelines.cloud import schedules

    rows = []
    for schedule in schedules.listed(settings.connect()):
        labels = schedule.create_pipeline_job_request.pipeline_job.labels
        next_run = f"{schedule.next_run_time:%Y-%m-%d %H:%M} UTC" if schedule.next_run_time else ""
        started, template = str(schedule.started_run_count), f"sha256:{labels.get('template', '')}"
        state = schedule.state.name
        recipe = schedules.recipe_of(schedule)
        rows.append((recipe, state, schedule.cron, next_run, started, template))
    show_table(("Recipe", "State", "Cron", "Next run", "Started", "Template"), rows)


@app.command()
@with_settings
def pause(settings: GivenSettings, recipe: RecipeName) -> None:
    """Start no more runs until the schedule is resumed."""
    from pipelines.cloud import schedules

    schedules.bring_to(settings.connect(), recipe, "PAUSED")
    say(f"the schedule of {recipe} is paused")


@app.command()
@with_settings
def resume(settings: GivenSettings, recipe: RecipeName) -> None:
    """Start runs again; those that were missed are not made up for."""
    from pipelines.cloud import schedules

    schedules.bring_to(settings.connect(), recipe, "ACTIVE")
    say(f"the schedule of {recipe} is active")


@app.command()
@with_settings
def delete(
    settings: GivenSettings,
    recipe: RecipeName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a recipe's schedule. Its runs stay."""
    from pipelines.cloud import schedules

    connection = settings.connect()
    schedules.find(connection, recipe)
    if not yes and not confirm(f"Delete the schedule of {recipe}?"):
        say("nothing was deleted")
        return
    schedules.delete(connection, recipe)
    say(f"the schedule of {recipe} is deleted")
