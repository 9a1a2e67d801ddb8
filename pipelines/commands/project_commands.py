"""The commands `doctor`, `clean` and `emulator`: the project on Google Cloud, or emulated."""

import contextlib
import datetime
import re
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from components.planning.code_digest import code_digest
from pipelines.commands.arguments import (
    GivenSettings,
    RecipeFilter,
    SetOptions,
    confirm,
    expand_folder,
    parse_values,
    with_settings,
)
from pipelines.printing import print_error, say, show_table
from pipelines.runs import run_folders
from vertex.client.cloud_errors import FORBIDDEN, CloudError, status_of
from vertex.errors import InputError

_AGE = re.compile(r"([0-9]+)([dhw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_EMULATED_BUCKET = "my-project-training"
_FIRE_SECONDS = 1.0


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
        quotas = planning.list_needed_quotas(loaded, parameters)
    worst = 0
    for result in examination.examine(settings.connect(), parameters, quotas):
        mark = {True: "✓", False: "✗", None: "?"}[result.ok]
        remedy = f"  -> {result.remedy}" if result.remedy and not result.ok else ""
        say(f"{mark} {result.what}{remedy}")
        worst = max(worst, 1 if result.ok is False else 0)
    return worst


@with_settings
def clean(
    settings: GivenSettings,
    older_than: Annotated[
        str, typer.Option(help="Delete only what ended at least this long ago: 30d, 12h or 4w.")
    ],
    recipe: RecipeFilter = None,
    keep_last: Annotated[
        int, typer.Option(min=0, help="Keep this many of each recipe's last successful runs.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> int:
    """Delete old runs, their jobs and folders, finished schedules, unused model versions.

    Only resources with this project's label are deleted. Model versions with an alias are kept, and
    so are runs that such a version or another run still needs. Test endpoints that a killed step
    left behind are deleted once they are a day old, even if --older-than is longer.
    """
    from pipelines.cloud import clean as cleaning

    _before(older_than, datetime.datetime.now(datetime.UTC))  # Refuses another text.
    connection = settings.connect()
    before = _before(older_than, connection.now())
    items, kept = cleaning.find_items(connection, before, recipe or "", keep_last)
    if items:
        show_table(("What", "Name", ""), [(item.kind, item.name, item.detail) for item in items])
    say(*(f"kept: {reason}" for reason in kept))
    if not items:
        say("nothing to delete")
        return 0
    if dry_run:
        say(f"{len(items)} would be deleted (--dry-run)")
        return 0
    if not confirm(f"Delete these {len(items)}?", yes=yes):
        return 0
    deleted, kept_runs = 0, set()
    for item in cleaning.show_progress(items, len(items), "Deleting"):
        if item.run in kept_runs:
            continue
        try:
            item.delete()
            deleted += 1
        except InputError as error:
            raise CloudError(str(error)) from None  # Others have been deleted.
        except CloudError as error:
            # A bucket's retention policy may hold files of some runs. Such a run stays.
            if item.kind != "folder" or status_of(error.__context__ or error) != FORBIDDEN:
                raise
            print_error(f"error: {error}")
            kept_runs.add(item.run)
    say(f"{deleted} deleted")
    return 1 if kept_runs else 0


def _before(age: str, now: datetime.datetime) -> datetime.datetime:
    """Return the time that is 30d, 12h or 4w ago; raise InputError for anything else."""
    match = _AGE.fullmatch(age)
    if not match:
        raise InputError(f"--older-than {age!r} is not an age, such as 30d, 12h or 4w")
    try:
        return now - datetime.timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        raise InputError(f"--older-than {age!r} is too long; give less") from None


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
            (root / "buckets" / _EMULATED_BUCKET).mkdir(parents=True, exist_ok=True)
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
        "VERTEX_PIPELINE_ROOT": f"gs://{_EMULATED_BUCKET}/runs",
        "VERTEX_IMAGE": f"{images}/training@sha256:{digest}",
        "VERTEX_GPU_IMAGE": f"{images}/training-gpu@sha256:{digest}",
        "VERTEX_SERVING_IMAGE": f"{images}/serving@sha256:{digest}",
        "VERTEX_TEMPLATE_REPOSITORY": repository,
        "VERTEX_SERVICE_ACCOUNT": EMULATED_ACCOUNT,
    }
    for name, value in settings.items():
        print(f"export {name}={value}")
    print("# Ready; Ctrl-C stops the emulator and all of its runs.", flush=True)
