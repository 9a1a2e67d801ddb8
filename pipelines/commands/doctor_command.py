"""The command `doctor`."""

from typing import Annotated

import typer

from pipelines.commands.arguments import GivenSettings, SetOptions, parse_values, with_settings
from pipelines.printing import say
from vertex.errors import InputError


@with_settings
def doctor(
    settings: GivenSettings,
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE", help="Also check the quota for this recipe's machines."),
    ] = "",
    set_: SetOptions = None,
) -> int:
    """Check whether the project is ready for runs on Vertex AI, and show how to fix it if not."""
    from pipelines import plan as planning
    from pipelines import recipe as recipes
    from pipelines.cloud import doctor as examination

    if set_ and not recipe:
        raise InputError("--set changes parameters of a recipe; name it: doctor RECIPE --set ...")
    parameters, quotas = None, {}
    if recipe:
        loaded = recipes.load(recipe)
        parameters = loaded.with_values(parse_values(set_), origin="--set")
        settings.load().require("project").check_gpu_images(loaded, parameters.machines)
        quotas = planning.list_needed_quotas(parameters, loaded.run_options, loaded.search)
    worst = 0
    for result in examination.examine(settings.connect(), parameters, quotas):
        mark = {True: "✓", False: "✗", None: "?"}[result.ok]
        remedy = f"  -> {result.remedy}" if result.remedy and not result.ok else ""
        say(f"{mark} {result.what}{remedy}")
        worst = max(worst, 1 if result.ok is False else 0)
    return worst
