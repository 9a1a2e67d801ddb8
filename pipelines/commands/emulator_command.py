"""The command `emulator`: emulate Vertex AI on this machine, to practice without a cloud."""

import contextlib
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from components.planning.code_digest import code_digest
from pipelines.commands.arguments import expand_folder
from pipelines.runs import run_folders
from vertex.errors import InputError

BUCKET = "my-project-training"
_FIRE_SECONDS = 1.0


def emulator(
    folder: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder for the emulator's runs, models and buckets.",
            callback=expand_folder,
        ),
    ] = Path("emulated"),
) -> None:
    """Start an emulator of Vertex AI; print the variables that point other commands to it."""
    root = folder.resolve()
    ended = threading.Event()
    with contextlib.ExitStack() as stack:
        try:
            (root / "buckets" / BUCKET).mkdir(parents=True, exist_ok=True)
            problem = f"--folder {str(folder)!r} is in use by another emulator"
            held = run_folders.locked(root, problem, "end it, or give another folder")
            lock = stack.enter_context(held)
        except OSError as error:
            raise InputError(
                f"--folder {str(folder)!r} can't be created ({error.strerror}); give another folder"
            ) from None
        # Imported after the checks, as it takes a second.
        from pipelines.local.services import start_emulator
        from vertex.emulator.artifact_registry import REPOSITORY
        from vertex.emulator.server import to_api_error

        server, schedules, hosts = start_emulator(root, lock, stack)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        _print_exports(
            {**server.environment, **hosts.environment}, f"{server.endpoint}{REPOSITORY}"
        )
        while not ended.wait(_FIRE_SECONDS):
            try:
                server.call("Fire", lambda _: schedules.fire(), None)
            except Exception as error:
                # For example, the file of a schedule is damaged. The emulator continues.
                typer.echo(f"schedules: {to_api_error(error, 'Fire')}", err=True)


def _print_exports(environment: dict[str, str], repository: str) -> None:
    from pipelines.local.services import EMULATED_ACCOUNT, EMULATED_PROJECT, EMULATED_REGION

    # Runs execute this checkout's code. As with a pushed image, other code has another digest.
    images, digest = f"{EMULATED_REGION}-docker.pkg.dev/{EMULATED_PROJECT}/images", code_digest()
    settings: dict[str, Any] = {
        **environment,
        "GOOGLE_CLOUD_PROJECT": EMULATED_PROJECT,
        "GOOGLE_CLOUD_REGION": EMULATED_REGION,
        "VERTEX_PIPELINE_ROOT": f"gs://{BUCKET}/runs",
        "VERTEX_IMAGE": f"{images}/training@sha256:{digest}",
        "VERTEX_GPU_IMAGE": f"{images}/training-gpu@sha256:{digest}",
        "VERTEX_SERVING_IMAGE": f"{images}/serving@sha256:{digest}",
        "VERTEX_TEMPLATE_REPOSITORY": repository,
        "VERTEX_SERVICE_ACCOUNT": EMULATED_ACCOUNT,
    }
    for name, value in settings.items():
        print(f"export {name}={value}")
    print("# Ready; Ctrl-C stops the emulator and all of its runs.", flush=True)
