"""The command that compiles recipes, of compile.py and of the installed command line."""

import time
from pathlib import Path
from typing import Annotated

import typer

from pipelines import api, recipe
from pipelines.commands.arguments import GivenSettings, expanded, with_settings


@with_settings
def main(
    settings: GivenSettings,
    recipes: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE]...", help="Default: all of them.")
    ] = None,
    output_directory: Annotated[
        Path, typer.Option(help="Where the files go.", callback=expanded)
    ] = api.BUILD,
    upload: Annotated[
        bool,
        typer.Option(
            "--upload",
            help="Store them in template_repository, tagged with version, commit and latest.",
        ),
    ] = False,
) -> None:
    """Compile recipes to the YAML that Vertex AI runs, each checked against its rules.

    The image is that of components and replicas, as Vertex AI can pull it. Without one it is
    that of the file which is there, else a name that only this machine knows.
    """
    from pipelines.cloud import upload as storing
    from pipelines.cloud.connection import Connection
    from pipelines.cloud.job_request import require_image
    from pipelines.package import Package

    own = settings()
    if upload:
        own.require("project", "template_repository")
    for loaded in [api.load(name) for name in recipes or recipe.names()]:
        for batch in [False, True] if loaded.operation.batch else [False]:
            start = time.monotonic()
            path = api.compile(
                loaded,
                image=own.image,
                gpu_image=own.gpu_image,
                directory=output_directory,
                batch=batch,
            )
            print(f"{path}  {path.stat().st_size / 1000:.0f} kB, {time.monotonic() - start:.1f} s")
            if not upload:
                continue
            package = Package(path)
            require_image(package, own)
            uri, is_new = storing.upload(Connection(own), package)
            print(f"{'uploaded' if is_new else 'unchanged'}  {uri}")
            print(f"tags      {', '.join(storing.tags())}")
