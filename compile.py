"""Compiles recipes for Vertex AI.

python compile.py                        every recipe, to build/<recipe>.yaml
python compile.py digits --image URI     one, with the image that it will run in
"""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from pipelines import command_line


def main(
    recipes: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE]...", help="Default: all of them.")
    ] = None,
    image: Annotated[
        str,
        typer.Option(
            help="Container image of components and replicas, as Vertex AI can pull it. Default: "
            "that of the file which is there, else a name that only this machine knows."
        ),
    ] = "",
    output_directory: Annotated[Path, typer.Option(help="Where the files go.")] = Path("build"),
) -> None:
    """Compile recipes to the YAML that Vertex AI runs, each checked against its rules."""
    from pipelines import compilation, recipe

    for loaded in [recipe.load(name) for name in recipes or recipe.names()]:
        start = time.monotonic()
        path = compilation.write(loaded, output_directory, image)
        print(f"{path}  {path.stat().st_size / 1000:.0f} kB, {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    sys.exit(command_line.run(app, sys.argv[1:]))
