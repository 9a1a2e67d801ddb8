"""The command `first-hour`: work through docs/first-hour.md with a project."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines import recipe as recipes
from pipelines.commands.arguments import GivenSettings
from pipelines.printing import say
from pipelines.startup import EXIT_INTERRUPTED
from trainer.errors import InputError

if TYPE_CHECKING:
    from pipelines.cloud.first_hour import Row


def first_hour(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A recipe that trains in minutes.")
    ] = "digits",
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Don't ask; skip what only a person can do."),
    ] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="Print the rows as a table in Markdown instead.")
    ] = False,
) -> int:
    """Test in your project what Google's documentation leaves open (docs/first-hour.md).

    Takes an hour. Asks before each row that costs money or deletes something, and shows what is
    found beside what is expected. Writes requests, answers, states and times to
    first-hour-<time>.json, without the names of the project, its accounts and buckets. After an
    interruption, the same command continues.
    """
    from pipelines import plan
    from pipelines.cloud.first_hour import EXPECTED, OTHER, SKIPPED, Hour, list_lines

    loaded = recipes.load(recipe)
    if list_:
        print(*list_lines(recipe), sep="\n")
        return 0
    settings = GivenSettings({}).load().require("project", "pipeline_root")
    if not yes and not sys.stdin.isatty():
        raise InputError("no terminal to ask on before a row that costs money; add --yes")

    def ask(row: "Row") -> tuple[str, str]:
        if row.do:
            answers = {"expected": EXPECTED, "other": OTHER, "skip": SKIPPED}
            answer = SKIPPED if yes else answers[_choose("what did you see?", *answers)]
            why = "only a person can do it" if yes else ""
            return answer, typer.prompt("what instead?") if answer == OTHER else why
        minutes = row.run_minutes or loaded.run_options.expected_minutes
        price = plan.estimate(loaded.parameters, minutes)
        deleted = row.asks.replace("{recipe}", recipe)
        say(f"costs     {price}" if row.asks == "costs" else f"deletes   {deleted}")
        answer = "y" if yes else _choose("do it?", "y", "n", "skip")
        return {"y": "", "skip": SKIPPED}.get(answer, answer), ""

    hour = Hour(recipe, settings, ask)
    ended = hour.run()
    say("", f"{'bundle':10}{hour.path}: read it before you send it")
    if not ended:
        say("the same command continues with this row")
        return EXIT_INTERRUPTED
    results = [row["result"] for row in hour.bundle["rows"]]
    say(", ".join(f"{results.count(name)} {name}" for name in (EXPECTED, OTHER, SKIPPED)))
    return 1 if OTHER in results else 0


def _choose(question: str, *answers: str) -> str:
    while (answer := typer.prompt(f"{question} [{'/'.join(answers)}]")) not in answers:
        pass
    return str(answer)
