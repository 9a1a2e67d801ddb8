"""The rows of docs/first-hour.md, from first_hour.toml."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path

from trainer.toml_reader import tomllib

COMMAND = "python -m pipelines"


@dataclasses.dataclass(frozen=True)
class Step:
    """A command, and the regular expression that its output must match."""

    typed: str
    shows: str
    until: str = ""  # what to type it again for, in words


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """Commands to type, or something that only a person can do after them."""

    name: str
    minute: int
    steps: tuple[Step, ...] = ()
    do: str = ""
    shows: str
    remedy: str = ""
    after: tuple[str, ...] = ()  # rows without which this one can show nothing
    asks: str = ""  # "costs", or what it deletes
    run_minutes: float = 0.0  # expected duration of the training job; 0: the recipe's

    @property
    def what(self) -> str:
        """Return what to type or do, in Markdown."""
        typed = [
            f"`{'' if number else f'{COMMAND} '}{step.typed}`"
            + (f" until {step.until}" if step.until else "")
            for number, step in enumerate(self.steps)
        ]
        return ", then ".join([*typed, *filter(None, [self.do])])


@functools.cache
def load() -> tuple[Row, ...]:
    content = tomllib.loads(Path(__file__).with_name("first_hour.toml").read_text("utf-8"))
    return tuple(
        Row(**{**row, "steps": tuple(Step(**step) for step in row.get("steps", ()))})
        for row in content["rows"]
    )


def list_lines(recipe: str) -> Iterator[str]:
    """Yield the table of the rows in Markdown."""
    yield "| minute | type or do | shows | if it does not work |"
    yield "|---|---|---|---|"
    for row in load():
        text = f"| {row.minute} | {row.what} | {row.shows} | {row.remedy} |"
        yield text.replace("{recipe}", recipe).replace("{hour}", "").replace("|  |", "| |")
