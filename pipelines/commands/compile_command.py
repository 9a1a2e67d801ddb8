"""The command `compile`, which compile.py also runs."""

import time
from pathlib import Path
from typing import Annotated

import typer

from pipelines import api, recipe
from pipelines.commands.arguments import GivenSettings, expand_folder, with_settings
from pipelines.package import BUILD
from pipelines.printing import say


@with_settings
def main(
    settings: GivenSettings,
    recipes: Annotated[
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
    for loaded in [api.load(name) for name in recipes or recipe.list_names()]:
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
